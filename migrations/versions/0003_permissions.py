"""Create the readers of documents as permission feeds name them, also of documents that are not ingested yet.

A document of a feed has the acl of its row whatever its source says, and no readers where the feed no longer names it.

A downgrade loses the feeds; the documents keep the acl that they have.
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

# `document_permissions` has no reference to its document, which may come later.
TABLES = """
CREATE TABLE kosmos.permission_feeds (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, collection, name)
);

CREATE TABLE kosmos.document_permissions (
    tenant_id uuid NOT NULL,
    document_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    feed text COLLATE "C" NOT NULL,
    acl text[] NOT NULL,
    PRIMARY KEY (tenant_id, document_id),
    FOREIGN KEY (tenant_id, collection, feed) REFERENCES kosmos.permission_feeds (tenant_id, collection, name)
        ON DELETE CASCADE
);
ALTER TABLE kosmos.document_permissions ALTER COLUMN tenant_id SET STATISTICS 0;
"""


def upgrade() -> None:
    """Create both tables. Only kosmos_worker has a grant: readers have the acl in the documents."""
    op.execute(TABLES)
    for table, rows in {
        "permission_feeds": TENANT,
        "document_permissions": f"{TENANT} AND acl && kosmos.current_principals()",
    }.items():
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} TO kosmos_worker USING ({TENANT}) WITH CHECK ({TENANT})"
        )
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({rows})")
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def downgrade() -> None:
    """Drop both tables with all feeds."""
    op.execute("DROP TABLE kosmos.document_permissions")
    op.execute("DROP TABLE kosmos.permission_feeds")
