"""Jobs and runs of the ingestion workers, uploads, marks of sources, and spaces that are built beside the live one."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# Frozen here on purpose: a released revision must not change when the code does. Jobs and runs carry no foreign key: on
# a distributed server they are local tables, and a reference from those to a distributed one does not cascade.
TABLES = """
CREATE TABLE kosmos.jobs (
    tenant_id uuid NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    tenant text NOT NULL,
    collection text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key text COLLATE "C" NOT NULL,
    payload jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('scheduled', 'queued', 'running', 'done', 'dead', 'cancelled')),
    priority integer NOT NULL,
    run_at timestamptz NOT NULL,
    every_s double precision CHECK (every_s > 0),
    attempt integer NOT NULL,
    lost integer NOT NULL,
    again boolean NOT NULL,
    token uuid,
    lease_until timestamptz,
    worker text,
    runs uuid[] NOT NULL,
    outcome text,
    code text,
    error text,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CHECK ((state = 'running') = (token IS NOT NULL)),
    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CHECK ((state IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

-- A document, or whatever else a key names, has one unfinished job at most: two can never be worked on at once.
CREATE UNIQUE INDEX jobs_unfinished ON kosmos.jobs (tenant_id, key) WHERE state IN ('scheduled', 'queued', 'running');
CREATE INDEX jobs_queued ON kosmos.jobs (tenant_id, kind, priority DESC, id) WHERE state = 'queued';
CREATE INDEX jobs_dead ON kosmos.jobs (tenant_id, key) WHERE state IN ('dead', 'cancelled');
CREATE INDEX jobs_scheduled ON kosmos.jobs (run_at) WHERE state = 'scheduled';
CREATE INDEX jobs_running ON kosmos.jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_finished ON kosmos.jobs (finished_at) WHERE state IN ('done', 'dead', 'cancelled');

CREATE TABLE kosmos.runs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    source jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('listing', 'working', 'finished', 'failed')),
    seen integer NOT NULL,
    new integer NOT NULL,
    changed integer NOT NULL,
    unchanged integer NOT NULL,
    removed integer NOT NULL,
    failed integer NOT NULL,
    chunks bigint NOT NULL,
    failures jsonb NOT NULL,
    error text,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX runs_finished ON kosmos.runs (finished_at);

CREATE TABLE kosmos.uploads (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    data bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE kosmos.uploads ALTER COLUMN data SET STORAGE EXTERNAL;
"""

# Rows of these are written under the lock on their corpus, which refers to the tenant: a check of its own for each
# row costs a fifth of a publication.
REFERENCES = """
ALTER TABLE kosmos.lexemes DROP CONSTRAINT lexemes_tenant_id_fkey;
ALTER TABLE kosmos.lexical_tail DROP CONSTRAINT lexical_tail_tenant_id_fkey;
"""

COLUMNS = """
ALTER TABLE kosmos.documents ADD COLUMN mark text;
ALTER TABLE kosmos.embeddings ADD COLUMN text_hash uuid;
CREATE INDEX embeddings_text_hash ON kosmos.embeddings (tenant_id, space_id, text_hash);
ALTER TABLE kosmos.embedding_spaces
    ADD COLUMN state text NOT NULL DEFAULT 'ready' CHECK (state IN ('building', 'ready', 'dropping')),
    ADD COLUMN live_until timestamptz,
    ADD COLUMN truncated_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE kosmos.embedding_spaces ALTER COLUMN state DROP DEFAULT, ALTER COLUMN truncated_tokens DROP DEFAULT;
"""

# Of spaces that are being built or dropped: what refers to them goes before they do.
INCOMPLETE = """
DELETE FROM kosmos.indexes i
 USING kosmos.embedding_spaces s
 WHERE s.tenant_id = i.tenant_id AND s.id = i.space_id AND s.state <> 'ready';
DELETE FROM kosmos.embeddings e
 USING kosmos.embedding_spaces s
 WHERE s.tenant_id = e.tenant_id AND s.id = e.space_id AND s.state <> 'ready';
"""


def secure(table: str, *, policy: str, condition: str) -> None:
    """One permissive policy a command and role, without subqueries: a RESTRICTIVE one turns permissive on Citus."""
    op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
    op.execute(f"CREATE POLICY app_read ON kosmos.{table} FOR SELECT TO kosmos_app USING (tenant_id = kosmos.tenant())")
    op.execute(
        f"CREATE POLICY {policy} ON kosmos.{table} FOR ALL TO kosmos_worker "
        f"USING ({condition}) WITH CHECK ({condition})"
    )
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def upgrade() -> None:
    """Create the tables and columns. Workers see the jobs of all tenants: they choose whose turn it is."""
    op.execute(TABLES)
    op.execute(COLUMNS)
    op.execute(REFERENCES)
    for table in ("jobs", "runs"):
        secure(table, policy="worker_queue", condition="true")
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_app")
    # The app role may not read these: their readers are known only when they have become documents.
    secure("uploads", policy="worker_all", condition="tenant_id = kosmos.tenant()")


def downgrade() -> None:
    """Drop them. Spaces that are being built or dropped are of no use without the column that says so."""
    of_spaces = ("indexes", "embeddings", "embedding_spaces")
    for table in of_spaces:
        op.execute(f"ALTER TABLE kosmos.{table} NO FORCE ROW LEVEL SECURITY")
    op.execute(INCOMPLETE)
    op.execute("DELETE FROM kosmos.embedding_spaces WHERE state <> 'ready'")
    for table in of_spaces:
        op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")
    for column in ("state", "live_until", "truncated_tokens"):
        op.execute(f"ALTER TABLE kosmos.embedding_spaces DROP COLUMN {column}")
    op.execute("DROP INDEX kosmos.embeddings_text_hash")
    op.execute("ALTER TABLE kosmos.embeddings DROP COLUMN text_hash")
    op.execute("ALTER TABLE kosmos.documents DROP COLUMN mark")
    for table in ("lexemes", "lexical_tail"):
        op.execute(
            f"ALTER TABLE kosmos.{table} ADD FOREIGN KEY (tenant_id) REFERENCES kosmos.tenants ON DELETE CASCADE"
        )
    for table in ("uploads", "runs", "jobs"):
        op.execute(f"DROP TABLE kosmos.{table}")
