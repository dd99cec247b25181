"""Create the whole schema: tables, indexes, functions, row-level security, grants.

Roles and the extension exist already (kosmos_rag/storage/provision.py): they belong to the server, not to the history
of one database. This revision runs as kosmos_owner.

A published revision is never edited (migrations/README.md): a change of the schema is a new revision.
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# --- Functions that policies and statements call ---------------------------------------------------------------------

# A literal SET LOCAL and not set_config(): only the former reaches the workers of a distributed server.
CONTEXT_FUNCTIONS = """
CREATE FUNCTION kosmos.current_tenant() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT NULLIF(current_setting('kosmos.tenant', true), '')::uuid $$;

CREATE FUNCTION kosmos.current_principals() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT NULLIF(current_setting('kosmos.principals', true), '')::text[] $$;

CREATE FUNCTION kosmos.set_tenant_context(tenant uuid, principals text[]) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL kosmos.tenant = %L', tenant);
        EXECUTE format('SET LOCAL kosmos.principals = %L', principals);
    END
    $$;

-- Sets how far the transaction searches the vector indexes. An iterative scan goes on beyond that where row-level
-- security or a filter leaves too few rows.
CREATE FUNCTION kosmos.set_vector_search(probes integer, ef_search integer) RETURNS void LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    AS $$
    BEGIN
        EXECUTE format('SET LOCAL ivfflat.probes = %s', probes);
        EXECUTE format('SET LOCAL hnsw.ef_search = %s', ef_search);
        SET LOCAL ivfflat.iterative_scan = 'relaxed_order';
        SET LOCAL hnsw.iterative_scan = 'relaxed_order';
    END
    $$;

-- A constant that only the owner may replace: retention has removed what is older, and a seal need not find it.
CREATE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN NULL::timestamptz;
"""

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
    PRIMARY KEY (tenant_id, id)
);

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
"""

# Its first parameter is a row of a table, so this function comes after the table. Timestamps are text of one width:
# their order is the order of time. They are formatted only where the condition names them; the planner knows that, and
# formatting takes a third of the whole.
FILTER_FUNCTION = """
CREATE FUNCTION kosmos.matches_filter(document kosmos.documents, condition text, condition_values jsonb,
                                      sources text[], folders text[])
    RETURNS boolean LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT
        (cardinality(sources) = 0 OR document.source = ANY (sources) OR document.source LIKE ANY (folders))
        AND (condition IS NULL OR coalesce(jsonb_path_match(
            jsonb_build_object(
                'source', document.source, 'title', document.title, 'media_type', document.media_type,
                'language', document.language, 'collection', document.collection, 'acl', to_jsonb(document.acl),
                'created_at', CASE WHEN strpos(condition, '"created_at"') > 0 THEN
                    to_char(document.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'updated_at', CASE WHEN strpos(condition, '"updated_at"') > 0 THEN
                    to_char(document.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END,
                'metadata', document.metadata),
            condition::jsonpath, condition_values), false)) $$;
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
"""

# --- The queue of the workers ----------------------------------------------------------------------------------------

# Jobs and sync runs have no foreign key: on a distributed server they are local tables, and a reference from a local
# table to a distributed one does not cascade.
QUEUE = """
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
CREATE INDEX sync_runs_finished ON kosmos.sync_runs (finished_at);

CREATE TABLE kosmos.uploads (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    data bytea NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE kosmos.uploads ALTER COLUMN data SET STORAGE EXTERNAL;
"""

# Planning takes longer than claiming, so the function keeps its plan, whatever the values are. For a table of one page
# any plan is good, and a backlog may come at any moment: one call in a hundred makes the plan anew. The index of
# running jobs is full of finished ones until it is vacuumed: a plain scan marks them once and skips them, a bitmap scan
# visits all their rows each time. If the server crashes before a claim is on disk, the server does not know the token,
# and the lease check refuses it: no caller has to wait for the disk.
#
# Round robin by construction: tenants with the fewest running jobs come first, and equals come in random order, so no
# backlog of one tenant, however long, delays another by more than a round. Each tenant gets its share of the batch. A
# job whose worker was lost is claimed alone: if it takes the next worker down too, no other job is blamed.
CLAIM_FUNCTION = """
CREATE FUNCTION kosmos.claim_jobs(max_jobs integer, kinds text[], worker_name text, lease_s double precision)
RETURNS TABLE (tenant_id uuid, id bigint, tenant text, collection text, kind text, key text, payload jsonb, token uuid,
               attempt integer, lost integer, sync_run_ids uuid[], waited_s double precision)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET enable_bitmapscan = off AS $$
#variable_conflict use_column
BEGIN
    IF random() < 0.01 THEN
        DISCARD PLANS;
    END IF;
    SET LOCAL synchronous_commit TO OFF;
    RETURN QUERY
    WITH RECURSIVE queued_tenants AS (
        (SELECT j.tenant_id FROM kosmos.jobs j WHERE j.state = 'queued' ORDER BY j.tenant_id LIMIT 1)
        UNION ALL
        SELECT (SELECT j.tenant_id FROM kosmos.jobs j
                 WHERE j.state = 'queued' AND j.tenant_id > q.tenant_id
                 ORDER BY j.tenant_id LIMIT 1)
          FROM queued_tenants q
         WHERE q.tenant_id IS NOT NULL
    ), running AS (
        SELECT r.tenant_id, count(*) AS jobs FROM kosmos.jobs r WHERE r.state = 'running' GROUP BY r.tenant_id
    ), shares AS (
        SELECT q.tenant_id, k.kind, greatest(1, max_jobs / count(*) OVER ()) AS share
          FROM queued_tenants q
         CROSS JOIN unnest(kinds) AS k (kind)
          LEFT JOIN running r ON r.tenant_id = q.tenant_id
         WHERE q.tenant_id IS NOT NULL
           AND EXISTS (SELECT FROM kosmos.jobs j
                        WHERE j.tenant_id = q.tenant_id AND j.kind = k.kind AND j.state = 'queued' OFFSET 0)
         ORDER BY coalesce(r.jobs, 0), random()
    ), candidates AS MATERIALIZED (
        SELECT c.tenant_id, c.id, c.lost
          FROM shares s
         CROSS JOIN LATERAL (
               SELECT j.tenant_id, j.id, j.lost
                 FROM kosmos.jobs j
                WHERE j.tenant_id = s.tenant_id AND j.kind = s.kind AND j.state = 'queued'
                ORDER BY j.priority DESC, j.id
                LIMIT s.share
                  FOR UPDATE SKIP LOCKED) c
         LIMIT max_jobs
    ), claimed AS (
        SELECT n.tenant_id, n.id
          FROM (SELECT c.tenant_id, c.id, row_number() OVER (ROWS UNBOUNDED PRECEDING) AS number,
                       bool_or(c.lost > 0) OVER (ROWS UNBOUNDED PRECEDING) AS suspect
                  FROM candidates c) n
         WHERE n.number = 1 OR NOT n.suspect
    )
    UPDATE kosmos.jobs j
       SET state = 'running', token = gen_random_uuid(),
           lease_until = now() + make_interval(secs => claim_jobs.lease_s), attempt = j.attempt + 1,
           worker = worker_name, started_at = now(), finished_at = NULL
      FROM claimed c
     WHERE j.tenant_id = c.tenant_id AND j.id = c.id
    RETURNING j.tenant_id, j.id, j.tenant, j.collection, j.kind, j.key, j.payload, j.token, j.attempt, j.lost,
              j.sync_run_ids, extract(epoch FROM now() - j.run_at)::double precision;
END
$$
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
    kind text NOT NULL CHECK (kind IN ('search', 'context', 'answer')),
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
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.idempotency_keys (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    request_sha256 text NOT NULL,
    job_id bigint,
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
READABLE = f"{TENANT} AND acl && kosmos.current_principals()"

WITH_ACL = (
    "documents",
    "document_versions",
    "chunks",
    "embeddings",
    "lexemes",
    "acl_statistics",
    "unsegmented_terms",
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
)
"""Tables that kosmos_app has no grant to read: their rows are of other readers, or their readers are not known yet."""
ACROSS_TENANTS = ("jobs", "sync_runs")
"""The queue: a worker chooses between the jobs of all tenants."""
APPEND_ONLY = ("audit_events", "audit_passages")
"""The audit log: kosmos_app appends, kosmos_worker reads, and neither may change a row."""


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
    for table in (*WITH_ACL, *WITHOUT_ACL, *WORKER_ONLY, "monitor_samples"):
        let_worker_write(table)
    for table in ACROSS_TENANTS:
        let_worker_write(table, policy="worker_queue", rows="true")
    for table in WITH_ACL:
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
    enable_rls("audit_seals")
    create_policy("audit_seals", "worker_append", "INSERT", "kosmos_worker", check=TENANT)
    op.execute("GRANT INSERT ON kosmos.audit_seals TO kosmos_worker")
    for table in (*APPEND_ONLY, "audit_seals"):
        create_policy(table, "worker_read", "SELECT", "kosmos_worker", using=TENANT)
        op.execute(f"GRANT SELECT ON kosmos.{table} TO kosmos_worker")
    op.execute("GRANT USAGE ON SEQUENCE kosmos.audit_event_positions TO kosmos_app")
    op.execute("GRANT SELECT ON SEQUENCE kosmos.audit_event_positions TO kosmos_worker")


def upgrade() -> None:
    """Create everything. Functions run with the rights of their caller."""
    op.execute("GRANT USAGE ON SCHEMA kosmos TO kosmos_app, kosmos_worker")
    op.execute("GRANT SELECT ON kosmos.alembic_version TO kosmos_app, kosmos_worker")
    for statements in (
        CONTEXT_FUNCTIONS,
        DOCUMENTS,
        FILTER_FUNCTION,
        INDEXES,
        PLANNER_STATISTICS,
        QUEUE,
        CLAIM_FUNCTION,
        AUDIT,
        ACCESS,
        MEASUREMENTS,
    ):
        op.execute(statements)
    secure_tables()
    secure_audit_log()


def downgrade() -> None:
    """Drop everything with all data. Partitions and vector indexes go with their tables."""
    op.execute("ALTER TABLE kosmos.tenants DROP CONSTRAINT tenants_live_space_fkey")
    op.execute("DROP FUNCTION kosmos.claim_jobs(integer, text[], text, double precision)")
    op.execute("DROP FUNCTION kosmos.matches_filter(kosmos.documents, text, jsonb, text[], text[])")
    for table in (
        *("monitor_samples", "monitor_runs", "experiment_results", "experiments", "evaluation_results", "evaluations"),
        *("idempotency_keys", "api_keys", "feedback", "audit_seals", "audit_passages", "audit_events"),
        *("uploads", "sync_runs", "jobs", "index_events", "postings", "segments", "indexes", "unsegmented_terms"),
        *("lexemes", "acl_statistics", "collection_statistics", "embeddings", "chunks", "document_versions"),
        *("documents", "collection_presets", "embedding_spaces", "tenants"),
    ):
        op.execute(f"DROP TABLE kosmos.{table}")
    op.execute("DROP SEQUENCE kosmos.audit_event_positions")
    op.execute("REVOKE SELECT ON kosmos.alembic_version FROM kosmos_app, kosmos_worker")
    op.execute("REVOKE USAGE ON SCHEMA kosmos FROM kosmos_app, kosmos_worker")
    op.execute("DROP FUNCTION kosmos.audit_expired_before()")
    op.execute("DROP FUNCTION kosmos.set_vector_search(integer, integer)")
    op.execute("DROP FUNCTION kosmos.set_tenant_context(uuid, text[])")
    op.execute("DROP FUNCTION kosmos.current_principals()")
    op.execute("DROP FUNCTION kosmos.current_tenant()")
