-- The tables that the migrations add up to. A test compares this file with a migrated database; nothing else runs it.
-- Policies and privileges are in kosmos_rag/storage/expected_catalog.py, functions in kosmos_rag/storage/sql/functions.
-- A default is for older code beside newer one: statements bind every value.

-- Tenants, their documents, and the settings of their collections.

CREATE TABLE kosmos.tenants (
    tenant_id uuid NOT NULL,
    name text NOT NULL,
    live_space_id uuid,  -- switching models is changing this one value
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id)
);

CREATE TABLE kosmos.embedding_spaces (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    model text NOT NULL,
    dimensions integer NOT NULL,
    normalized boolean NOT NULL,
    probe halfvec NOT NULL,  -- the vector of a fixed sentence: it differs between two models of one size
    created_at timestamptz NOT NULL,
    state text NOT NULL,  -- ready: has been live
    live_until timestamptz,  -- when another became live: the latest is what a rollback goes back to
    truncated_tokens bigint NOT NULL,  -- of chunks too long for the model, while it was filled
    query_prefix text NOT NULL DEFAULT '',  -- what the model puts before questions
    passage_prefix text NOT NULL DEFAULT '',  -- and before passages
    PRIMARY KEY (tenant_id, id),
    CHECK (dimensions BETWEEN 1 AND 4000),
    CHECK (state IN ('building', 'ready', 'dropping'))
);
ALTER TABLE kosmos.tenants ADD CONSTRAINT tenants_live_space_fkey
    FOREIGN KEY (tenant_id, live_space_id) REFERENCES kosmos.embedding_spaces;

CREATE TABLE kosmos.documents (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,  -- from tenant and source, so one source is one document without a second unique key
    source text NOT NULL,
    title text NOT NULL,
    media_type text NOT NULL,
    language text NOT NULL,  -- not regconfig: pg_upgrade refuses columns of that type
    metadata jsonb NOT NULL,
    acl text[] NOT NULL,
    version integer NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    collection text NOT NULL,
    source_etag text,  -- what the source said of it: an equal one means unchanged content
    notes jsonb NOT NULL DEFAULT '[]',  -- what of its file was guessed or could not be read
    file_id uuid,  -- of a part of a large file: the id that the whole has as one document
    PRIMARY KEY (tenant_id, id),
    CHECK (version >= 1)
);
CREATE INDEX documents_collection ON kosmos.documents (tenant_id, collection);
CREATE INDEX documents_parts ON kosmos.documents (tenant_id, collection, file_id) WHERE file_id IS NOT NULL;

CREATE TABLE kosmos.filter_terms (
    tenant_id uuid NOT NULL,
    term bigint NOT NULL,  -- hash of a value of metadata with its path, or of a principal
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    PRIMARY KEY (tenant_id, term, document_id),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents ON DELETE CASCADE
);
CREATE INDEX filter_terms_document ON kosmos.filter_terms (tenant_id, document_id);

CREATE TABLE kosmos.document_versions (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    number integer NOT NULL,
    content_hash text NOT NULL,
    fingerprint text NOT NULL,  -- of content and of everything that shapes its chunks: unchanged means equal here
    bytes bigint NOT NULL,
    text text NOT NULL,  -- citations point into it; a new model or chunker needs no second parse
    pages integer[] NOT NULL,
    chunks integer NOT NULL,
    acl text[] NOT NULL,
    created_at timestamptz NOT NULL,
    boxes bytea NOT NULL DEFAULT '\x',  -- places of the lines on their pages: seven int32 of each LineBox
    original bytea STORAGE EXTERNAL,  -- the file, where the settings keep it
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, document_id, number),
    CHECK (number >= 1),
    FOREIGN KEY (tenant_id, document_id) REFERENCES kosmos.documents ON DELETE CASCADE
);

CREATE TABLE kosmos.chunks (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    document_id uuid NOT NULL,
    version_id uuid NOT NULL,
    chunk_index integer NOT NULL,
    start_offset integer NOT NULL,
    end_offset integer NOT NULL,
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
    length integer NOT NULL,  -- lexemes with repetitions: the length in BM25
    collection text NOT NULL,
    sequence integer NOT NULL,  -- rises with each publication into the collection, and is never used again
    parent_start integer,  -- the span that is shown for it, where that is more than its own
    parent_end integer,
    table_context text[] NOT NULL DEFAULT '{}',  -- caption and names of columns of the table that it begins within
    place_spans jsonb NOT NULL DEFAULT '[]',  -- places of its text in the file: the fields of each PlaceSpan
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, version_id, chunk_index),
    UNIQUE (tenant_id, collection, sequence),
    CHECK (end_offset > start_offset),
    CONSTRAINT chunks_parent_check CHECK ((parent_start IS NULL) = (parent_end IS NULL)
        AND parent_start <= start_offset AND parent_end >= end_offset),
    FOREIGN KEY (tenant_id, version_id) REFERENCES kosmos.document_versions ON DELETE CASCADE
);

CREATE TABLE kosmos.embeddings (
    tenant_id uuid NOT NULL,
    chunk_id uuid NOT NULL,
    space_id uuid NOT NULL,
    acl text[] NOT NULL,
    embedding halfvec STORAGE PLAIN NOT NULL,
    collection text NOT NULL,
    text_hash uuid,  -- MD5 of what was embedded: the same text needs no second embedding
    -- chunk before space: the cascade from chunks looks up by (tenant_id, chunk_id).
    PRIMARY KEY (tenant_id, chunk_id, space_id),
    FOREIGN KEY (tenant_id, chunk_id) REFERENCES kosmos.chunks ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces ON DELETE RESTRICT
);
CREATE INDEX embeddings_text_hash ON kosmos.embeddings (tenant_id, space_id, text_hash);

-- Settings of a collection, complete: no file of a process can change them.
CREATE TABLE kosmos.collection_presets (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text NOT NULL,
    content text NOT NULL,  -- JSON; not JSONB, which does not keep the order of signals
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);

-- API keys of the service, and idempotency keys of its calls.

CREATE TABLE kosmos.api_keys (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text NOT NULL,  -- whose it is, for people and for the log
    scopes text[] NOT NULL,
    principals text[] NOT NULL,
    secret_sha256 text NOT NULL,  -- the secret has 256 random bits: nothing slower is needed
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    default_collection text COLLATE "C",  -- of requests that name none
    PRIMARY KEY (tenant_id, id),
    CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'ingest', 'operate', 'admin'])
);

-- Under the key that its client gave it: who sends it again gets the job that there is.
CREATE TABLE kosmos.idempotency_keys (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    key text COLLATE "C" NOT NULL,
    request_sha256 text NOT NULL,
    job_id uuid,  -- no reference: on a distributed server jobs are a local table
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);

-- Permission feeds, and the acl of each document that they name.

CREATE TABLE kosmos.permission_feeds (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,  -- incremented by each pass: an earlier pass that is still running stops
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, collection, name)
);

CREATE TABLE kosmos.document_permissions (
    tenant_id uuid NOT NULL,
    document_id uuid NOT NULL,  -- no reference: the document may come later
    collection text COLLATE "C" NOT NULL,
    feed text COLLATE "C" NOT NULL,
    acl text[] NOT NULL,  -- empty where the feed no longer names the document
    PRIMARY KEY (tenant_id, document_id),
    FOREIGN KEY (tenant_id, collection, feed) REFERENCES kosmos.permission_feeds ON DELETE CASCADE
);

-- Lexical statistics, postings, and the catalogue of indexes.

CREATE TABLE kosmos.collection_statistics (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    chunks bigint NOT NULL,
    length bigint NOT NULL,
    next_lexeme_id integer NOT NULL,
    next_sequence integer NOT NULL,
    epoch bigint NOT NULL,  -- number of the last change
    known_items jsonb,  -- how well each retriever finds questions made of the texts
    state uuid NOT NULL,  -- identity of the last change: random, never used again
    PRIMARY KEY (tenant_id, collection),
    CHECK (chunks >= 0),
    CHECK (length >= 0)
);

-- Which chunks each of the last changes has added, removed, moved or changed otherwise: processes follow it.
CREATE TABLE kosmos.collection_changes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    epoch bigint NOT NULL,
    state uuid NOT NULL,  -- of the collection after the change
    previous uuid NOT NULL,  -- of the collection before it
    sequences int4multirange,  -- of the chunks; null for too many of them
    PRIMARY KEY (tenant_id, collection, epoch)
);

-- Counts of the chunks with the same access control list: a search is scored with the counts that its reader may see.
CREATE TABLE kosmos.acl_statistics (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    acl_hash uuid NOT NULL,  -- hash of `acl`, which may be too long for a key
    acl text[] NOT NULL,
    chunks bigint NOT NULL,
    length bigint NOT NULL,
    languages text[] NOT NULL,  -- of the documents: a query is analysed in each language
    state uuid NOT NULL,  -- identity of the last change of these chunks or their documents: random, never used again
    PRIMARY KEY (tenant_id, collection, acl_hash)
);

-- No foreign key here and in `unsegmented_terms`: rows are written under the lock on `collection_statistics`, which has
-- one, and a check of each row costs a fifth of a publication.
CREATE TABLE kosmos.lexemes (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    lexeme text COLLATE "C" NOT NULL,
    acl_hash uuid NOT NULL,
    acl text[] NOT NULL,
    id integer NOT NULL,  -- one id for a lexeme in the collection, for all access control lists
    chunks integer NOT NULL,  -- document frequency: chunks with this acl that contain it
    PRIMARY KEY (tenant_id, collection, lexeme, acl_hash),
    CHECK (chunks > 0)
) WITH (fillfactor = 50);

-- Terms of chunks without a segment. A narrow table, because searches scan it.
CREATE TABLE kosmos.unsegmented_terms (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    sequence integer NOT NULL,
    chunk_id uuid NOT NULL,
    document_id uuid NOT NULL,
    acl text[] NOT NULL,
    length integer NOT NULL,
    pivot real NOT NULL,  -- the average length that `terms` was saturated with
    terms sparsevec NOT NULL,  -- lexeme id → saturated term frequency
    PRIMARY KEY (tenant_id, collection, sequence)
);

-- The catalogue of indexes: lexical segments and vector indexes, with their health.
CREATE TABLE kosmos.indexes (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    collection text COLLATE "C",  -- of a segment
    space_id uuid,  -- of a vector index
    first_sequence integer,
    last_sequence integer,  -- half open
    rows bigint NOT NULL,  -- when it was built
    settings jsonb NOT NULL,
    health jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    checked_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CHECK (kind IN ('segment', 'ivfflat', 'hnsw')),
    CHECK (state IN ('building', 'ready', 'retired')),
    CHECK ((kind = 'segment') = (collection IS NOT NULL AND first_sequence IS NOT NULL AND last_sequence IS NOT NULL)),
    CHECK ((kind = 'segment') = (space_id IS NULL)),
    FOREIGN KEY (tenant_id, space_id) REFERENCES kosmos.embedding_spaces ON DELETE RESTRICT
);

CREATE TABLE kosmos.segments (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    sequences bytea STORAGE EXTERNAL NOT NULL,  -- of its chunks: int32, ascending
    lengths bytea STORAGE EXTERNAL NOT NULL,  -- of its chunks: int32, in the same order
    PRIMARY KEY (tenant_id, index_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.indexes ON DELETE CASCADE
);

CREATE TABLE kosmos.postings (
    tenant_id uuid NOT NULL,
    index_id uuid NOT NULL,
    lexeme_id integer NOT NULL,
    offsets bytea STORAGE EXTERNAL NOT NULL,  -- of the chunks, within the segment: int32, ascending
    frequencies bytea STORAGE EXTERNAL NOT NULL,  -- uint8, in the same order: a tsvector counts no further
    PRIMARY KEY (tenant_id, index_id, lexeme_id),
    FOREIGN KEY (tenant_id, index_id) REFERENCES kosmos.segments ON DELETE CASCADE
);

-- The queue of the workers, sync runs and uploads.

-- No foreign keys: on a distributed server jobs and sync runs are local tables, whose references do not cascade.
CREATE TABLE kosmos.jobs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,  -- kosmos.new_job_id(): in the order of time
    tenant text NOT NULL,  -- name of the tenant
    collection text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    key text COLLATE "C" NOT NULL,  -- subject of the work: one unfinished job for each key
    payload jsonb NOT NULL,
    state text NOT NULL,
    priority integer NOT NULL,
    run_at timestamptz NOT NULL,
    every_s double precision,  -- interval of a periodic job
    attempt integer NOT NULL,
    lost integer NOT NULL,  -- number of expired leases: identifies jobs that kill their worker
    requeue boolean NOT NULL,  -- enqueued again while it was running
    token uuid,  -- fencing token: a worker with another one cannot finish the job
    lease_until timestamptz,
    worker text,
    sync_run_ids uuid[] NOT NULL,  -- sync runs whose counts wait for the outcome
    outcome text,
    code text,
    error text,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CHECK (state IN ('scheduled', 'queued', 'running', 'done', 'dead', 'cancelled')),
    CHECK (every_s > 0),
    CHECK ((state = 'running') = (token IS NOT NULL)),
    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CHECK ((state IN ('done', 'dead', 'cancelled')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE UNIQUE INDEX jobs_unfinished ON kosmos.jobs (tenant_id, key) WHERE state IN ('scheduled', 'queued', 'running');
CREATE INDEX jobs_queued ON kosmos.jobs (tenant_id, kind, priority DESC, id) WHERE state = 'queued';
CREATE INDEX jobs_dead ON kosmos.jobs (tenant_id, key) WHERE state IN ('dead', 'cancelled');
CREATE INDEX jobs_scheduled ON kosmos.jobs (run_at) WHERE state = 'scheduled';
CREATE INDEX jobs_running ON kosmos.jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_finished ON kosmos.jobs (finished_at) WHERE state IN ('done', 'dead', 'cancelled');

-- Counts of each sync of a source: seen = new + changed + unchanged + removed + failed + cancelled.
CREATE TABLE kosmos.sync_runs (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    source jsonb NOT NULL,
    state text NOT NULL,
    seen integer NOT NULL,
    new integer NOT NULL,
    changed integer NOT NULL,
    unchanged integer NOT NULL,
    removed integer NOT NULL,
    failed integer NOT NULL,
    chunks bigint NOT NULL,
    failures jsonb NOT NULL,  -- the first 100
    error text,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    cancelled integer NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, id),
    CHECK (state IN ('listing', 'working', 'finished', 'failed', 'cancelled'))
);
CREATE INDEX sync_runs_finished ON kosmos.sync_runs (finished_at);

-- Bytes that wait for their job.
CREATE TABLE kosmos.uploads (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    data bytea STORAGE EXTERNAL NOT NULL,
    created_at timestamptz NOT NULL,
    number integer NOT NULL DEFAULT 0,  -- position of the chunk in the upload
    PRIMARY KEY (tenant_id, id, number)
);

-- The audit log: events, their passages, and the seals over them.
--
-- No foreign keys: the log outlives documents and tenants. Both tables of the log are partitioned by month.

CREATE TABLE kosmos.audit_events (
    tenant_id uuid NOT NULL,
    id uuid NOT NULL,  -- its first 48 bits are `at` in milliseconds: ids are in the order of time
    at timestamptz NOT NULL,
    position bigint NOT NULL,  -- rises over all rows of a tenant: the order of the seals
    kind text NOT NULL,
    outcome text NOT NULL,
    collection text COLLATE "C",  -- null: all collections
    subject text,  -- the reader, as the caller names them
    principals text[] NOT NULL,
    question text,
    question_sha256 text NOT NULL,
    search_query text,  -- what was search_query for, where a conversation made it another question
    settings_hash text NOT NULL,  -- hash of the settings of the answer
    cached boolean NOT NULL,
    milliseconds double precision NOT NULL,
    follows uuid,  -- the record of the start of the same answer, if its end differs
    PRIMARY KEY (tenant_id, id, at),
    CHECK (position > 0),
    CHECK (kind IN ('search', 'context', 'answer', 'query')),
    CHECK (outcome IN ('hits', 'none', 'refused'))
) PARTITION BY RANGE (at);
CREATE INDEX audit_events_position ON kosmos.audit_events (tenant_id, "position");
CREATE INDEX audit_events_failed ON kosmos.audit_events (tenant_id, at) WHERE outcome <> 'hits';

-- One row for each passage: row-level security lets an index serve the equality that finds who saw a document.
CREATE TABLE kosmos.audit_passages (
    tenant_id uuid NOT NULL,
    event_id uuid NOT NULL,
    at timestamptz NOT NULL,
    rank integer NOT NULL,
    shown boolean NOT NULL,  -- false: a hit that the context left out
    document_id uuid NOT NULL,
    version_id uuid NOT NULL,
    version integer NOT NULL,
    source text NOT NULL,
    source_hash uuid NOT NULL,  -- MD5 of the source, which may be longer than an index takes
    chunk_ids uuid[] NOT NULL,
    score double precision NOT NULL,
    PRIMARY KEY (tenant_id, event_id, at, rank)
) PARTITION BY RANGE (at);
CREATE INDEX audit_passages_document ON kosmos.audit_passages (tenant_id, document_id, at);
CREATE INDEX audit_passages_source ON kosmos.audit_passages (tenant_id, source_hash, at);

-- A seal covers the rows after the previous seal up to a position, all of one month. The seals form a hash chain.
CREATE TABLE kosmos.audit_seals (
    tenant_id uuid NOT NULL,
    number integer NOT NULL,
    at timestamptz NOT NULL,
    month date NOT NULL,
    last_position bigint NOT NULL,
    rows bigint NOT NULL,
    rows_sha256 text NOT NULL,
    sha256 text NOT NULL,  -- of all columns above and of the previous seal
    PRIMARY KEY (tenant_id, number),
    CHECK (number > 0)
);

-- The records of erasures. No foreign key: a record outlives its tenant.

CREATE TABLE kosmos.erasures (
    tenant_id uuid NOT NULL,
    number integer NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    selector_sha256 text NOT NULL,  -- a record must not repeat the name that was erased
    erased jsonb NOT NULL,  -- rows by table
    retained jsonb NOT NULL,  -- rows and end of retention by table
    sha256 text NOT NULL,  -- of all columns above and of the previous record
    PRIMARY KEY (tenant_id, number),
    CHECK (number > 0),
    CHECK (kind IN ('tenant', 'subject', 'source', 'metadata'))
);

-- Events of documents and sources, for subscribers.

-- Its row is locked from the record of an event to the commit: sequences are in the order of commits.
CREATE TABLE kosmos.event_streams (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    recording boolean NOT NULL,
    last_sequence bigint NOT NULL,
    PRIMARY KEY (tenant_id),
    CHECK (last_sequence >= 0)
);

CREATE TABLE kosmos.events (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    sequence bigint NOT NULL,  -- without gaps but that of a pause
    at timestamptz NOT NULL,
    type text NOT NULL,
    collection text COLLATE "C" NOT NULL,
    data jsonb NOT NULL,
    PRIMARY KEY (tenant_id, sequence)
);

-- Subscribers to the events of a tenant.

-- Their secrets are derived from a key of the settings: no row has one.
CREATE TABLE kosmos.webhook_subscribers (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    url text NOT NULL,
    types text[] NOT NULL,  -- empty for all
    collections text[] NOT NULL,  -- empty for all
    state text NOT NULL,
    reason text,  -- of a stop
    position bigint NOT NULL,  -- sequence of the last event that is delivered, or needs no delivery
    attempts integer NOT NULL,  -- answered ones, of the event after the position
    failures integer NOT NULL,  -- consecutive ones: they decide the next pause
    error text,
    failing_since timestamptz,
    next_attempt_at timestamptz,
    delivered_at timestamptz,
    secret_version integer NOT NULL,
    rotated_at timestamptz,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name),
    CHECK (state IN ('active', 'paused', 'stopped')),
    CHECK (position >= 0)
);

-- The event itself is in `events`, so that an erasure reaches its names.
CREATE TABLE kosmos.webhook_dead_letters (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    subscriber_id uuid NOT NULL,
    sequence bigint NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    failed_at timestamptz NOT NULL,
    redeliver boolean NOT NULL,  -- waits to be sent again
    PRIMARY KEY (tenant_id, subscriber_id, sequence),
    FOREIGN KEY (tenant_id, subscriber_id) REFERENCES kosmos.webhook_subscribers ON DELETE CASCADE
);

-- Stored files, vector stores, and which files are in which of them.

-- The bytes are in `uploads`, under the same id.
CREATE TABLE kosmos.files (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    filename text NOT NULL,
    bytes bigint NOT NULL,
    purpose text NOT NULL,
    readers text[] NOT NULL,  -- acl of the documents that are made from it
    acl text[] NOT NULL,  -- who sees the file itself: its uploader, administrators, and named readers
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX files_created_at ON kosmos.files (tenant_id, created_at, id);

-- What a collection has as a vector store. A collection without a row is one too, under its own name.
CREATE TABLE kosmos.vector_stores (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL,
    name text NOT NULL,
    description text,
    metadata jsonb NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection)
);

-- No reference to the document, which a job makes later, nor to the job, which is in a local table.
CREATE TABLE kosmos.vector_store_files (
    tenant_id uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    file_id uuid NOT NULL,
    document_id uuid NOT NULL,
    job_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, collection, file_id),
    FOREIGN KEY (tenant_id, file_id) REFERENCES kosmos.files ON DELETE CASCADE
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

-- Evaluations of retrieval, and their results by question.

CREATE TABLE kosmos.evaluations (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    label text NOT NULL,  -- of the configuration, for people
    set_name text NOT NULL,
    set_sha256 text NOT NULL,  -- of questions and judgements: two with an equal one can be compared
    collection text COLLATE "C",  -- null: all of them were asked
    principals text[] NOT NULL,
    depth integer NOT NULL,  -- hits that each question asked for
    questions integer NOT NULL,
    answered boolean NOT NULL,  -- whether answers were made, and not passages alone
    measures json NOT NULL,  -- means over the questions; not JSONB, which does not keep the order
    settings jsonb NOT NULL,  -- `rag`, whole
    settings_hash text NOT NULL,
    code_version text NOT NULL,
    index_state jsonb NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CHECK (depth > 0),
    CHECK (questions > 0)
);

CREATE TABLE kosmos.evaluation_results (
    tenant_id uuid NOT NULL,
    evaluation_id uuid NOT NULL,
    question_id text COLLATE "C" NOT NULL,
    question text NOT NULL,
    judged jsonb NOT NULL,  -- what answers it, with grades; empty where nothing does
    ranking text[] NOT NULL,  -- what was found, in the names of `judged` where it is of those
    measures json NOT NULL,
    timings_ms json NOT NULL,  -- by stage
    refused boolean,  -- null: no answer was made
    confidence double precision,
    PRIMARY KEY (tenant_id, evaluation_id, question_id),
    FOREIGN KEY (tenant_id, evaluation_id) REFERENCES kosmos.evaluations ON DELETE CASCADE
);

-- Questions with a location of their answer, which a person has accepted or rejected.

CREATE TABLE kosmos.judged_questions (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,  -- follows from collection, question and location
    at timestamptz NOT NULL,
    judgement text NOT NULL,  -- open: the decision was withdrawn
    judge text,  -- who has decided; null: not named, or erased
    collection text COLLATE "C",  -- null: all of them were asked
    question text NOT NULL,
    question_id text COLLATE "C" NOT NULL,  -- the id in results of evaluations
    source text,  -- null: nothing answers the question
    section text,
    line_start integer,
    line_end integer,
    principal text NOT NULL,  -- what a reader needs to see the document
    subjects text[] NOT NULL,  -- readers whose feedback it is from
    ups integer NOT NULL,
    downs integer NOT NULL,
    clicks integer NOT NULL,
    last_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CHECK (judgement IN ('accepted', 'rejected', 'open'))
);

-- Experiments, and the results of their questions.

CREATE TABLE kosmos.experiments (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    name text COLLATE "C" NOT NULL,
    collection text COLLATE "C",  -- null: of questions over all of them
    mode text NOT NULL,
    share double precision NOT NULL,
    content text NOT NULL,  -- JSON; not JSONB, which does not keep the order of signals
    started_at timestamptz NOT NULL,
    stopped_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name),
    CHECK (mode IN ('shadow', 'serve')),
    CHECK (share > 0 AND share <= 1)
);
-- One at a time for the same questions: with two, the cause of a difference would be unknown.
CREATE UNIQUE INDEX experiments_running ON kosmos.experiments (tenant_id, collection) NULLS NOT DISTINCT
    WHERE stopped_at IS NULL;

-- No text, and no id of a reader: what was asked by whom is in the log, where one is kept.
CREATE TABLE kosmos.experiment_results (
    tenant_id uuid NOT NULL,
    experiment_id uuid NOT NULL,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    retrieval_id uuid,  -- its record in the log; no reference: the log is referred to by nothing
    arm text NOT NULL,  -- which configuration was served
    requested integer NOT NULL,
    -- Of both that ran, without the embedding: the second finds the vector of the first.
    control_ms double precision,  -- null: it did not run, or its result came from the cache
    treatment_ms double precision,
    control_hits integer,  -- null: it did not run
    treatment_hits integer,
    overlap double precision,  -- null: only one of them ran
    rbo double precision,
    degraded boolean NOT NULL,  -- a stage of one of them could not run in time, or at all
    error text,  -- the type of the error that the second one ended with
    PRIMARY KEY (tenant_id, experiment_id, id),
    CHECK (arm IN ('control', 'treatment')),
    FOREIGN KEY (tenant_id, experiment_id) REFERENCES kosmos.experiments ON DELETE CASCADE
);
CREATE INDEX experiment_results_at ON kosmos.experiment_results (tenant_id, experiment_id, at);

-- The recall monitor: samples of searches, measurements and index events.

CREATE TABLE kosmos.monitor_samples (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,  -- one of a bounded number of places: so many samples there are at most
    at timestamptz NOT NULL,
    space_id uuid NOT NULL,  -- no reference: a space may be dropped while its samples wait to be written
    collection text COLLATE "C",  -- null: all of them were asked
    principals text[] NOT NULL,  -- of the reader: it is asked again as them
    vector halfvec NOT NULL,
    question text,  -- null unless a setting asks for it
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE kosmos.monitor_runs (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    index_id uuid,  -- no reference: a run outlives the index that it measured
    figures jsonb NOT NULL,
    scores real[] NOT NULL,  -- of the samples, ascending: what later ones are compared with
    milliseconds double precision NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CHECK (kind IN ('recall', 'questions', 'isolation')),
    CHECK (state IN ('ok', 'alarm', 'unknown'))
);
CREATE INDEX monitor_runs_newest ON kosmos.monitor_runs (tenant_id, kind, at);

CREATE TABLE kosmos.index_events (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    index_id uuid NOT NULL,  -- no reference: the log outlives its indexes
    action text NOT NULL,
    reason text NOT NULL,
    before jsonb NOT NULL,
    after jsonb NOT NULL,
    PRIMARY KEY (tenant_id, id),
    CHECK (action IN ('rebuilt', 'tuned', 'search_widened', 'dropped', 'skipped'))
);
CREATE INDEX index_events_newest ON kosmos.index_events (tenant_id, at);

-- Ratings of passages and answers by readers.

CREATE TABLE kosmos.feedback (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,  -- follows from who rated what: a second word on it replaces the first
    at timestamptz NOT NULL,
    subject text NOT NULL,
    collection text COLLATE "C",  -- null: all of them were asked
    retrieval_id uuid,  -- no reference: the log is dropped by months
    question text,
    question_sha256 text NOT NULL,
    rating text NOT NULL,
    chunk_id uuid,  -- null: the answer as a whole; no reference: chunks go with their version
    source text,
    comment text,
    reason text,
    PRIMARY KEY (tenant_id, id),
    CHECK (rating IN ('up', 'down', 'click')),
    CONSTRAINT ck_feedback_reason CHECK (reason IN ('wrong', 'incomplete', 'outdated', 'not_covered'))
);
CREATE INDEX feedback_down ON kosmos.feedback (tenant_id, at) WHERE rating = 'down';

-- Questions that were not answered.

CREATE TABLE kosmos.unanswered_questions (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,  -- follows from reader, collection and question: one row for each
    first_at timestamptz NOT NULL,
    last_at timestamptz NOT NULL,
    times integer NOT NULL,
    collection text COLLATE "C",  -- null: all of them were asked
    subject text,  -- null: the caller named no reader
    principals text[] NOT NULL,  -- of the reader: it is asked again as them
    question text NOT NULL,
    reason text NOT NULL,
    group_id uuid,  -- null until maintenance has grouped it
    vector halfvec,
    vector_model text,
    checked_at timestamptz NOT NULL,
    checked_state text,  -- of the documents and settings at the last check; null: not checked
    answered_at timestamptz,  -- null: not answered
    PRIMARY KEY (tenant_id, id),
    CHECK (reason IN ('none', 'refused', 'declined')),
    CHECK (times > 0)
);

-- Sampled answers and what their checks found.

CREATE TABLE kosmos.answer_samples (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    at timestamptz NOT NULL,
    collection text COLLATE "C",  -- null: all of them were asked
    subject text,  -- null: the caller named no reader
    principals text[] NOT NULL,  -- of the reader, until the check
    retrieval_id uuid,  -- for feedback; no reference: the log is dropped by months
    question_sha256 text NOT NULL,  -- the same; the question is not stored
    is_refused boolean NOT NULL,
    answer jsonb,  -- until the check; null: checked, or refused
    sources text[] NOT NULL,  -- of the documents of its context, until the check
    verdict text,
    checked_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CHECK (verdict IN ('supported', 'unsupported', 'outdated'))
);

-- What tenants use, by hour.

-- Processes append, and maintenance joins the rows of an hour that is over.
CREATE TABLE kosmos.usage (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    hour timestamptz NOT NULL,  -- its beginning
    collection text COLLATE "C",  -- null: all of them were asked
    subject text,  -- null: the reader is not known, or erased
    quantity text NOT NULL,
    model text,  -- null: no model took part
    amount double precision NOT NULL,
    cost double precision,  -- by the price of that time; null: it had none
    PRIMARY KEY (tenant_id, id),
    CHECK (amount >= 0)
);
CREATE INDEX usage_hour ON kosmos.usage (tenant_id, hour);

-- Users and groups that an identity provider writes by SCIM.

CREATE TABLE kosmos.scim_resources (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    id uuid NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,  -- userName or displayName
    name_key text COLLATE "C" NOT NULL,  -- without case: userName is compared so
    external_id text COLLATE "C",
    active boolean NOT NULL,
    content jsonb NOT NULL,  -- without id, meta, password and members
    -- Names in the form of name_key, and external ids, that the user has or had before its last change.
    former_subjects text[] NOT NULL,
    version integer NOT NULL,
    created_at timestamptz NOT NULL,
    modified_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, kind, name_key),
    CHECK (kind IN ('User', 'Group'))
);
CREATE INDEX scim_resources_external ON kosmos.scim_resources (tenant_id, external_id);

CREATE TABLE kosmos.scim_members (
    tenant_id uuid NOT NULL REFERENCES kosmos.tenants ON DELETE CASCADE,
    group_id uuid NOT NULL,
    user_id uuid NOT NULL,
    PRIMARY KEY (tenant_id, group_id, user_id),
    FOREIGN KEY (tenant_id, group_id) REFERENCES kosmos.scim_resources ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, user_id) REFERENCES kosmos.scim_resources ON DELETE CASCADE
);
CREATE INDEX scim_members_user ON kosmos.scim_members (tenant_id, user_id);
