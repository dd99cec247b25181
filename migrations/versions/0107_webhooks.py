"""Keep subscribers to the events of a tenant, and the events that they did not accept. Older code delivers none."""

from alembic import op

revision = "0107"
down_revision = "0106"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"
TABLES = ("webhook_subscribers", "webhook_dead_letters")

WEBHOOKS = """
CREATE TABLE kosmos.webhook_subscribers (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    url text NOT NULL,
    types text[] NOT NULL,
    collections text[] NOT NULL,
    state text NOT NULL CHECK (state IN ('active', 'paused', 'stopped')),
    reason text,
    position bigint NOT NULL CHECK (position >= 0),
    attempts integer NOT NULL,
    failures integer NOT NULL,
    error text,
    failing_since timestamptz,
    next_attempt_at timestamptz,
    delivered_at timestamptz,
    secret_version integer NOT NULL,
    rotated_at timestamptz,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);
CREATE TABLE kosmos.webhook_dead_letters (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    subscriber_id uuid NOT NULL,
    sequence bigint NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    failed_at timestamptz NOT NULL,
    redeliver boolean NOT NULL,
    PRIMARY KEY (tenant_id, subscriber_id, sequence),
    FOREIGN KEY (tenant_id, subscriber_id) REFERENCES kosmos.webhook_subscribers (tenant_id, id) ON DELETE CASCADE
);
"""


def upgrade() -> None:
    """Create the tables, which only the worker role reads and writes."""
    op.execute(WEBHOOKS)
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
    """Drop the tables with all subscribers."""
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE kosmos.{table}")
