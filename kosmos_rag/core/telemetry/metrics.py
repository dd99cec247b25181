"""Every metric of our processes, declared once.

A declaration has name, type, help text, labels and buckets.

Code records a value with one of these records; `prometheus.py` exports it. Prometheus appends `_total` to the name of a
counter. `python -m kosmos_rag.core.telemetry.metrics` writes docs/metrics.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Alerts on the median and on reranking compare with 200 ms, and a quantile is exact at a bucket's bound only.
STAGE_SECONDS = tuple(sorted((0.0005, 0.001, 0.0025, 0.2, *SECONDS)))
STATES = (("ok",), ("alarm",), ("unknown",))


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, in the unit at the end of its name."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets."""
    initial: tuple[tuple[str, ...], ...] = ()
    """Label values exported as 0 from the start: `increase` misses the first event of a series that starts with it."""
    across_tenants: Literal["min", "max"] | None = None
    """How a worker combines the values of its tenants into one gauge. A tenant is never a label of it."""


# Of an engine: `Engine.observe` attaches an observer, the HTTP service attaches its own.

RETRIEVAL_STAGE_SECONDS = Metric(
    "kosmos_retrieval_stage_seconds",
    "histogram",
    "Duration of a stage of a search: expand, embed, plan, dense, lexical, fuse, prf, fetch, rerank, signals, "
    "cache (result taken from the cache), context (context assembled after the search), total (without context).",
    ("stage",),
    STAGE_SECONDS,
)
RETRIEVAL_INCOMPLETE = Metric(
    "kosmos_retrieval_incomplete", "counter", "Searches that returned fewer passages than requested."
)
RETRIEVAL_FALLBACKS = Metric(
    "kosmos_retrieval_fallbacks",
    "counter",
    "Search stages that were skipped, by reason: deadline (too slow), busy (earlier calls still run), model (the model "
    "failed or is unavailable).",
    ("stage", "reason"),
    initial=(("expand", "model"), ("rerank", "deadline"), ("rerank", "busy"), ("rerank", "model")),
)
RETRIEVAL_FAILURES = Metric(
    "kosmos_retrieval_failures",
    "counter",
    "Questions that ended with an error, by error type. RequestError is an error of the caller.",
    ("error",),
    initial=(("DatabaseUnavailable",), ("ModelUnavailable",), ("StatementFailed",)),
)
ANSWER_SECONDS = Metric(
    "kosmos_answer_seconds",
    "histogram",
    "Duration of an answer after its search: until its first text (first_token) and until its end (total).",
    ("stage",),
    (*SECONDS, 30, 60),
)
CACHE_LOOKUPS = Metric(
    "kosmos_cache_lookups",
    "counter",
    "Lookups in the caches of the process (results, question_vectors, postings, vectors), by outcome: hit or miss.",
    ("cache", "outcome"),
)
POOL_CONNECTIONS = Metric(
    "kosmos_pool_connections",
    "gauge",
    "Open connections to the database, by role and state (used or idle).",
    ("role", "state"),
)
POOL_WAITING = Metric("kosmos_pool_waiting", "gauge", "Calls waiting for a database connection, by role.", ("role",))
POOL_WAIT_SECONDS = Metric(
    "kosmos_pool_wait_seconds", "counter", "Time that calls waited for a database connection, by role.", ("role",)
)
REPLICA_LAG_SECONDS = Metric(
    "kosmos_replica_lag_seconds",
    "gauge",
    "Seconds that a replica of database.replica_urls is behind the primary; NaN while it cannot be used.",
    ("replica",),
)
INGESTION_STAGE_SECONDS = Metric(
    "kosmos_ingestion_stage_seconds",
    "counter",
    "Time spent in a stage of ingestion: chunk (includes parsing), embed, write.",
    ("stage",),
)
INGESTION_EMBEDDED_DOCUMENTS = Metric(
    "kosmos_ingestion_embedded_documents",
    "counter",
    "Documents embedded. Seconds of the stage embed divided by this is the time per document.",
)
INGESTION_EMBEDDED_CHUNKS = Metric(
    "kosmos_ingestion_embedded_chunks",
    "counter",
    "Chunks embedded, as the model continues within a batch. Chunks whose text was embedded before are not counted.",
)
TENANT_RETRIEVALS = Metric(
    "kosmos_tenant_retrievals",
    "counter",
    "Searches by tenant, for the observability.top_tenants tenants with most searches. All others count as `other`.",
    ("tenant",),
)
TENANT_RETRIEVAL_SECONDS = Metric(
    "kosmos_tenant_retrieval_seconds", "counter", "Time spent on searches, for the same tenants.", ("tenant",)
)
RECALL_MONITOR_SAMPLES = Metric(
    "kosmos_recall_monitor_samples",
    "counter",
    "Questions sampled for the recall monitor, by outcome: written, or dropped (the buffer was full or the write "
    "failed).",
    ("outcome",),
)
EXPERIMENT_QUESTIONS = Metric(
    "kosmos_experiment_questions",
    "counter",
    "Questions in an experiment, by outcome: kept (result stored), dropped (the queue was full), failed (the treatment "
    "or storing the result failed).",
    ("outcome",),
)

ENGINE = (
    RETRIEVAL_STAGE_SECONDS, RETRIEVAL_INCOMPLETE, RETRIEVAL_FALLBACKS, RETRIEVAL_FAILURES, ANSWER_SECONDS,
    CACHE_LOOKUPS, POOL_CONNECTIONS, POOL_WAITING, POOL_WAIT_SECONDS, REPLICA_LAG_SECONDS, TENANT_RETRIEVALS,
    TENANT_RETRIEVAL_SECONDS, RECALL_MONITOR_SAMPLES, EXPERIMENT_QUESTIONS,
)  # fmt: skip
INGESTION = (INGESTION_STAGE_SECONDS, INGESTION_EMBEDDED_DOCUMENTS, INGESTION_EMBEDDED_CHUNKS)

# Of the HTTP service and of MCP over HTTP, on `service.health_port`.

HTTP_REQUESTS = Metric(
    "kosmos_http_requests",
    "counter",
    "HTTP requests, by method, route and status. A stream that failed counts with the status of its error.",
    ("method", "route", "status"),
)
HTTP_REQUEST_SECONDS = Metric(
    "kosmos_http_request_seconds",
    "histogram",
    "Time to the first byte of an HTTP response, by route.",
    ("route",),
    SECONDS,
)
HTTP_CALLS_IN_FLIGHT = Metric(
    "kosmos_http_calls_in_flight", "gauge", "Engine calls of HTTP requests that run now; database.pool_size at most."
)
HTTP_STREAMS_IN_FLIGHT = Metric(
    "kosmos_http_streams_in_flight", "gauge", "Answers that are streamed to HTTP clients now."
)

HTTP = (HTTP_REQUESTS, HTTP_REQUEST_SECONDS, HTTP_CALLS_IN_FLIGHT, HTTP_STREAMS_IN_FLIGHT)

# Of a worker's supervisor, on `worker.health_port`; its child processes report to it.

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
    "Documents that a source could not list, or that failed before with the same content, by error code.",
    ("code",),
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
WORKER_LEASES_LOST = Metric(
    "kosmos_worker_leases_lost", "counter", "Jobs whose lease expired, so that another worker may claim them."
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
RECALL_MONITOR_RUNS = Metric(
    "kosmos_recall_monitor_runs",
    "counter",
    "Runs of the recall monitor on sampled questions, by result: ok, alarm, or unknown (too few samples).",
    ("state",),
    initial=STATES,
)
RECALL_MONITOR_ALARMS = Metric(
    "kosmos_recall_monitor_alarms_in_a_row",
    "gauge",
    "Consecutive runs of the recall monitor with an alarm, up to the latest; maximum over tenants.",
    across_tenants="max",
)
RECALL_MONITOR_REPAIRS = Metric(
    "kosmos_recall_monitor_repairs",
    "counter",
    "Repairs after low recall, by action: search_widened (a query reads more of the index), rebuilt, skipped (no "
    "repair, see kosmos-rag index log), busy (other maintenance runs; the next run of the monitor tries again).",
    ("action",),
    initial=(("search_widened",), ("rebuilt",), ("skipped",), ("busy",)),
)
RECALL_MONITOR_RECALL = Metric(
    "kosmos_recall_monitor_recall_at_10",
    "gauge",
    "Recall@10 of vector search on sampled live questions; minimum over tenants.",
    across_tenants="min",
)
RECALL_MONITOR_INCOMPLETE = Metric(
    "kosmos_recall_monitor_incomplete",
    "gauge",
    "Share of sampled live questions whose index returned too few chunks, so that all chunks were scanned; maximum "
    "over tenants.",
    across_tenants="max",
)
RECALL_MONITOR_DRIFT = Metric(
    "kosmos_recall_monitor_drift",
    "gauge",
    "Score drift of live questions since the last index build or tuning, divided by the most that chance explains; "
    "maximum over tenants.",
    across_tenants="max",
)
CANARY_RECALL = Metric(
    "kosmos_canary_recall_at_10",
    "gauge",
    "Recall@10 of canary questions (their answers are known); minimum over tenants that have some.",
    across_tenants="min",
)
CANARY_MRR = Metric(
    "kosmos_canary_mrr",
    "gauge",
    "Mean reciprocal rank at 10 of canary questions; minimum over tenants that have some.",
    across_tenants="min",
)
CANARY_RUNS = Metric(
    "kosmos_canary_runs",
    "counter",
    "Runs of the canary questions, by result: ok, alarm, or unknown (too few questions, or none could be asked).",
    ("state",),
    initial=STATES,
)
PERMISSION_CHECKS = Metric(
    "kosmos_permission_checks",
    "counter",
    "Runs of the isolation canary: two test tenants search for each other's documents. By result: ok, alarm, or "
    "unknown (a tenant did not find its own document, or could not search).",
    ("state",),
    initial=STATES,
)
PERMISSION_LEAKS = Metric(
    "kosmos_permission_leaks",
    "counter",
    "Passages in these runs that the tenant must not see. Any value above 0 is a leak.",
)

WORKER = (
    WORKER_DOCUMENTS, WORKER_CHUNKS, WORKER_TRUNCATED_TOKENS, WORKER_FAILURES, WORKER_LISTING_FAILURES, WORKER_BATCHES,
    WORKER_ORPHANS, WORKER_LEASES_LOST, WORKER_PROCESSES_DIED, WORKER_PARSER_ISOLATED, WORKER_JOB_WAIT_SECONDS,
    WORKER_BATCH_JOBS, JOBS,
    JOBS_OLDEST_DUE_SECONDS, INDEX_RECALL, INDEX_DUE, INDEX_UNSEGMENTED_CHUNKS, AUDIT_LAG_SECONDS, DATABASE_BYTES,
    DATABASE_XID_AGE, DATABASE_ROWS, DATABASE_INVALID_INDEXES, CLUSTER_NODE_UP, SCHEMA_REVISION, RLS_PREFLIGHT_OK,
    RECALL_MONITOR_RUNS,
    RECALL_MONITOR_ALARMS, RECALL_MONITOR_REPAIRS, RECALL_MONITOR_RECALL, RECALL_MONITOR_INCOMPLETE,
    RECALL_MONITOR_DRIFT, CANARY_RECALL, CANARY_MRR, CANARY_RUNS, PERMISSION_CHECKS, PERMISSION_LEAKS,
)  # fmt: skip

METRICS = (*ENGINE, *INGESTION, *HTTP, *WORKER)
BY_NAME = {metric.name: metric for metric in METRICS}


def reference() -> str:
    """Return the text of docs/metrics.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Generated from `kosmos_rag/core/telemetry/metrics.py` by `python -m kosmos_rag.core.telemetry.metrics`."
    yield "Prometheus appends `_total` to the name of a counter, and `_bucket`, `_sum`, `_count` to a histogram."
    yield "In the OpenMetrics format each bucket carries the `trace_id` of an example request."
    yield "[operate.md](operate.md#alerts) has the remedies for alerts."
    for title, metrics in (
        ("Engine: on `service.health_port`, or in [your own process](observability.md)", ENGINE),
        ("Ingestion: of a worker on `worker.health_port`, or of an engine in your own process", INGESTION),
        ("HTTP service: on `service.health_port`", HTTP),
        ("Worker: on `worker.health_port`", WORKER),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
