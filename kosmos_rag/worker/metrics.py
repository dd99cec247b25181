"""What a worker counts, by the names that its /metrics shows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kosmos_rag.errors import DatabaseError
from kosmos_rag.jobs.queue import Queue
from kosmos_rag.records import Job, JobState

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_COUNTERS = {
    "documents": ("Documents that jobs ended with, by outcome.", "outcome"),
    "chunks": ("Chunks published.", None),
    "truncated_tokens": ("Tokens of titles and sections that had no room before their chunks.", None),
    "failures": ("Attempts of jobs that failed, by code.", "code"),
    "unlisted": ("Documents that a source could not list, or that are as broken as they were, by code.", "code"),
    "stage_seconds": ("Seconds spent in a stage of ingestion, by stage.", "stage"),
    "batches": ("Batches embedded together.", None),
    "orphans": ("Rows found by maintenance that belong to nothing, by what they are.", "what"),
}


class WorkerMetrics:
    """The metrics of one supervisor, in a registry of its own. Thread-safe."""

    def __init__(self, queue: Queue) -> None:
        self.registry = CollectorRegistry()
        self._counters = {
            name: Counter(f"kosmos_worker_{name}", text, [label] if label else [], registry=self.registry)
            for name, (text, label) in _COUNTERS.items()
        }
        self._totals: dict[tuple[str, str], float] = {}
        self._waited = Histogram(
            "kosmos_worker_job_wait_seconds", "Seconds from due to taken.", buckets=_SECONDS, registry=self.registry
        )
        self._batch = Histogram(
            "kosmos_worker_batch_jobs",
            "Jobs taken at once.",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
            registry=self.registry,
        )
        self._lost = Counter("kosmos_worker_leases_lost", "Jobs that were given to others.", registry=self.registry)
        self._died = Counter(
            "kosmos_worker_processes_died", "Processes that ended by themselves.", registry=self.registry
        )
        self.registry.register(_Jobs(queue))

    def add(self, counts: Mapping[tuple[str, str], float]) -> None:
        """Add what a process counted."""
        for (name, label), amount in counts.items():
            counter = self._counters[name]
            (counter.labels(label) if label else counter).inc(amount)
            self._totals[name, label] = self._totals.get((name, label), 0.0) + amount

    def total(self, name: str, label: str | None = None) -> float:
        """Return a counter's value so far; of all its labels together where none is named."""
        return sum(
            value
            for (known, value_label), value in self._totals.items()
            if known == name and label in (None, value_label)
        )

    def took(self, jobs: Sequence[Job]) -> None:
        """Count a batch that was taken."""
        self._batch.observe(len(jobs))
        for job in jobs:
            self._waited.observe(job.waited_s)

    def lost(self, jobs: int) -> None:
        """Count leases that were lost."""
        self._lost.inc(jobs)

    def died(self) -> None:
        """Count a process that ended by itself."""
        self._died.inc()


class _Jobs(Collector):
    """The queue at the time of the scrape, of all tenants."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def describe(self) -> Iterable[Metric]:
        """Name what is collected without asking the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Ask the queue; where it is away, nothing is said of it."""
        jobs = GaugeMetricFamily("kosmos_jobs", "Jobs by kind and state.", labels=["kind", "state"])
        oldest = GaugeMetricFamily(
            "kosmos_jobs_oldest_due_seconds", "Age of the oldest job that is due, by kind.", labels=["kind"]
        )
        try:
            counts = self._queue.counts()
        except DatabaseError:
            return
        for count in counts:
            jobs.add_metric([count.kind, str(count.state)], count.count)
            if count.state is JobState.QUEUED:
                oldest.add_metric([count.kind], count.oldest_s)
        yield jobs
        yield oldest
