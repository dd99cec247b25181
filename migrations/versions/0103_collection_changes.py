"""Record which chunks each transaction changes.

A process that has the chunks of a collection in memory follows a publication by these rows, and does not load all of
them again. Older code writes no rows, so it cannot serve from databases with them.
"""

import uuid

from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

CHANGES = """
CREATE TABLE kosmos.collection_changes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    state uuid NOT NULL,
    previous uuid NOT NULL,
    sequences int4multirange,
    PRIMARY KEY (tenant_id, collection, epoch)
);
"""


def upgrade() -> None:
    """Add the identity of the last change to collections, and the table of changes."""
    op.execute(f"ALTER TABLE kosmos.collection_statistics ADD COLUMN state uuid NOT NULL DEFAULT '{uuid.uuid4()}'")
    op.execute("ALTER TABLE kosmos.collection_statistics ALTER COLUMN state DROP DEFAULT")
    op.execute(CHANGES)
    op.execute("ALTER TABLE kosmos.collection_changes ENABLE ROW LEVEL SECURITY")
    op.execute("ALTER TABLE kosmos.collection_changes FORCE ROW LEVEL SECURITY")
    op.execute(
        "CREATE POLICY worker_all ON kosmos.collection_changes FOR ALL TO kosmos_worker "
        f"USING ({TENANT}) WITH CHECK ({TENANT})"
    )
    op.execute(f"CREATE POLICY app_read ON kosmos.collection_changes FOR SELECT TO kosmos_app USING ({TENANT})")
    op.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.collection_changes TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.collection_changes TO kosmos_app")


def downgrade() -> None:
    """Drop both. Processes load what they have in memory again; no data is lost."""
    op.execute("DROP TABLE kosmos.collection_changes")
    op.execute("ALTER TABLE kosmos.collection_statistics DROP COLUMN state")
