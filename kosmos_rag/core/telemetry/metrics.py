"""Metrics of an engine and of ingestion.

A declaration has name, type, help text, labels and buckets. Code records a value with one of them; `prometheus.py`
exports it. Prometheus appends `_total` to the name of a counter. The worker, the HTTP service and the wings declare
their own; docs/metrics.md lists all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from kosmos_rag.core.mounting import METRICS, load_present

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
# Alerts on the median and on reranking compare with 200 ms, and a quantile is exact at a bucket's bound only.
STAGE_SECONDS = tuple(sorted((0.0005, 0.001, 0.0025, 0.2, *SECONDS)))


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
CACHE_BYTES = Metric(
    "kosmos_cache_bytes",
    "gauge",
    "Approximate memory of caches of the process: postings of segments, vectors (with their postings), passages.",
    ("cache",),
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

ENGINE = (
    RETRIEVAL_STAGE_SECONDS, RETRIEVAL_INCOMPLETE, RETRIEVAL_FALLBACKS, RETRIEVAL_FAILURES, ANSWER_SECONDS,
    CACHE_LOOKUPS, CACHE_BYTES, POOL_CONNECTIONS, POOL_WAITING, POOL_WAIT_SECONDS, REPLICA_LAG_SECONDS,
    TENANT_RETRIEVALS, TENANT_RETRIEVAL_SECONDS,
)  # fmt: skip
INGESTION = (INGESTION_STAGE_SECONDS, INGESTION_EMBEDDED_DOCUMENTS, INGESTION_EMBEDDED_CHUNKS)


def load_wing_metrics(exporter: Literal["engine", "worker"]) -> tuple[Metric, ...]:
    """Return the metrics of the wings that are present, for what exports them."""
    wings = cast("dict[str, Mapping[str, tuple[Metric, ...]]]", load_present(METRICS))
    return tuple(metric for metrics in wings.values() for metric in metrics[exporter])
