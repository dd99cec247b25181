"""The log of retrievals, partitioned by month, and the seals over it: append-only for every role that serves."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# Frozen here on purpose: a released revision must not change when the code does. No table refers to another: the log
# outlives the documents and the tenant that it tells of. Maintenance makes the partitions of months; what belongs to
# none of them is kept in the default ones.
TABLES = """
CREATE SEQUENCE kosmos.retrieval_positions;

CREATE TABLE kosmos.retrievals (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    position bigint NOT NULL CHECK (position > 0),
    kind text NOT NULL CHECK (kind IN ('retrieve', 'context', 'answer')),
    outcome text NOT NULL CHECK (outcome IN ('hits', 'none', 'refused')),
    collection text COLLATE "C",
    subject text,
    principals text[] NOT NULL,
    question text,
    question_sha256 text NOT NULL,
    searched text,
    settings text NOT NULL,
    cached boolean NOT NULL,
    milliseconds double precision NOT NULL,
    follows uuid,
    PRIMARY KEY (tenant_id, id, at)
) PARTITION BY RANGE (at);
CREATE INDEX retrievals_position ON kosmos.retrievals (tenant_id, position);
CREATE INDEX retrievals_failed ON kosmos.retrievals (tenant_id, at) WHERE outcome <> 'hits';
CREATE TABLE kosmos.retrievals_default PARTITION OF kosmos.retrievals DEFAULT;

CREATE TABLE kosmos.retrieved_passages (
    tenant_id uuid NOT NULL,
    retrieval_id uuid NOT NULL,
    at timestamptz NOT NULL,
    rank integer NOT NULL,
    shown boolean NOT NULL,
    document_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    source text NOT NULL,
    source_hash uuid NOT NULL,
    chunk_ids uuid[] NOT NULL,
    score double precision NOT NULL,
    PRIMARY KEY (tenant_id, retrieval_id, at, rank)
) PARTITION BY RANGE (at);
CREATE INDEX retrieved_passages_document ON kosmos.retrieved_passages (tenant_id, document_id, at);
CREATE INDEX retrieved_passages_source ON kosmos.retrieved_passages (tenant_id, source_hash, at);
CREATE TABLE kosmos.retrieved_passages_default PARTITION OF kosmos.retrieved_passages DEFAULT;

CREATE TABLE kosmos.audit_seals (
    tenant_id uuid NOT NULL,
    number integer NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    month date NOT NULL,
    last_position bigint NOT NULL,
    rows bigint NOT NULL,
    rows_sha256 text NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (tenant_id, number)
);
"""

# A constant that only the owner may replace: retention has given up what is older, and a seal need not find it.
EXPIRED = """
CREATE FUNCTION kosmos.log_expired_before() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN NULL::timestamptz
"""

OWN = "tenant_id = kosmos.tenant()"


def protect(table: str) -> None:
    """Without a policy of its own, a partition shows nothing to who would read it past its parent."""
    op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")


def upgrade() -> None:
    """Create the tables. Who serves may append, who maintains may read and seal, and neither may change a row."""
    op.execute(TABLES)
    op.execute(EXPIRED)
    for table in ("retrievals", "retrieved_passages"):
        protect(table)
        protect(f"{table}_default")
        op.execute(
            f"CREATE POLICY owner_expire ON kosmos.{table}_default TO kosmos_owner "
            "USING (at < kosmos.log_expired_before())"
        )
        op.execute(f"CREATE POLICY app_append ON kosmos.{table} FOR INSERT TO kosmos_app WITH CHECK ({OWN})")
        op.execute(f"GRANT INSERT ON kosmos.{table} TO kosmos_app")
    protect("audit_seals")
    op.execute(f"CREATE POLICY worker_append ON kosmos.audit_seals FOR INSERT TO kosmos_worker WITH CHECK ({OWN})")
    op.execute("GRANT INSERT ON kosmos.audit_seals TO kosmos_worker")
    for table in ("retrievals", "retrieved_passages", "audit_seals"):
        op.execute(f"CREATE POLICY worker_read ON kosmos.{table} FOR SELECT TO kosmos_worker USING ({OWN})")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_worker")
    op.execute("GRANT USAGE ON SEQUENCE kosmos.retrieval_positions TO kosmos_app")
    op.execute("GRANT SELECT ON SEQUENCE kosmos.retrieval_positions TO kosmos_worker")


def downgrade() -> None:
    """Drop them: the log is gone."""
    for table in ("audit_seals", "retrieved_passages", "retrievals"):
        op.execute(f"DROP TABLE kosmos.{table}")
    op.execute("DROP FUNCTION kosmos.log_expired_before()")
    op.execute("DROP SEQUENCE kosmos.retrieval_positions")
