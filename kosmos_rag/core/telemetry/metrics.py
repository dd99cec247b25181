"""Every metric that a process of ours exports: name, type, what it tells, labels and buckets, declared once.

Whoever has something to tell names one of these records; `prometheus.py` makes samples of them. A counter's samples are
called `…_total`. `python -m kosmos_rag.core.telemetry.metrics` writes docs/metrics.md.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
STAGE_SECONDS = tuple(sorted((0.0005, 0.001, 0.0025, 0.2, *SECONDS)))
"""With 200 ms, where median and reranking alert: what a quantile is compared with has to be a bound."""
STATES = (("ok",), ("alarm",), ("unknown",))


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """A metric. Values are in the unit that its name ends with."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""
    known: tuple[tuple[str, ...], ...] = ()
    """Labels of which a counter is 0, and not missing, before the first: `increase` of a series that begins is 0."""
    of_tenants: Literal["lowest", "highest"] | None = None
    """Of a gauge that workers measure tenant by tenant: which of the values is exported. No tenant becomes a label."""


# Of an engine, for whoever listens to it (`Engine.observe`): the service does.

RETRIEVAL_STAGE_SECONDS = Metric(
    name="kosmos_retrieval_stage_seconds",
    kind="histogram",
    help="Seconds of a stage of retrieval: expand, embed, plan, dense, lexical, fuse, feedback, fetch, rerank, "
    "signals, cache (a result kept from before), context (the evidence put together), and total without it.",
    labels=("stage",),
    buckets=STAGE_SECONDS,
)
RETRIEVAL_SHORT_OF_K = Metric(
    name="kosmos_retrieval_short_of_k", kind="counter", help="Retrievals with fewer hits than asked for."
)
RETRIEVAL_FALLBACKS = Metric(
    name="kosmos_retrieval_fallbacks",
    kind="counter",
    help="Stages of retrieval that were left out, by reason: deadline (too late), busy (earlier calls hang), model (it "
    "failed, or is not there).",
    labels=("stage", "reason"),
    known=(("expand", "model"), ("rerank", "deadline"), ("rerank", "busy"), ("rerank", "model")),
)
RETRIEVAL_FAILURES = Metric(
    name="kosmos_retrieval_failures",
    kind="counter",
    help="Questions that ended with an error in place of hits, by its type; a RequestError is the asker's.",
    labels=("error",),
    known=(("DatabaseUnavailable",), ("ModelUnavailable",), ("StatementFailed",)),
)
ANSWER_SECONDS = Metric(
    name="kosmos_answer_seconds",
    kind="histogram",
    help="Seconds from the sources of an answer to its first piece (first_token), and to its end (total).",
    labels=("stage",),
    buckets=(*SECONDS, 30, 60),
)
CACHE_LOOKUPS = Metric(
    name="kosmos_cache_lookups",
    kind="counter",
    help="Looks into what is kept in the process, by outcome, hit or miss: results, question_vectors, postings.",
    labels=("cache", "outcome"),
)
POOL_CONNECTIONS = Metric(
    name="kosmos_pool_connections",
    kind="gauge",
    help="Connections to the database that are open, by role and state, used or idle.",
    labels=("role", "state"),
)
POOL_WAITING = Metric(
    name="kosmos_pool_waiting", kind="gauge", help="Calls that wait for a connection, by role.", labels=("role",)
)
POOL_WAIT_SECONDS = Metric(
    name="kosmos_pool_wait_seconds",
    kind="counter",
    help="Seconds that calls have waited for a connection, by role.",
    labels=("role",),
)
INGESTION_STAGE_SECONDS = Metric(
    name="kosmos_ingestion_stage_seconds",
    kind="counter",
    help="Seconds spent in a stage of ingestion: chunk (parsing included), embed, write.",
    labels=("stage",),
)
INGESTION_EMBEDDED_DOCUMENTS = Metric(
    name="kosmos_ingestion_embedded_documents",
    kind="counter",
    help="Documents that went through the stage embed: its seconds by these are the time of embedding a document.",
)
TENANT_RETRIEVALS = Metric(
    name="kosmos_tenant_retrievals",
    kind="counter",
    help="Retrievals by tenant, of the observability.top_tenants that ask most; the rest are `other`.",
    labels=("tenant",),
)
TENANT_RETRIEVAL_SECONDS = Metric(
    name="kosmos_tenant_retrieval_seconds",
    kind="counter",
    help="Seconds of retrieval by tenant, of the same tenants.",
    labels=("tenant",),
)

GUARD_SAMPLES = Metric(
    name="kosmos_guard_samples",
    kind="counter",
    help="Questions that were kept for the guard, by outcome: written, or dropped, for which there was no room.",
    labels=("outcome",),
)

EXPERIMENT_QUESTIONS = Metric(
    name="kosmos_experiment_questions",
    kind="counter",
    help="Questions that took part in an experiment, by outcome: kept (its result), dropped (too many were waiting), "
    "failed (the second configuration, or keeping the result).",
    labels=("outcome",),
)

ENGINE = (
    RETRIEVAL_STAGE_SECONDS,
    RETRIEVAL_SHORT_OF_K,
    RETRIEVAL_FALLBACKS,
    RETRIEVAL_FAILURES,
    ANSWER_SECONDS,
    CACHE_LOOKUPS,
    POOL_CONNECTIONS,
    POOL_WAITING,
    POOL_WAIT_SECONDS,
    TENANT_RETRIEVALS,
    TENANT_RETRIEVAL_SECONDS,
    GUARD_SAMPLES,
    EXPERIMENT_QUESTIONS,
)
INGESTION = (INGESTION_STAGE_SECONDS, INGESTION_EMBEDDED_DOCUMENTS)

# Of the HTTP service and of MCP over HTTP, on `service.metrics_port`.

REQUESTS = Metric(
    name="kosmos_service_requests",
    kind="counter",
    help="Requests, by route and status; a stream that broke off by that of its error.",
    labels=("method", "route", "status"),
)
REQUEST_SECONDS = Metric(
    name="kosmos_service_request_seconds",
    kind="histogram",
    help="Seconds to the first byte of a response, by route.",
    labels=("route",),
    buckets=SECONDS,
)
TURNS = Metric(name="kosmos_service_turns", kind="gauge", help="Calls of the library that run.")
STREAMS = Metric(name="kosmos_service_streams", kind="gauge", help="Answers that are being streamed.")

SERVICE = (REQUESTS, REQUEST_SECONDS, TURNS, STREAMS)

# Of a worker's supervisor, on `worker.health_port`; its processes report to it.

WORKER_DOCUMENTS = Metric(
    name="kosmos_worker_documents",
    kind="counter",
    help="Documents that jobs ended with, by outcome.",
    labels=("outcome",),
)
WORKER_CHUNKS = Metric(name="kosmos_worker_chunks", kind="counter", help="Chunks published.")
WORKER_TRUNCATED_TOKENS = Metric(
    name="kosmos_worker_truncated_tokens",
    kind="counter",
    help="Tokens of titles and sections that had no room before their chunks.",
)
WORKER_FAILURES = Metric(
    name="kosmos_worker_failures",
    kind="counter",
    help="Attempts of jobs that failed, by code.",
    labels=("code",),
)
WORKER_UNLISTED = Metric(
    name="kosmos_worker_unlisted",
    kind="counter",
    help="Documents that a source could not list, or that are as broken as they were, by code.",
    labels=("code",),
)
WORKER_BATCHES = Metric(name="kosmos_worker_batches", kind="counter", help="Batches embedded together.")
WORKER_ORPHANS = Metric(
    name="kosmos_worker_orphans",
    kind="counter",
    help="Rows found by maintenance that belong to nothing, by what they are.",
    labels=("what",),
    known=(
        ("documents without their version",), ("versions that are not live",), ("keywords of no chunk",),
        ("chunks without a vector",), ("collections counted wrongly",), ("readers counted wrongly",),
    ),
)  # fmt: skip
WORKER_LEASES_LOST = Metric(name="kosmos_worker_leases_lost", kind="counter", help="Jobs that were given to others.")
WORKER_PROCESSES_DIED = Metric(
    name="kosmos_worker_processes_died", kind="counter", help="Processes that ended by themselves."
)
WORKER_JOB_WAIT_SECONDS = Metric(
    name="kosmos_worker_job_wait_seconds",
    kind="histogram",
    help="Seconds from due to taken.",
    buckets=(*SECONDS, 30, 60, 300, 1800),
)
WORKER_BATCH_JOBS = Metric(
    name="kosmos_worker_batch_jobs",
    kind="histogram",
    help="Jobs taken at once.",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128),
)
JOBS = Metric(
    name="kosmos_jobs", kind="gauge", help="Jobs of all tenants, by kind and state.", labels=("kind", "state")
)
JOBS_OLDEST_DUE_SECONDS = Metric(
    name="kosmos_jobs_oldest_due_seconds",
    kind="gauge",
    help="Age of the oldest job that is due, by kind.",
    labels=("kind",),
)
INDEX_RECALL = Metric(
    name="kosmos_index_recall_at_10",
    kind="gauge",
    help="Share of the ten nearest vectors that an index found when it was tuned; the lowest of all tenants' indexes.",
    of_tenants="lowest",
)
INDEX_DUE = Metric(
    name="kosmos_index_due",
    kind="gauge",
    help="Indexes of a tenant that are still due after a round of maintenance; the most that a tenant has.",
    of_tenants="highest",
)
INDEX_TAIL_CHUNKS = Metric(
    name="kosmos_index_tail_chunks",
    kind="gauge",
    help="Chunks of a tenant that no segment holds after a round of maintenance; the most that a tenant has.",
    of_tenants="highest",
)
AUDIT_LAG_SECONDS = Metric(
    name="kosmos_audit_lag_seconds",
    kind="gauge",
    help="Age of the oldest record of a tenant's log that was not sealed when sealing began; the highest of all.",
    of_tenants="highest",
)
DATABASE_BYTES = Metric(name="kosmos_database_bytes", kind="gauge", help="Size of the database on disk.")
DATABASE_XID_AGE = Metric(
    name="kosmos_database_xid_age",
    kind="gauge",
    help="Transactions since the oldest row that is not frozen; at two thousand million PostgreSQL stops.",
)
DATABASE_ROWS = Metric(
    name="kosmos_database_rows",
    kind="gauge",
    help="Rows of our tables by state, live or dead, as PostgreSQL estimates them.",
    labels=("state",),
)
DATABASE_INVALID_INDEXES = Metric(
    name="kosmos_database_invalid_indexes",
    kind="gauge",
    help="Indexes that are being built, or were not built to the end.",
)
SCHEMA_REVISION = Metric(
    name="kosmos_schema_revision",
    kind="gauge",
    help="Revision of the schema, as the database has it and as the code needs it.",
    labels=("of",),
)
RLS_PREFLIGHT_OK = Metric(
    name="kosmos_rls_preflight_ok",
    kind="gauge",
    help="1 while role and catalogue are such that tenants are kept apart, else 0, by role; nothing while the database "
    "is at a revision that this code cannot serve from.",
    labels=("role",),
)

GUARD_RUNS = Metric(
    name="kosmos_guard_runs",
    kind="counter",
    help="Measurements of live questions by the guard, by what they came to: ok, alarm, or unknown (too few samples).",
    labels=("state",),
    known=STATES,
)
GUARD_ALARMS = Metric(
    name="kosmos_guard_alarms_in_a_row",
    kind="gauge",
    help="Measurements of a tenant's live questions that came to an alarm, the last and those before it; the most "
    "that a tenant has.",
    of_tenants="highest",
)
GUARD_STEPS = Metric(
    name="kosmos_guard_steps",
    kind="counter",
    help="What was done about low recall: raised (searched further), built (again), left (see kosmos-rag index log), "
    "busy (other maintenance runs: the next measurement tries again).",
    labels=("action",),
    known=(("raised",), ("built",), ("left",), ("busy",)),
)
GUARD_RECALL = Metric(
    name="kosmos_guard_recall_at_10",
    kind="gauge",
    help="Share of the ten nearest vectors that live questions found; the lowest of all tenants.",
    of_tenants="lowest",
)
GUARD_SHORT = Metric(
    name="kosmos_guard_short_of_k",
    kind="gauge",
    help="Share of live questions for which an index gave too little and all was scanned; the highest of all tenants.",
    of_tenants="highest",
)
GUARD_DRIFT = Metric(
    name="kosmos_guard_drift",
    kind="gauge",
    help="How far the best scores of live questions lie from those at the last build or tuning, 1 being what chance "
    "may do; the highest of all tenants.",
    of_tenants="highest",
)
CANARY_RECALL = Metric(
    name="kosmos_canary_recall_at_10",
    kind="gauge",
    help="Recall@10 of questions with known answers; the lowest of all tenants that have some.",
    of_tenants="lowest",
)
CANARY_MRR = Metric(
    name="kosmos_canary_mrr",
    kind="gauge",
    help="Mean reciprocal rank, at 10, of the same questions; the lowest of all tenants that have some.",
    of_tenants="lowest",
)
CANARY_RUNS = Metric(
    name="kosmos_canary_runs",
    kind="counter",
    help="Rounds of these questions, by what they came to: ok, alarm, or unknown (too few, or none could be asked).",
    labels=("state",),
    known=STATES,
)
PERMISSION_CHECKS = Metric(
    name="kosmos_permission_checks",
    kind="counter",
    help="Rounds in which two tenants of ours were asked for each other's secrets: ok, alarm, or unknown (one did not "
    "find its own, or could not ask).",
    labels=("state",),
    known=STATES,
)
PERMISSION_LEAKS = Metric(
    name="kosmos_permission_leaks",
    kind="counter",
    help="Hits in these that a reader must not see. Any one is a leak.",
)

WORKER = (
    WORKER_DOCUMENTS, WORKER_CHUNKS, WORKER_TRUNCATED_TOKENS, WORKER_FAILURES, WORKER_UNLISTED, WORKER_BATCHES,
    WORKER_ORPHANS, WORKER_LEASES_LOST, WORKER_PROCESSES_DIED, WORKER_JOB_WAIT_SECONDS, WORKER_BATCH_JOBS, JOBS,
    JOBS_OLDEST_DUE_SECONDS, INDEX_RECALL, INDEX_DUE, INDEX_TAIL_CHUNKS, AUDIT_LAG_SECONDS, DATABASE_BYTES,
    DATABASE_XID_AGE, DATABASE_ROWS, DATABASE_INVALID_INDEXES, SCHEMA_REVISION, RLS_PREFLIGHT_OK, GUARD_RUNS,
    GUARD_ALARMS, GUARD_STEPS, GUARD_RECALL, GUARD_SHORT, GUARD_DRIFT, CANARY_RECALL, CANARY_MRR, CANARY_RUNS,
    PERMISSION_CHECKS, PERMISSION_LEAKS,
)  # fmt: skip

METRICS = (*ENGINE, *INGESTION, *SERVICE, *WORKER)
BY_NAME = {metric.name: metric for metric in METRICS}


def reference() -> str:
    """Return docs/metrics.md."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Metrics"
    yield ""
    yield "Written from `kosmos_rag/core/telemetry/metrics.py` by `python -m kosmos_rag.core.telemetry.metrics`."
    yield "A counter's samples are called `…_total`, a histogram's `…_bucket`, `…_sum` and `…_count`."
    yield "The OpenMetrics format adds the `trace_id` of a sample request to each bucket."
    yield "[operate.md](operate.md) says what to watch."
    for title, metrics in (
        ("Of an engine: on `service.metrics_port`, or of [your own process](observability.md)", ENGINE),
        ("Of what ingests: a worker, on `worker.health_port`, or an engine of yours", INGESTION),
        ("Of the service: on `service.metrics_port`", SERVICE),
        ("Of a worker: on `worker.health_port`", WORKER),
    ):
        yield ""
        yield f"## {title}"
        yield ""
        yield "| name | type | labels | what it tells |"
        yield "|---|---|---|---|"
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels) or "none"
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
