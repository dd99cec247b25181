"""Let the role kosmos_backup read all rows, so that a backup needs neither a superuser nor BYPASSRLS.

Provisioning creates the role before the first revision that needs it. It may write nothing.
"""

from alembic import op

revision = "0104"
down_revision = "0103"
branch_labels = None
depends_on = None

TABLES = """
SELECT c.relname FROM pg_catalog.pg_class c
 WHERE c.relnamespace = 'kosmos'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> 'alembic_version'
 ORDER BY 1
"""


def _list_tables() -> list[str]:
    """Return all tables of tenant data, partitions of the audit log among them: pg_dump reads each."""
    return [name for (name,) in op.get_bind().exec_driver_sql(TABLES)]


def upgrade() -> None:
    """Create a policy on each table, and grant SELECT on all."""
    for table in _list_tables():
        op.execute(f"CREATE POLICY backup_read ON kosmos.{table} FOR SELECT TO kosmos_backup USING (true)")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_backup")
    op.execute("GRANT USAGE ON SCHEMA kosmos TO kosmos_backup")
    op.execute("GRANT SELECT ON kosmos.alembic_version TO kosmos_backup")
    op.execute("GRANT SELECT ON SEQUENCE kosmos.audit_event_positions TO kosmos_backup")


def downgrade() -> None:
    """Drop the policies and the grants; backups need a superuser again."""
    for table in _list_tables():
        op.execute(f"DROP POLICY backup_read ON kosmos.{table}")
    op.execute("REVOKE SELECT ON ALL TABLES IN SCHEMA kosmos FROM kosmos_backup")
    op.execute("REVOKE SELECT ON SEQUENCE kosmos.audit_event_positions FROM kosmos_backup")
    op.execute("REVOKE USAGE ON SCHEMA kosmos FROM kosmos_backup")
