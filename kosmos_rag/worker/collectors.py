"""Metrics of a worker.

They come from its child processes, and from queue and database at each scrape.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from kosmos_rag.core.errors import ConfigError, DatabaseError
from kosmos_rag.core.telemetry.metrics import INGESTION, Metric, load_wing_metrics
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver, metric_family
from kosmos_rag.core.types import Job, JobState
from kosmos_rag.parsing.sandbox.isolation import TARGETS, Isolation
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.preflight import ServerState
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.sql import statement
from kosmos_rag.worker.cluster import ClusterWatch
from kosmos_rag.worker.metrics import (
    CLUSTER_NODE_UP,
    DATABASE_BYTES,
    DATABASE_INVALID_INDEXES,
    DATABASE_ROWS,
    DATABASE_XID_AGE,
    JOBS,
    JOBS_OLDEST_DUE_SECONDS,
    RLS_PREFLIGHT_OK,
    SCHEMA_REVISION,
    WORKER,
    WORKER_BATCH_JOBS,
    WORKER_JOB_WAIT_SECONDS,
    WORKER_LEASES_LOST,
    WORKER_PARSER_ISOLATED,
    WORKER_PROCESSES_DIED,
)

_PREFLIGHT_S = 60.0
"""How long the result of a preflight is reused: it opens connections of its own."""


class WorkerMetrics:
    """Metrics of one supervisor, in a registry of its own. Thread-safe."""

    def __init__(
        self, queue: Queue, database: Database, cluster: ClusterWatch, kinds: Sequence[str] = kinds.KERNEL
    ) -> None:
        metrics = (*INGESTION, *WORKER, *load_wing_metrics("worker"))
        self.observer = PrometheusObserver(metrics)
        self._reported = {metric.name.removeprefix("kosmos_worker_"): metric for metric in metrics}
        self.registry = self.observer.registry
        self._totals: dict[tuple[str, str], float] = defaultdict(float)
        self._tenants = TenantGauges(metrics)
        for collector in (self._tenants, _JobGauges(queue, kinds), DatabaseGauges(database), _NodeGauges(cluster)):
            self.registry.register(collector)

    def add(self, counts: Mapping[tuple[str, str], float]) -> None:
        """Add counts of a child process, by name and label."""
        for (name, label), amount in counts.items():
            self.observer.record(self._reported[name], amount, *([label] if label else []))
            self._totals[name, label] += amount

    def set_tenant_gauges(self, values: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Set gauges that a child process measured.

        `values` is `{(name, tenant): (value, seconds of validity)}`.
        """
        for (name, tenant), (value, hold_s) in values.items():
            self._tenants.set(name, tenant, value, hold_s)

    def total(self, name: str, label: str | None = None) -> float:
        """Return the value of a counter.

        Summed over its labels where `label` is None.
        """
        return sum(
            value
            for (counter, counter_label), value in self._totals.items()
            if counter == name and label in (None, counter_label)
        )

    def record_claim(self, jobs: Sequence[Job]) -> None:
        """Record a batch of claimed jobs."""
        self.observer.record(WORKER_BATCH_JOBS, len(jobs))
        for job in jobs:
            self.observer.record(WORKER_JOB_WAIT_SECONDS, job.waited_s)

    def record_lost_leases(self, jobs: int) -> None:
        """Count leases that expired, of whichever worker."""
        self.observer.record(WORKER_LEASES_LOST, jobs)

    def set_isolation(self, isolation: Isolation) -> None:
        """Export what a parser's process cannot reach."""
        for target in TARGETS:
            self.observer.gauge(WORKER_PARSER_ISOLATED, partial(float, target in isolation.denied), target)

    def record_process_death(self) -> None:
        """Count a child process that ended unexpectedly."""
        self.observer.record(WORKER_PROCESSES_DIED)


class TenantGauges(Collector):
    """Gauges by tenant, exported as minimum or maximum over all.

    A value expires unless it is measured again: another worker may have taken over the tenant.
    """

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)

    def set(self, name: str, tenant: str, value: float, hold_s: float) -> None:
        """Set the value of a tenant for `hold_s` seconds."""
        with self._lock:
            self._values[name][tenant] = value, time.monotonic() + hold_s

    def collect(self) -> Iterator[MetricFamily]:
        """Drop expired values and combine the others."""
        now = time.monotonic()
        values: dict[str, list[float]] = {}
        with self._lock:
            for name, tenants in self._values.items():
                self._values[name] = {tenant: entry for tenant, entry in tenants.items() if entry[1] > now}
                values[name] = [value for value, _ in self._values[name].values()]
        for name, current in values.items():
            if current:
                metric = self._metrics[name]
                yield metric_family(metric, {(): min(current) if metric.across_tenants == "min" else max(current)})


class _JobGauges(Collector):
    """The queue of all tenants at the scrape.

    Exports nothing while the database is unavailable.
    """

    def __init__(self, queue: Queue, kinds: Sequence[str]) -> None:
        self._queue = queue
        self._kinds = kinds

    def collect(self) -> Iterator[MetricFamily]:
        """Count the jobs."""
        try:
            counts = self._queue.count_jobs()
        except DatabaseError:
            return
        # An alert on the first dead job needs a rise from 0; a series that starts with it has none.
        jobs: dict[tuple[str, ...], float] = {(kind, str(JobState.DEAD)): 0 for kind in self._kinds}
        jobs |= {(count.kind, str(count.state)): count.count for count in counts}
        yield metric_family(JOBS, jobs)
        yield metric_family(
            JOBS_OLDEST_DUE_SECONDS,
            {(count.kind,): count.oldest_s for count in counts if count.state is JobState.QUEUED},
        )


class _NodeGauges(Collector):
    """The nodes of a cluster at the last look.

    Exports nothing on a server without Citus.
    """

    def __init__(self, cluster: ClusterWatch) -> None:
        self._cluster = cluster

    def collect(self) -> Iterator[MetricFamily]:
        """Report each node by its address."""
        nodes: dict[tuple[str, ...], float] = {(node.address,): float(node.available) for node in self._cluster.nodes}
        yield metric_family(CLUSTER_NODE_UP, nodes)


class DatabaseGauges(Collector):
    """Size, age, rows, revision and preflight of the database.

    Exports nothing while it is unavailable.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._states: dict[str, ServerState] = {}
        self._checked_at = float("-inf")

    def collect(self) -> Iterator[MetricFamily]:
        """Query the database."""
        try:
            with self._database.worker.untenanted() as connection:
                row = connection.execute(statement("database_health")).fetchone()
            states = self._server_states()
        except (ConfigError, DatabaseError):
            return
        assert row is not None, "the database that we are connected to is in its own catalog"
        size, xid_age, live, dead, invalid = row
        yield metric_family(DATABASE_BYTES, {(): size})
        yield metric_family(DATABASE_XID_AGE, {(): xid_age})
        yield metric_family(DATABASE_ROWS, {("live",): live, ("dead",): dead})
        yield metric_family(DATABASE_INVALID_INDEXES, {(): invalid})
        yield metric_family(
            RLS_PREFLIGHT_OK,
            {(role,): state.apart for role, state in states.items() if state.apart is not None},
        )
        revisions: dict[tuple[str, ...], float] = {("code",): float(REVISION)}
        if (revision := states[self._database.worker.role].revision) is not None:
            revisions["database",] = float(revision)
        yield metric_family(SCHEMA_REVISION, revisions)

    def _server_states(self) -> dict[str, ServerState]:
        with self._lock:
            if time.monotonic() > self._checked_at + _PREFLIGHT_S:
                self._states = {
                    self._database.app.role: self._database.app.inspect(),
                    self._database.worker.role: self._database.worker.inspect(),
                }
                self._checked_at = time.monotonic()
            return self._states
