"""Keep what tenants use: questions, tokens, documents and others, by hour. Older code does not read it."""

from alembic import op

revision = "0105"
down_revision = "0104"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

USAGE = """
CREATE TABLE kosmos.usage (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    hour timestamptz NOT NULL,
    collection text COLLATE "C",
    subject text,
    quantity text NOT NULL,
    model text,
    amount double precision NOT NULL CHECK (amount >= 0),
    cost double precision,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX usage_hour ON kosmos.usage (tenant_id, hour);
"""


def upgrade() -> None:
    """Create the table: readers append to it and read it, the worker role joins the rows of an hour."""
    op.execute(USAGE)
    op.execute("ALTER TABLE kosmos.usage ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.usage FORCE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY worker_all ON kosmos.usage FOR ALL TO kosmos_worker USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.usage FOR SELECT TO kosmos_app USING ({TENANT})")
    op.execute(f"CREATE POLICY app_append ON kosmos.usage FOR INSERT TO kosmos_app WITH CHECK ({TENANT})")
    op.execute("CREATE POLICY backup_read ON kosmos.usage FOR SELECT TO kosmos_backup USING (true)")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.usage TO kosmos_worker")
    op.execute("GRANT SELECT, INSERT ON kosmos.usage TO kosmos_app")
    op.execute("GRANT SELECT ON kosmos.usage TO kosmos_backup")


def downgrade() -> None:
    """Drop the table with all usage."""
    op.execute("DROP TABLE kosmos.usage")
