"""Keep users and groups that an identity provider writes by SCIM. Older code does not read them."""

from alembic import op

revision = "0108"
down_revision = "0107"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"
TABLES = ("scim_resources", "scim_members")

SCIM = """
CREATE TABLE kosmos.scim_resources (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('User', 'Group')),
    name text NOT NULL,
    name_key text COLLATE "C" NOT NULL,
    external_id text COLLATE "C",
    active boolean NOT NULL,
    content jsonb NOT NULL,
    former_subjects text[] NOT NULL,
    version integer NOT NULL,
    created_at timestamptz NOT NULL,
    modified_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, name_key)
);
CREATE INDEX scim_resources_external ON kosmos.scim_resources (tenant_id, external_id);
CREATE TABLE kosmos.scim_members (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    group_id uuid NOT NULL,
    user_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, group_id, user_id),
    FOREIGN KEY (tenant_id, group_id) REFERENCES kosmos.scim_resources (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES kosmos.scim_resources (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX scim_members_user ON kosmos.scim_members (tenant_id, user_id);
"""


def upgrade() -> None:
    """Create the tables: the worker role writes them, and each question reads the groups of its reader."""
    op.execute(SCIM)
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
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_app")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_backup")


def downgrade() -> None:
    """Drop the tables with all users and groups."""
    for table in reversed(TABLES):
        op.execute(f"DROP TABLE kosmos.{table}")
