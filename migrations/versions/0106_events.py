"""Keep events of documents and sources for subscribers. Older code does not write them."""

from alembic import op

revision = "0106"
down_revision = "0105"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"
TABLES = ("event_streams", "events")

EVENTS = """
CREATE TABLE kosmos.event_streams (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    recording boolean NOT NULL,
    last_sequence bigint NOT NULL CHECK (last_sequence >= 0),
    PRIMARY KEY (tenant_id)
);
CREATE TABLE kosmos.events (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    sequence bigint NOT NULL,
    at timestamptz NOT NULL,
    type text NOT NULL,
    collection text COLLATE "C" NOT NULL,
    data jsonb NOT NULL,
    PRIMARY KEY (tenant_id, sequence)
);
"""


def upgrade() -> None:
    """Create the tables, which only the worker role reads and writes: events name documents of all readers."""
    op.execute(EVENTS)
    for table in TABLES:
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker "
            f"USING ({TENANT}) WITH CHECK ({TENANT})"
        )
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({TENANT})")
        op.execute(f"CREATE POLICY backup_read ON kosmos.{table} FOR SELECT TO kosmos_backup USING (true)")
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_backup")


def downgrade() -> None:
    """Drop the tables with all events."""
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE kosmos.{table}")
