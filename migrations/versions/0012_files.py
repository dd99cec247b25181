"""Create stored files and vector stores: originals that wait for a collection, and collections with a name and files.

The bytes of a file are in `uploads`, under the id of the file. A downgrade deletes the rows. The documents that were
made from files stay; the bytes are uploads without a job then, which maintenance deletes.
"""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

TENANT = "tenant_id = kosmos.current_tenant()"

TABLES = """
CREATE TABLE kosmos.files (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    filename text NOT NULL,
    bytes bigint NOT NULL,
    purpose text NOT NULL,
    readers text[] NOT NULL,
    acl text[] NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.vector_stores (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text NOT NULL,
    description text,
    metadata jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);

CREATE TABLE kosmos.vector_store_files (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    file_id uuid NOT NULL,
    document_id uuid NOT NULL,
    job_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, file_id),
    FOREIGN KEY (tenant_id, file_id) REFERENCES kosmos.files (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX vector_store_files_document ON kosmos.vector_store_files (tenant_id, document_id);
CREATE INDEX vector_store_files_file ON kosmos.vector_store_files (tenant_id, file_id);

CREATE TABLE kosmos.file_batches (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    file_ids uuid[] NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
"""

READABLE = {
    "files": f"{TENANT} AND acl && kosmos.current_principals()",
    "vector_stores": TENANT,
    "vector_store_files": TENANT,
    "file_batches": TENANT,
}
"""Rows that a reader sees. The last two tables have ids only."""


def upgrade() -> None:
    """Create the tables with their policies."""
    op.execute(TABLES)
    for table, rows in READABLE.items():
        op.execute(f"ALTER TABLE kosmos.{table} ALTER COLUMN tenant_id SET STATISTICS 0")
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} TO kosmos_worker USING ({TENANT}) WITH CHECK ({TENANT})"
        )
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({rows})")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_app")
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def downgrade() -> None:
    """Drop the tables."""
    for table in reversed(READABLE):
        op.execute(f"DROP TABLE kosmos.{table}")
