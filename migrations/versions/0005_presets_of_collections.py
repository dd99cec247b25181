"""Presets of collections: settings that a collection goes by, kept whole so that no file can change them."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# The content is text and not jsonb, which does not keep the order of keys: that of signals has a meaning.
TABLE = """
CREATE TABLE kosmos.presets (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text NOT NULL,
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);
ALTER TABLE kosmos.presets ENABLE ROW LEVEL SECURITY;
ALTER TABLE kosmos.presets FORCE ROW LEVEL SECURITY;
CREATE POLICY app_read ON kosmos.presets FOR SELECT TO kosmos_app USING (tenant_id = kosmos.tenant());
CREATE POLICY worker_all ON kosmos.presets FOR ALL TO kosmos_worker
    USING (tenant_id = kosmos.tenant()) WITH CHECK (tenant_id = kosmos.tenant());
GRANT SELECT ON kosmos.presets TO kosmos_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.presets TO kosmos_worker;
"""


def upgrade() -> None:
    """Create the table."""
    op.execute(TABLE)


def downgrade() -> None:
    """Drop it: all collections go by the plain settings again."""
    op.execute("DROP TABLE kosmos.presets")
