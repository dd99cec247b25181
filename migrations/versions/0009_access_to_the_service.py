"""Keys to the service, and the uploads that it has taken: a request that is sent again makes no second job."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

TABLES = """
CREATE TABLE kosmos.api_keys (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'ingest', 'admin']),
    principals text[] NOT NULL,
    secret_sha256 text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.upload_requests (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    request_sha256 text NOT NULL,
    job_id bigint,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
"""

OWN = "tenant_id = kosmos.tenant()"


def upgrade() -> None:
    """Create the tables: who answers questions may read keys, and nothing of uploads; who writes has both."""
    op.execute(TABLES)
    for table in ("api_keys", "upload_requests"):
        op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING ({OWN})")
        op.execute(
            f"CREATE POLICY worker_all ON kosmos.{table} FOR ALL TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})"
        )
        op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.api_keys TO kosmos_app")


def downgrade() -> None:
    """Drop them: no key is good any more."""
    op.execute("DROP TABLE kosmos.upload_requests")
    op.execute("DROP TABLE kosmos.api_keys")
