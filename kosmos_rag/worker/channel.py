"""Channel between a worker process and its supervisor: jobs, heartbeats, outcomes."""

import logging
import os
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Protocol, Self

from kosmos_rag.core.errors import DatabaseError, DatabaseUnavailable, ModelUnavailable, is_disk_full
from kosmos_rag.core.periodic import run_periodically
from kosmos_rag.core.telemetry.metrics import INGESTION, Metric
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.queue import Queue


@dataclass(frozen=True, kw_only=True, slots=True)
class Assign:
    """To a process: run these jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Revoke:
    """To a process: the leases of these jobs are lost.

    Their results would be refused.
    """

    tokens: frozenset[uuid.UUID]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """To a process: finish the started jobs, release the others, exit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """To the supervisor: the process can take jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """To the supervisor: the process is alive.

    Ended jobs, and metrics since the last message.
    """

    ended: frozenset[uuid.UUID] = frozenset()
    counts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Increments by `(counter, label)`; the label is empty where the counter has none."""
    gauges: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """`{(gauge, tenant): (value, seconds of validity)}`."""


ToProcess = Assign | Revoke | Stop
ToSupervisor = Ready | Progress


log = logging.getLogger("kosmos_rag.worker")

HEARTBEAT_S = 10.0
RELEASE_TIMEOUT_S = 30.0
"""How long a process retries a write while the database is unavailable: leases expire soon after."""


class JobInterrupted(Exception):
    """The worker stops, or the job's lease is lost.

    The job is released.
    """


class JobRunner(Protocol):
    """Runs the jobs of a process, and finishes, fails or releases each."""

    @property
    def database(self) -> Database:
        """The database of the results and the queue."""
        ...

    def run(self, jobs: Sequence[Job], channel: "SupervisorChannel") -> None:
        """Run jobs; may return before they have ended, and be called again."""
        ...

    def close(self) -> None:
        """Wait for started jobs, and release all resources."""
        ...


class SupervisorChannel:
    """Receives jobs from the supervisor, sends heartbeats and outcomes, releases jobs. Thread-safe."""

    def __init__(self, connection: Connection, queue: Queue) -> None:
        self.queue = queue
        self._connection = connection
        self._send_lock = threading.Lock()
        self._inbox: SimpleQueue[tuple[Job, ...] | None] = SimpleQueue()
        self._revoked: set[uuid.UUID] = set()
        self._stopping = threading.Event()
        self.fatal_error: ModelUnavailable | None = None
        """Why this machine cannot run jobs: the process exits, and other workers take its jobs."""
        threading.Thread(target=self._receive_messages, name="kosmos-rag-channel", daemon=True).start()

    def _receive_messages(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                # The supervisor has ended, and with it the leases: no result can be committed.
                os._exit(1)
            if isinstance(message, Assign):
                self._inbox.put(message.jobs)
            elif isinstance(message, Revoke):
                self._revoked |= message.tokens
            elif isinstance(message, Stop):
                self._stopping.set()
                self._inbox.put(None)

    @property
    def stopping(self) -> bool:
        """Whether to start no further job."""
        return self._stopping.is_set()

    def receive_jobs(self) -> tuple[Job, ...] | None:
        """Wait for the next jobs; None to stop the process."""
        self._send(Ready())
        jobs = self._inbox.get()
        if jobs is not None and self.stopping:
            self.release(jobs)
            return None
        return jobs

    def is_revoked(self, job: Job) -> bool:
        """Whether a job was cancelled, or assigned to another worker."""
        return job.token in self._revoked

    def require_running(self, job: Job) -> None:
        """Raise JobInterrupted if the worker stops or lost the job."""
        if self.stopping or self.is_revoked(job):
            raise JobInterrupted

    def report_progress(self) -> None:
        """Report to the supervisor that the process is alive."""
        self._send(Progress())

    @contextmanager
    def heartbeat(self, limit_s: float) -> Iterator[Callable[[], None]]:
        """Report progress every `HEARTBEAT_S` within the block, for at most `limit_s` seconds.

        The block gets a function that starts the limit again.
        """
        deadline = time.monotonic() + limit_s

        def restart() -> None:
            nonlocal deadline
            deadline = time.monotonic() + limit_s

        def report() -> None:
            if time.monotonic() < deadline:
                self.report_progress()

        with run_periodically(report, interval_s=HEARTBEAT_S, delay_s=HEARTBEAT_S, thread_name="kosmos-rag-heartbeat"):
            yield restart

    def finish(self, job: Job) -> None:
        """Mark a job as done in the queue."""
        self.queue.finish({job.token: Outcome.DONE})

    def report_ended(self, jobs: Iterable[Job], counts: Mapping[tuple[str, str], float] | None = None) -> None:
        """Report that jobs need no lease any more, with counters to add."""
        tokens = frozenset(job.token for job in jobs)
        self._revoked -= tokens
        self._send(Progress(ended=tokens, counts=dict(counts or {})))

    def report_counts(self, counts: Mapping[tuple[str, str], float]) -> None:
        """Report counters to add."""
        if counts:
            self._send(Progress(counts=dict(counts)))

    def report_gauges(self, tenant: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        """Report gauges of a tenant that are combined across tenants.

        Args:
            hold_s: seconds after which a value expires unless it is reported again.
        """
        gauges = {(metric.name, tenant): (value, hold_s) for metric, value in values.items()}
        self._send(Progress(gauges=gauges))

    def release(self, jobs: Sequence[Job]) -> None:
        """Return jobs to the queue as if they had not been claimed.

        Waits for the database.
        """
        if jobs:
            log.info("%d jobs are released", len(jobs), extra={"action": "jobs_released"})
            self.retry_until_available(lambda: self.queue.release([job.token for job in jobs]))
            self.report_ended(jobs)

    def retry_until_available(self, write: Callable[[], object]) -> None:
        """Retry `write` until it succeeds or the leases have expired.

        It fails while the database is unavailable or has no space.
        """
        deadline = time.monotonic() + RELEASE_TIMEOUT_S
        while True:
            try:
                write()
                return
            except DatabaseError as error:
                if not (isinstance(error, DatabaseUnavailable) or is_disk_full(error)):
                    log.error("%s", error, extra={"action": "queue_refused"})
                    return
                if time.monotonic() > deadline:
                    log.warning("%s", error, extra={"action": "queue_unreachable"})
                    return
                self.report_progress()
                time.sleep(0.5)

    def _send(self, message: Ready | Progress) -> None:
        try:
            with self._send_lock:
                self._connection.send(message)
        except OSError:
            os._exit(1)  # the supervisor has ended, as in _receive_messages


class CounterBuffer(defaultdict[tuple[str, str], float]):
    """Counters of a child process until they are sent to the supervisor.

    Attached to an engine it collects the metrics of ingestion: a child process exports none itself.
    """

    def __init__(self) -> None:
        super().__init__(float)
        self._lock = threading.Lock()

    @classmethod
    def from_counter(cls, name: str, amount: float = 1.0, label: str = "") -> Self:
        """Return a buffer of one counter."""
        counts = cls()
        counts.add(name, amount, label)
        return counts

    def add(self, name: str, amount: float = 1.0, label: str = "") -> None:
        """Add to a counter. Thread-safe."""
        with self._lock:
            self[name, label] += amount

    def record(self, metric: Metric, value: float = 1.0, *labels: str) -> None:
        """Add to a metric of ingestion; ignore others."""
        if metric in INGESTION:
            self.add(metric.name, value, *labels)

    def gauge(self, metric: Metric, read: Callable[[], float], *labels: str) -> None:
        """Ignore gauges: child processes are not scraped."""

    def drain(self) -> dict[tuple[str, str], float]:
        """Return all counters and reset them."""
        with self._lock:
            counts = dict(self)
            self.clear()
        return counts
