"""The channel of a working process: receives jobs, sends heartbeats and outcomes, releases unfinished jobs."""

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

from kosmos_rag.core.errors import DatabaseError, DatabaseUnavailable, ModelUnavailable
from kosmos_rag.core.telemetry.metrics import INGESTION, Metric
from kosmos_rag.core.types import Job
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.queue.queue import Queue


@dataclass(frozen=True, kw_only=True, slots=True)
class Assign:
    """To a process: work on these jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Revoke:
    """To a process: these jobs are no longer yours; their results would be refused."""

    tokens: frozenset[uuid.UUID]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """To a process: finish the started jobs, release the others, exit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """To the supervisor: I can take jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """To the supervisor: I live, these jobs have ended, and this has happened since the last time."""

    ended: frozenset[uuid.UUID] = frozenset()
    counts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By the name of a counter and the value of its label, empty where it has none."""
    measured: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """Of a tenant, by the name of the gauge and its own: the value, and for how many seconds it holds."""


ToProcess = Assign | Revoke | Stop
ToSupervisor = Ready | Progress


log = logging.getLogger("kosmos_rag.apps.worker")

HEARTBEAT_S = 10.0
RELEASE_TIMEOUT_S = 30.0
"""How long a process tries to give jobs back to a database that is away: their leases run out soon after."""


class Work(Protocol):
    """What a process does with jobs. It finishes or fails each of them, or gives it back."""

    @property
    def database(self) -> Database:
        """Where its results go, and where the queue is."""
        ...

    def run(self, jobs: Sequence[Job], channel: "SupervisorChannel") -> None:
        """Work on jobs; may return before they have ended, and be called again."""
        ...

    def close(self) -> None:
        """Wait for what has begun, and let go of everything."""
        ...


class SupervisorChannel:
    """Receives jobs from the supervisor, sends heartbeats and outcomes, releases jobs. Thread-safe."""

    def __init__(self, connection: Connection, queue: Queue) -> None:
        self.queue = queue
        self._connection = connection
        self._sending = threading.Lock()
        self._inbox: SimpleQueue[tuple[Job, ...] | None] = SimpleQueue()
        self._revoked: set[uuid.UUID] = set()
        self._stopping = threading.Event()
        self.fatal_error: ModelUnavailable | None = None
        """Why this machine cannot do the work: the process ends, and other workers take its jobs."""
        threading.Thread(target=self._listen, name="kosmos-rag-channel", daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                # The supervisor is gone, and with it the leases: nothing that is done here can be kept.
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
        """Whether no further job is to be started."""
        return self._stopping.is_set()

    def receive_jobs(self) -> tuple[Job, ...] | None:
        """Wait for the next jobs; None when the process is to stop."""
        self._send(Ready())
        jobs = self._inbox.get()
        if jobs is not None and self.stopping:
            self.release(jobs)
            return None
        return jobs

    def is_revoked(self, job: Job) -> bool:
        """Whether a job was cancelled, or assigned to another worker."""
        return job.token in self._revoked

    def report_progress(self) -> None:
        """Tell the supervisor that the process is alive."""
        self._send(Progress())

    @contextmanager
    def heartbeat(self, limit_s: float) -> Iterator[None]:
        """Report progress every `HEARTBEAT_S` within the block, for at most `limit_s` seconds."""
        done = threading.Event()

        def beat() -> None:
            until = time.monotonic() + limit_s
            while not done.wait(HEARTBEAT_S) and time.monotonic() < until:
                self.report_progress()

        thread = threading.Thread(target=beat, name="kosmos-rag-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def report_ended(self, jobs: Iterable[Job], counts: dict[tuple[str, str], float] | None = None) -> None:
        """Report that jobs need no lease any more, with counters to add."""
        tokens = frozenset(job.token for job in jobs)
        self._revoked -= tokens
        self._send(Progress(ended=tokens, counts=dict(counts or {})))

    def report_gauges(self, tenant: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        """Tell what was measured of a tenant, for gauges `across_tenants`; it holds for so long unless told again."""
        told = {(metric.name, tenant): (value, hold_s) for metric, value in values.items()}
        self._send(Progress(measured=told))

    def release(self, jobs: Sequence[Job]) -> None:
        """Return jobs to the queue as if they had not been claimed; waits for the database."""
        if jobs:
            log.info("%d jobs are released", len(jobs), extra={"action": "jobs_released"})
            self.retry_until_available(lambda: self.queue.release([job.token for job in jobs]))
            self.report_ended(jobs)

    def retry_until_available(self, write: Callable[[], object]) -> None:
        """Call `write` until the database is available, or until the leases have expired."""
        until = time.monotonic() + RELEASE_TIMEOUT_S
        while True:
            try:
                write()
                return
            except DatabaseUnavailable as error:
                if time.monotonic() > until:
                    log.warning("%s", error, extra={"action": "queue_unreachable"})
                    return
                self.report_progress()
                time.sleep(0.5)
            except DatabaseError as error:
                log.error("%s", error, extra={"action": "queue_refused"})
                return

    def _send(self, message: Ready | Progress) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:
            os._exit(1)  # the supervisor is gone, as in _listen


class CounterBuffer(defaultdict[tuple[str, str], float]):
    """Counters of a child process, by name and label, until they are sent to the supervisor.

    Attached to an engine it collects the metrics of ingestion: a child process exports none itself.
    """

    def __init__(self) -> None:
        super().__init__(float)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, name: str, amount: float = 1.0, label: str = "") -> Self:
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
        """Ignore gauges: they are exported at a scrape, and nobody scrapes a child process."""

    def take(self) -> dict[tuple[str, str], float]:
        """Return all counters and start again at 0."""
        with self._lock:
            counts = dict(self)
            self.clear()
        return counts
