"""Metrics of a worker's supervisor, on `worker.health_port`; its child processes report to it."""

from kosmos_rag.core.telemetry.metrics import SECONDS, Metric

WORKER_DOCUMENTS = Metric("kosmos_worker_documents", "counter", "Documents processed, by outcome.", ("outcome",))
WORKER_CHUNKS = Metric("kosmos_worker_chunks", "counter", "Chunks published.")
WORKER_TRUNCATED_TOKENS = Metric(
    "kosmos_worker_truncated_tokens",
    "counter",
    "Tokens of titles and section headings cut off because they did not fit before their chunks.",
)
WORKER_FAILURES = Metric(
    "kosmos_worker_failures", "counter", "Failed attempts of jobs, by error code.", ("code",), initial=(("disk_full",),)
)
WORKER_LISTING_FAILURES = Metric(
    "kosmos_worker_listing_failures",
    "counter",
    "Documents that a source could not list, or that failed before with the same content, and failed passes, by code.",
    ("code",),
    initial=(("no_permission",), ("ConfigError",)),
)
WORKER_BATCHES = Metric("kosmos_worker_batches", "counter", "Batches of documents embedded together.")
WORKER_ORPHANS = Metric(
    "kosmos_worker_orphans",
    "counter",
    "Inconsistent rows found by maintenance, by what is wrong.",
    ("what",),
    initial=(
        ("documents without their version",), ("versions that are not live",), ("keywords of no chunk",),
        ("chunks without a vector",), ("collections counted wrongly",), ("readers counted wrongly",),
    ),
)  # fmt: skip
MAINTENANCE_FAILURES = Metric(
    "kosmos_maintenance_failures",
    "counter",
    "Steps of a tenant's maintenance that failed: indexes, rows (expired ones), wings (monitor, gaps, usage …).",
    ("step",),
    initial=(("indexes",), ("rows",), ("wings",)),
)
WORKER_LEASES_LOST = Metric(
    "kosmos_worker_leases_lost",
    "counter",
    "Jobs whose worker was killed or stopped renewing their lease; counted by the worker that queues them again.",
)
WORKER_PROCESSES_DIED = Metric("kosmos_worker_processes_died", "counter", "Child processes that ended unexpectedly.")
WORKER_PARSER_ISOLATED = Metric(
    "kosmos_worker_parser_isolated",
    "gauge",
    "1 if the parser's process cannot reach the network, other processes or other files, else 0; by target.",
    ("target",),
)
WORKER_JOB_WAIT_SECONDS = Metric(
    "kosmos_worker_job_wait_seconds",
    "histogram",
    "Time from when a job was due until a worker claimed it.",
    buckets=(*SECONDS, 30, 60, 300, 1800),
)
WORKER_BATCH_JOBS = Metric(
    "kosmos_worker_batch_jobs", "histogram", "Jobs claimed at once.", buckets=(1, 2, 4, 8, 16, 32, 64, 128)
)
JOBS = Metric("kosmos_jobs", "gauge", "Jobs of all tenants, by kind and state.", ("kind", "state"))
JOBS_OLDEST_DUE_SECONDS = Metric(
    "kosmos_jobs_oldest_due_seconds", "gauge", "Age of the oldest job that is due, by kind.", ("kind",)
)
INDEX_RECALL = Metric(
    "kosmos_index_recall_at_10",
    "gauge",
    "Recall@10 of vector indexes against an exact search, measured at tuning; minimum over tenants.",
    across_tenants="min",
)
INDEX_DUE = Metric(
    "kosmos_index_due",
    "gauge",
    "Indexes of a tenant still due for a build or rebuild after maintenance; maximum over tenants.",
    across_tenants="max",
)
INDEX_UNSEGMENTED_CHUNKS = Metric(
    "kosmos_index_unsegmented_chunks",
    "gauge",
    "Chunks of a tenant in no BM25 segment after maintenance; maximum over tenants.",
    across_tenants="max",
)
AUDIT_LAG_SECONDS = Metric(
    "kosmos_audit_lag_seconds",
    "gauge",
    "Age of the oldest unsealed audit event of a tenant when sealing started; maximum over tenants.",
    across_tenants="max",
)
DATABASE_BYTES = Metric("kosmos_database_bytes", "gauge", "Size of the database on disk.")
DATABASE_XID_AGE = Metric(
    "kosmos_database_xid_age",
    "gauge",
    "Transactions since the oldest unfrozen row. PostgreSQL stops accepting writes near two thousand million.",
)
DATABASE_ROWS = Metric(
    "kosmos_database_rows",
    "gauge",
    "Rows of our tables as PostgreSQL estimates them, by state: live or dead.",
    ("state",),
)
DATABASE_INVALID_INDEXES = Metric(
    "kosmos_database_invalid_indexes", "gauge", "Indexes that are being built, or whose build failed."
)
CLUSTER_NODE_UP = Metric(
    "kosmos_cluster_node_up",
    "gauge",
    "1 if the coordinator of a Citus cluster reaches the node, else 0; nothing on a single server.",
    ("node",),
)
SCHEMA_REVISION = Metric(
    "kosmos_schema_revision",
    "gauge",
    "Revision of the database schema: of the database, and the one that the code needs.",
    ("of",),
)
RLS_PREFLIGHT_OK = Metric(
    "kosmos_rls_preflight_ok",
    "gauge",
    "1 while roles and catalog keep tenants isolated by row-level security, else 0, by role. Absent while the schema "
    "revision does not suit this code.",
    ("role",),
)

WORKER = (
    WORKER_DOCUMENTS, WORKER_CHUNKS, WORKER_TRUNCATED_TOKENS, WORKER_FAILURES, WORKER_LISTING_FAILURES,
    WORKER_BATCHES, WORKER_ORPHANS, MAINTENANCE_FAILURES, WORKER_LEASES_LOST, WORKER_PROCESSES_DIED,
    WORKER_PARSER_ISOLATED, WORKER_JOB_WAIT_SECONDS, WORKER_BATCH_JOBS, JOBS, JOBS_OLDEST_DUE_SECONDS,
    INDEX_RECALL, INDEX_DUE, INDEX_UNSEGMENTED_CHUNKS, AUDIT_LAG_SECONDS, DATABASE_BYTES, DATABASE_XID_AGE,
    DATABASE_ROWS, DATABASE_INVALID_INDEXES, CLUSTER_NODE_UP, SCHEMA_REVISION, RLS_PREFLIGHT_OK,
)  # fmt: skip
