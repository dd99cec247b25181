"""What a worker counts, and what it knows of queue and database, by the names that its /metrics shows."""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric as Metrics
from prometheus_client.registry import Collector

from kosmos_rag.core.errors import ConfigError, DatabaseError
from kosmos_rag.core.telemetry.metrics import (
    BY_NAME,
    DATABASE_BYTES,
    DATABASE_INVALID_INDEXES,
    DATABASE_ROWS,
    DATABASE_XID_AGE,
    INGESTION,
    JOBS,
    JOBS_OLDEST_DUE_SECONDS,
    RLS_PREFLIGHT_OK,
    SCHEMA_REVISION,
    WORKER,
    WORKER_BATCH_JOBS,
    WORKER_JOB_WAIT_SECONDS,
    WORKER_LEASES_LOST,
    WORKER_PROCESSES_DIED,
)
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver, family_of
from kosmos_rag.core.types import Job, JobState
from kosmos_rag.storage import provision
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.preflight import ServerState
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.revision import REVISION
from kosmos_rag.storage.sql import statement

_PREFLIGHT_S = 60.0
"""A preflight takes connections of its own: one holds for so long."""


class DatabaseHealth(Collector):
    """Size, age, dead rows, revision, and whether tenants are kept apart. Where the server is away, nothing is said."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._states: dict[str, ServerState] = {}
        self._looked_at = float("-inf")

    def describe(self) -> Iterable[Metrics]:
        """Name nothing beforehand: the database is not asked for that."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Ask the database."""
        try:
            with self._database.worker.queue() as connection:
                row = connection.execute(statement("database_health")).fetchone()
            states = self._looked()
        except (ConfigError, DatabaseError):
            return
        assert row is not None, "the database that we are connected to is in its own catalogue"
        size, xid_age, live, dead, invalid = row
        yield family_of(DATABASE_BYTES, {(): size})
        yield family_of(DATABASE_XID_AGE, {(): xid_age})
        yield family_of(DATABASE_ROWS, {("live",): live, ("dead",): dead})
        yield family_of(DATABASE_INVALID_INDEXES, {(): invalid})
        apart: dict[tuple[str, ...], float] = {
            (role,): state.apart for role, state in states.items() if state.apart is not None
        }
        yield family_of(RLS_PREFLIGHT_OK, apart)
        revisions: dict[tuple[str, ...], float] = {("code",): float(REVISION)}
        if (found := states[provision.WORKER].revision) is not None:
            revisions["database",] = float(found)
        yield family_of(SCHEMA_REVISION, revisions)

    def _looked(self) -> dict[str, ServerState]:
        with self._lock:
            if time.monotonic() > self._looked_at + _PREFLIGHT_S:
                self._states = {
                    provision.APP: self._database.app.state(),
                    provision.WORKER: self._database.worker.state(),
                }
                self._looked_at = time.monotonic()
            return self._states


_COUNTED = {metric.name.removeprefix("kosmos_worker_"): metric for metric in (*INGESTION, *WORKER)}
"""What processes report, by the names that they use."""


class WorkerMetrics:
    """The metrics of one supervisor, in a registry of its own. Thread-safe."""

    def __init__(self, queue: Queue, database: Database) -> None:
        self.observer = PrometheusObserver((*INGESTION, *WORKER))
        self.registry = self.observer.registry
        self._totals: dict[tuple[str, str], float] = {}
        self._tenants = OfTenants()
        for collector in (self._tenants, _Jobs(queue), DatabaseHealth(database)):
            self.registry.register(collector)

    def add(self, counts: Mapping[tuple[str, str], float]) -> None:
        """Add what a process counted."""
        for (name, label), amount in counts.items():
            self.observer.record(_COUNTED[name], amount, *([label] if label else []))
            self._totals[name, label] = self._totals.get((name, label), 0.0) + amount

    def measured(self, values: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Take what a process measured of a tenant."""
        for (name, tenant), (value, hold_s) in values.items():
            self._tenants.tell(name, tenant, value, hold_s)

    def total(self, name: str, label: str | None = None) -> float:
        """Return a counter's value so far; of all its labels together where none is named."""
        return sum(
            value
            for (known, value_label), value in self._totals.items()
            if known == name and label in (None, value_label)
        )

    def took(self, jobs: Sequence[Job]) -> None:
        """Count a batch that was taken."""
        self.observer.record(WORKER_BATCH_JOBS, len(jobs))
        for job in jobs:
            self.observer.record(WORKER_JOB_WAIT_SECONDS, job.waited_s)

    def lost(self, jobs: int) -> None:
        """Count leases that were lost."""
        self.observer.record(WORKER_LEASES_LOST, jobs)

    def died(self) -> None:
        """Count a process that ended by itself."""
        self.observer.record(WORKER_PROCESSES_DIED)


class OfTenants(Collector):
    """Gauges that are measured tenant by tenant, and shown as the lowest or the highest of all.

    A value is forgotten when it has not been measured again for as long as it holds: another worker may have done so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[str, tuple[float, float]]] = {}

    def tell(self, name: str, tenant: str, value: float, hold_s: float) -> None:
        """Take the value of a tenant."""
        with self._lock:
            self._values.setdefault(name, {})[tenant] = value, time.monotonic() + hold_s

    def describe(self) -> Iterable[Metrics]:
        """Name nothing beforehand."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Show each gauge that a tenant has a value of."""
        now = time.monotonic()
        with self._lock:
            for name, by_tenant in self._values.items():
                self._values[name] = {tenant: told for tenant, told in by_tenant.items() if told[1] > now}
            values = {name: [value for value, _ in told.values()] for name, told in self._values.items()}
        for name, known in values.items():
            if known:
                metric = BY_NAME[name]
                yield family_of(metric, {(): min(known) if metric.of_tenants == "lowest" else max(known)})


class _Jobs(Collector):
    """The queue at the time of the scrape, of all tenants."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def describe(self) -> Iterable[Metrics]:
        """Name what is collected without asking the database."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Ask the queue; where it is away, nothing is said of it."""
        try:
            counts = self._queue.counts()
        except DatabaseError:
            return
        # The first that fails for good is to be a rise, which it would not be of a series that begins with it.
        none_dead: dict[tuple[str, ...], float] = {(kind, str(JobState.DEAD)): 0 for kind in kinds.ALL}
        yield family_of(JOBS, {**none_dead, **{(count.kind, str(count.state)): count.count for count in counts}})
        due: dict[tuple[str, ...], float] = {
            (count.kind,): count.oldest_s for count in counts if count.state is JobState.QUEUED
        }
        yield family_of(JOBS_OLDEST_DUE_SECONDS, due)
