"""Create the schema of release 0.1.0: tables, indexes, row-level security, grants.

Roles and the extension exist already (kosmos_rag/storage/provision.py): they belong to the server, not to the history
of one database. Functions come from kosmos_rag/storage/sql/functions, those that policies call before this revision.
It runs as kosmos_owner.

A published revision is never edited (migrations/README.md): a change of the schema is a new revision.
"""

from alembic import op

revision = "0100"
down_revision = None
branch_labels = None
depends_on = None

# --- Documents -------------------------------------------------------------------------------------------------------

DOCUMENTS = """
CREATE TABLE kosmos.tenants (
    tenant_id uuid PRIMARY KEY,
    name text NOT NULL,
    live_space_id uuid,
    created_at timestamptz NOT NULL
);

CREATE TABLE kosmos.embedding_spaces (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    model text NOT NULL,
    dimensions integer NOT NULL CHECK (dimensions BETWEEN 1 AND 4000),
    normalized boolean NOT NULL,
    probe halfvec NOT NULL,
    created_at timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('building', 'ready', 'dropping')),
    live_until timestamptz,
    truncated_tokens bigint NOT NULL,
    query_prefix text NOT NULL DEFAULT '',
    passage_prefix text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, id)
);

ALTER TABLE kosmos.tenants ADD CONSTRAINT tenants_live_space_fkey
    FOREIGN KEY (tenant_id, live_space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id);

-- The content is text and not jsonb: jsonb does not keep the order of keys, and the order of signals has a meaning.
CREATE TABLE kosmos.collection_presets (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text NOT NULL,
    content text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);

CREATE TABLE kosmos.documents (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    source text NOT NULL,
    title text NOT NULL,
    media_type text NOT NULL,
    language text NOT NULL,
    metadata jsonb NOT NULL,
    acl text[] NOT NULL,
    version integer NOT NULL CHECK (version >= 1),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    collection text NOT NULL,
    source_etag text,
    notes jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX documents_collection ON kosmos.documents (tenant_id, collection);

CREATE TABLE kosmos.document_versions (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    number integer NOT NULL CHECK (number >= 1),
    content_hash text NOT NULL,
    fingerprint text NOT NULL,
    bytes bigint NOT NULL,
    text text NOT NULL,
    pages integer[] NOT NULL,
    chunks integer NOT NULL,
    acl text[] NOT NULL,
    created_at timestamptz NOT NULL,
    boxes bytea NOT NULL DEFAULT '',
    original bytea STORAGE EXTERNAL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, document_id, number),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE kosmos.chunks (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    version_id uuid NOT NULL,
    chunk_index integer NOT NULL,
    start_offset integer NOT NULL,
    end_offset integer NOT NULL CHECK (end_offset > start_offset),
    line_start integer NOT NULL,
    line_end integer NOT NULL,
    page_start integer,
    page_end integer,
    section text[] NOT NULL,
    text text NOT NULL,
    tokens integer NOT NULL,
    chunker text NOT NULL,
    fallback_reason text,
    acl text[] NOT NULL,
    tsv tsvector NOT NULL,
    length integer NOT NULL,
    collection text NOT NULL,
    sequence integer NOT NULL,
    parent_start integer,
    parent_end integer,
    table_context text[] NOT NULL DEFAULT '{}',
    place_spans jsonb NOT NULL DEFAULT '[]',
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, version_id, chunk_index),
    UNIQUE (tenant_id, collection, sequence),
    FOREIGN KEY (tenant_id, version_id) REFERENCES kosmos.document_versions (tenant_id, id) ON DELETE CASCADE,
    CONSTRAINT chunks_parent_check CHECK (
        (parent_start IS NULL) = (parent_end IS NULL) AND parent_start <= start_offset AND parent_end >= end_offset)
);

CREATE TABLE kosmos.embeddings (
    tenant_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    space_id uuid NOT NULL,
    acl text[] NOT NULL,
    embedding halfvec NOT NULL,
    collection text NOT NULL,
    text_hash uuid,
    PRIMARY KEY (tenant_id, chunk_id, space_id),
    FOREIGN KEY (tenant_id, chunk_id) REFERENCES kosmos.chunks (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id) ON DELETE RESTRICT
);
CREATE INDEX embeddings_text_hash ON kosmos.embeddings (tenant_id, space_id, text_hash);
-- A scan of TOASTed vectors is seven times slower than a scan of vectors kept in the row.
ALTER TABLE kosmos.embeddings ALTER COLUMN embedding SET STORAGE PLAIN;

-- Hashes of values of metadata, and of principals: an index that row-level security lets a query use. The operators of
-- jsonb and of arrays are not leakproof.
CREATE TABLE kosmos.filter_terms (
    tenant_id uuid NOT NULL,
    term bigint NOT NULL,
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    PRIMARY KEY (tenant_id, term, document_id),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents (tenant_id, id) ON DELETE CASCADE
);
CREATE INDEX filter_terms_document ON kosmos.filter_terms (tenant_id, document_id);
"""

# --- Indexes: lexical statistics, postings, the catalogue of indexes -------------------------------------------------

# `lexemes` and `unsegmented_terms` have no foreign key to the tenant: their rows are written under the lock on the row
# of `collection_statistics`, which has one, and a check of each row costs a fifth of a publication.
INDEXES = """
CREATE TABLE kosmos.collection_statistics (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    chunks bigint NOT NULL CHECK (chunks >= 0),
    length bigint NOT NULL CHECK (length >= 0),
    next_lexeme_id integer NOT NULL,
    next_sequence integer NOT NULL,
    epoch bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);

CREATE TABLE kosmos.acl_statistics (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    acl_hash uuid NOT NULL,
    acl text[] NOT NULL,
    chunks bigint NOT NULL,
    length bigint NOT NULL,
    languages text[] NOT NULL,
    epoch bigint NOT NULL,
    PRIMARY KEY (tenant_id, collection, acl_hash)
);

CREATE TABLE kosmos.lexemes (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    lexeme text COLLATE "C" NOT NULL,
    acl_hash uuid NOT NULL,
    acl text[] NOT NULL,
    id integer NOT NULL,
    chunks integer NOT NULL CHECK (chunks > 0),
    PRIMARY KEY (tenant_id, collection, lexeme, acl_hash)
) WITH (fillfactor = 70);

CREATE TABLE kosmos.unsegmented_terms (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    sequence integer NOT NULL,
    chunk_id uuid NOT NULL,
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    length integer NOT NULL,
    pivot real NOT NULL,
    terms sparsevec NOT NULL,
    PRIMARY KEY (tenant_id, collection, sequence)
);

CREATE TABLE kosmos.indexes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('segment', 'ivfflat', 'hnsw')),
    state text NOT NULL CHECK (state IN ('building', 'ready', 'retired')),
    collection text COLLATE "C",
    space_id uuid,
    first_sequence integer,
    last_sequence integer,
    rows bigint NOT NULL,
    settings jsonb NOT NULL,
    health jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    checked_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces (tenant_id, id) ON DELETE RESTRICT,
    CHECK ((kind = 'segment') = (collection IS NOT NULL AND first_sequence IS NOT NULL AND last_sequence IS NOT NULL)),
    CHECK ((kind = 'segment') = (space_id IS NULL))
);

CREATE TABLE kosmos.segments (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    sequences bytea NOT NULL,
    lengths bytea NOT NULL,
    PRIMARY KEY (tenant_id, index_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.indexes (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE kosmos.postings (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    lexeme_id integer NOT NULL,
    offsets bytea NOT NULL,
    frequencies bytea NOT NULL,
    PRIMARY KEY (tenant_id, index_id, lexeme_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.segments (tenant_id, index_id) ON DELETE CASCADE
);
-- Packed numbers hardly compress, and a query reads them whole: no time is spent on compression.
ALTER TABLE kosmos.segments ALTER COLUMN sequences SET STORAGE EXTERNAL, ALTER COLUMN lengths SET STORAGE EXTERNAL;
ALTER TABLE kosmos.postings ALTER COLUMN offsets SET STORAGE EXTERNAL, ALTER COLUMN frequencies SET STORAGE EXTERNAL;

CREATE TABLE kosmos.index_events (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    index_id uuid NOT NULL,
    action text NOT NULL CHECK (action IN ('rebuilt', 'tuned', 'search_widened', 'dropped', 'skipped')),
    reason text NOT NULL,
    before jsonb NOT NULL,
    after jsonb NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX index_events_newest ON kosmos.index_events (tenant_id, at);
"""

# Without statistics of the tenant column the planner expects one tenant to have a two-hundredth of a table. With them,
# it expects one row of a tenant that came after the last ANALYZE, and a join then reads all its rows for each row.
PLANNER_STATISTICS = """
ALTER TABLE kosmos.documents ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.document_versions ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.chunks ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.embeddings ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN space_id SET STATISTICS 0;
ALTER TABLE kosmos.lexemes ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.unsegmented_terms ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.postings ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN index_id SET STATISTICS 0;
ALTER TABLE kosmos.filter_terms ALTER COLUMN tenant_id SET STATISTICS 0, ALTER COLUMN term SET STATISTICS 0,
                                ALTER COLUMN document_id SET STATISTICS 0;
ALTER TABLE kosmos.document_permissions ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.files ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.vector_stores ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.vector_store_files ALTER COLUMN tenant_id SET STATISTICS 0;
ALTER TABLE kosmos.file_batches ALTER COLUMN tenant_id SET STATISTICS 0;
"""

# --- The queue of the workers ----------------------------------------------------------------------------------------

# Jobs and sync runs have no foreign key: on a distributed server they are local tables, and a reference from a local
# table to a distributed one does not cascade.
QUEUE = """
CREATE TABLE kosmos.jobs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
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
    requeue boolean NOT NULL,
    token uuid,
    lease_until timestamptz,
    worker text,
    sync_run_ids uuid[] NOT NULL,
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

-- A key names a document or another subject of work, and has one unfinished job at most: no two workers can work on
-- one subject at once.
CREATE UNIQUE INDEX jobs_unfinished ON kosmos.jobs (tenant_id, key) WHERE state IN ('scheduled', 'queued', 'running');
CREATE INDEX jobs_queued ON kosmos.jobs (tenant_id, kind, priority DESC, id) WHERE state = 'queued';
CREATE INDEX jobs_dead ON kosmos.jobs (tenant_id, key) WHERE state IN ('dead', 'cancelled');
CREATE INDEX jobs_scheduled ON kosmos.jobs (run_at) WHERE state = 'scheduled';
CREATE INDEX jobs_running ON kosmos.jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_finished ON kosmos.jobs (finished_at) WHERE state IN ('done', 'dead', 'cancelled');

CREATE TABLE kosmos.sync_runs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    source jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('listing', 'working', 'finished', 'failed', 'cancelled')),
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
    cancelled integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX sync_runs_finished ON kosmos.sync_runs (finished_at);

CREATE TABLE kosmos.uploads (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    data bytea NOT NULL,
    created_at timestamptz NOT NULL,
    number integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id, number)
);
ALTER TABLE kosmos.uploads ALTER COLUMN data SET STORAGE EXTERNAL;
"""

# --- Permission feeds ------------------------------------------------------------------------------------------------

# `document_permissions` has no reference to its document, which may come later.
PERMISSIONS = """
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
"""

# --- Stored files and vector stores ----------------------------------------------------------------------------------

# The bytes of a file are in `uploads`, under the id of the file.
FILES = """
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
CREATE INDEX files_created_at ON kosmos.files (tenant_id, created_at, id);

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

# --- The audit log, feedback -----------------------------------------------------------------------------------------

# No foreign keys: the log outlives the documents and the tenant that it describes. Maintenance creates the partitions
# of the months; the default partitions take the rows of all other months.
AUDIT = """
CREATE SEQUENCE kosmos.audit_event_positions;

CREATE TABLE kosmos.audit_events (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    position bigint NOT NULL CHECK (position > 0),
    kind text NOT NULL CHECK (kind IN ('search', 'context', 'answer', 'query')),
    outcome text NOT NULL CHECK (outcome IN ('hits', 'none', 'refused')),
    collection text COLLATE "C",
    subject text,
    principals text[] NOT NULL,
    question text,
    question_sha256 text NOT NULL,
    search_query text,
    settings_hash text NOT NULL,
    cached boolean NOT NULL,
    milliseconds double precision NOT NULL,
    follows uuid,
    PRIMARY KEY (tenant_id, id, at)
) PARTITION BY RANGE (at);
CREATE INDEX audit_events_position ON kosmos.audit_events (tenant_id, position);
CREATE INDEX audit_events_failed ON kosmos.audit_events (tenant_id, at) WHERE outcome <> 'hits';
CREATE TABLE kosmos.audit_events_default PARTITION OF kosmos.audit_events DEFAULT;

CREATE TABLE kosmos.audit_passages (
    tenant_id uuid NOT NULL,
    event_id uuid NOT NULL,
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
    PRIMARY KEY (tenant_id, event_id, at, rank)
) PARTITION BY RANGE (at);
CREATE INDEX audit_passages_document ON kosmos.audit_passages (tenant_id, document_id, at);
CREATE INDEX audit_passages_source ON kosmos.audit_passages (tenant_id, source_hash, at);
CREATE TABLE kosmos.audit_passages_default PARTITION OF kosmos.audit_passages DEFAULT;

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

-- What was erased when, without what it was. Like the seals, a record outlives its tenant.
CREATE TABLE kosmos.erasures (
    tenant_id uuid NOT NULL,
    number integer NOT NULL CHECK (number > 0),
    at timestamptz NOT NULL,
    kind text NOT NULL CHECK (kind IN ('tenant', 'subject', 'source', 'metadata')),
    selector_sha256 text NOT NULL,
    erased jsonb NOT NULL,
    retained jsonb NOT NULL,
    sha256 text NOT NULL,
    PRIMARY KEY (tenant_id, number)
);

-- No reference to the audit event or to the chunk: the log is dropped by months, and a chunk goes with its version.
CREATE TABLE kosmos.feedback (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    subject text NOT NULL,
    collection text COLLATE "C",
    retrieval_id uuid,
    question text,
    question_sha256 text NOT NULL,
    rating text NOT NULL CHECK (rating IN ('up', 'down', 'click')),
    chunk_id uuid,
    source text,
    comment text,
    reason text CONSTRAINT ck_feedback_reason CHECK (reason IN ('wrong', 'incomplete', 'outdated', 'not_covered')),
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX feedback_down ON kosmos.feedback (tenant_id, at) WHERE rating = 'down';
"""

# --- The service -----------------------------------------------------------------------------------------------------

ACCESS = """
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
    default_collection text COLLATE "C",
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.idempotency_keys (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    request_sha256 text NOT NULL,
    job_id uuid,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
"""

# --- Measurements: evaluations, experiments, the recall monitor ------------------------------------------------------

MEASUREMENTS = """
CREATE TABLE kosmos.evaluations (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    label text NOT NULL,
    set_name text NOT NULL,
    set_sha256 text NOT NULL,
    collection text COLLATE "C",
    principals text[] NOT NULL,
    depth integer NOT NULL CHECK (depth > 0),
    questions integer NOT NULL CHECK (questions > 0),
    answered boolean NOT NULL,
    measures json NOT NULL,
    settings jsonb NOT NULL,
    settings_hash text NOT NULL,
    code_version text NOT NULL,
    index_state jsonb NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.evaluation_results (
    tenant_id uuid NOT NULL,
    evaluation_id uuid NOT NULL,
    question_id text COLLATE "C" NOT NULL,
    question text NOT NULL,
    judged jsonb NOT NULL,
    ranking text[] NOT NULL,
    measures json NOT NULL,
    timings_ms json NOT NULL,
    refused boolean,
    confidence double precision,
    PRIMARY KEY (tenant_id, evaluation_id, question_id),
    FOREIGN KEY (tenant_id, evaluation_id) REFERENCES kosmos.evaluations ON DELETE CASCADE
);

CREATE TABLE kosmos.experiments (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection text COLLATE "C",
    mode text NOT NULL CHECK (mode IN ('shadow', 'serve')),
    share double precision NOT NULL CHECK (share > 0 AND share <= 1),
    content text NOT NULL,
    started_at timestamptz NOT NULL,
    stopped_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);
CREATE UNIQUE INDEX experiments_running ON kosmos.experiments (tenant_id, collection)
       NULLS NOT DISTINCT WHERE stopped_at IS NULL;

CREATE TABLE kosmos.experiment_results (
    tenant_id uuid NOT NULL,
    experiment_id uuid NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    retrieval_id uuid,
    arm text NOT NULL CHECK (arm IN ('control', 'treatment')),
    requested integer NOT NULL,
    control_ms double precision,
    treatment_ms double precision,
    control_hits integer,
    treatment_hits integer,
    overlap double precision,
    rbo double precision,
    degraded boolean NOT NULL,
    error text,
    PRIMARY KEY (tenant_id, experiment_id, id),
    FOREIGN KEY (tenant_id, experiment_id) REFERENCES kosmos.experiments ON DELETE CASCADE
);
CREATE INDEX experiment_results_at ON kosmos.experiment_results (tenant_id, experiment_id, at);

-- Samples have no reference to a space, which may be dropped while they wait to be written. Runs outlive their indexes.
CREATE TABLE kosmos.monitor_samples (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    space_id uuid NOT NULL,
    collection text COLLATE "C",
    principals text[] NOT NULL,
    vector halfvec NOT NULL,
    question text,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.monitor_runs (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL CHECK (kind IN ('recall', 'questions', 'isolation')),
    state text NOT NULL CHECK (state IN ('ok', 'alarm', 'unknown')),
    reason text NOT NULL,
    index_id uuid,
    figures jsonb NOT NULL,
    scores real[] NOT NULL,
    milliseconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX monitor_runs_newest ON kosmos.monitor_runs (tenant_id, kind, at);
"""

# --- Row-level security and grants -----------------------------------------------------------------------------------

# One permissive policy for each command and role, without subqueries: a RESTRICTIVE policy turns permissive on Citus.
TENANT = "tenant_id = kosmos.current_tenant()"
# The acl is tested first: a row for others then costs no read of the setting. A row for everyone needs no parsing of
# the principals, which PostgreSQL would do for each row.
READABLE = (
    f"{TENANT} AND ('everyone' = ANY (acl) AND current_setting('kosmos.everyone', true) = 'on'"
    " OR acl && kosmos.current_principals())"
)

WITH_ACL = (
    "documents",
    "document_versions",
    "chunks",
    "embeddings",
    "lexemes",
    "acl_statistics",
    "unsegmented_terms",
    "filter_terms",
    "files",
)
"""Tables whose rows carry the principals that may read them."""
WITHOUT_ACL = (
    "tenants",
    "embedding_spaces",
    "collection_presets",
    "collection_statistics",
    "indexes",
    "segments",
    "postings",
    "api_keys",
    "experiments",
    "vector_stores",
    "vector_store_files",
    "file_batches",
)
"""Tables of which kosmos_app reads all rows of the tenant."""
WORKER_ONLY = (
    "uploads",
    "idempotency_keys",
    "evaluations",
    "evaluation_results",
    "experiment_results",
    "feedback",
    "monitor_runs",
    "index_events",
    "permission_feeds",
)
"""Tables that kosmos_app has no grant to read: their rows are of other readers, or their readers are not known yet."""
ACROSS_TENANTS = ("jobs", "sync_runs")
"""The queue: a worker chooses between the jobs of all tenants."""
APPEND_ONLY = ("audit_events", "audit_passages")
"""The audit log: kosmos_app appends, kosmos_worker reads, and neither may change a row."""
CHAINS = ("audit_seals", "erasures")
"""Chains of hashes: kosmos_worker appends and reads, and may change no row."""


def enable_rls(table: str) -> None:
    """Enable row-level security, for the owner too."""
    op.execute(f"ALTER TABLE kosmos.{table} ENABLE ROW LEVEL SECURITY")
    op.execute(f"ALTER TABLE kosmos.{table} FORCE ROW LEVEL SECURITY")


def create_policy(table: str, name: str, command: str, role: str, *, using: str = "", check: str = "") -> None:
    """Create one permissive policy."""
    conditions = (f"USING ({using}) " if using else "") + (f"WITH CHECK ({check})" if check else "")
    op.execute(f"CREATE POLICY {name} ON kosmos.{table} FOR {command} TO {role} {conditions}")


def let_worker_write(table: str, *, policy: str = "worker_all", rows: str = TENANT) -> None:
    """Let kosmos_worker read and write the rows that the condition selects."""
    enable_rls(table)
    create_policy(table, policy, "ALL", "kosmos_worker", using=rows, check=rows)
    op.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON kosmos.{table} TO kosmos_worker")


def secure_tables() -> None:
    """Secure all tables but the audit log."""
    for table in (*WITH_ACL, *WITHOUT_ACL, *WORKER_ONLY, "document_permissions", "monitor_samples"):
        let_worker_write(table)
    for table in ACROSS_TENANTS:
        let_worker_write(table, policy="worker_queue", rows="true")
    # kosmos_app has no grant on the permissions of feeds: readers have the acl in the documents.
    for table in (*WITH_ACL, "document_permissions"):
        create_policy(table, "app_read", "SELECT", "kosmos_app", using=READABLE)
    for table in (*WITHOUT_ACL, *WORKER_ONLY, *ACROSS_TENANTS):
        create_policy(table, "app_read", "SELECT", "kosmos_app", using=TENANT)
    for table in (*WITH_ACL, *WITHOUT_ACL, *ACROSS_TENANTS):
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_app")
    # kosmos_app adds samples and reads none: they are questions of other readers.
    create_policy("monitor_samples", "app_append", "INSERT", "kosmos_app", check=TENANT)
    op.execute("GRANT INSERT ON kosmos.monitor_samples TO kosmos_app")


def secure_audit_log() -> None:
    """Make the log append-only. A partition without a policy of its own shows no row to a query past its parent."""
    for table in APPEND_ONLY:
        enable_rls(table)
        enable_rls(f"{table}_default")
        expired = "at < kosmos.audit_expired_before()"
        create_policy(f"{table}_default", "owner_expire", "ALL", "kosmos_owner", using=expired)
        create_policy(table, "app_append", "INSERT", "kosmos_app", check=TENANT)
        op.execute(f"GRANT INSERT ON kosmos.{table} TO kosmos_app")
    for table in CHAINS:
        enable_rls(table)
        create_policy(table, "worker_append", "INSERT", "kosmos_worker", check=TENANT)
        op.execute(f"GRANT INSERT ON kosmos.{table} TO kosmos_worker")
    for table in (*APPEND_ONLY, *CHAINS):
        create_policy(table, "worker_read", "SELECT", "kosmos_worker", using=TENANT)
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_worker")
    op.execute("GRANT USAGE ON SEQUENCE kosmos.audit_event_positions TO kosmos_app")
    op.execute("GRANT SELECT ON SEQUENCE kosmos.audit_event_positions TO kosmos_worker")


def upgrade() -> None:
    """Create everything but the functions."""
    op.execute("GRANT USAGE ON SCHEMA kosmos TO kosmos_app, kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.alembic_version TO kosmos_app, kosmos_worker")
    for statements in (DOCUMENTS, INDEXES, QUEUE, PERMISSIONS, FILES, AUDIT, ACCESS, MEASUREMENTS, PLANNER_STATISTICS):
        op.execute(statements)
    secure_tables()
    secure_audit_log()


def downgrade() -> None:
    """Drop everything with all data. Partitions and vector indexes go with their tables."""
    op.execute("ALTER TABLE kosmos.tenants DROP CONSTRAINT tenants_live_space_fkey")
    for table in (
        *("monitor_samples", "monitor_runs", "experiment_results", "experiments", "evaluation_results", "evaluations"),
        *("idempotency_keys", "api_keys", "feedback", "erasures", "audit_seals", "audit_passages", "audit_events"),
        *("file_batches", "vector_store_files", "vector_stores", "files", "document_permissions", "permission_feeds"),
        *("uploads", "sync_runs", "jobs", "index_events", "postings", "segments", "indexes", "unsegmented_terms"),
        *("lexemes", "acl_statistics", "collection_statistics", "filter_terms", "embeddings", "chunks"),
        *("document_versions", "documents", "collection_presets", "embedding_spaces", "tenants"),
    ):
        op.execute(f"DROP TABLE kosmos.{table}")
    op.execute("DROP SEQUENCE kosmos.audit_event_positions")
    op.execute("REVOKE SELECT ON kosmos.alembic_version FROM kosmos_app, kosmos_worker")
    op.execute("REVOKE USAGE ON SCHEMA kosmos FROM kosmos_app, kosmos_worker")
