"""The supervisor of a worker's processes.

It claims jobs, renews their leases, replaces stuck or dead processes, and drains. It runs no jobs itself: whatever a
job does to its process, the supervisor renews the leases and detects the end of the process at once.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from multiprocessing.connection import wait
from typing import Any

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, DatabaseError, KosmosError
from kosmos_rag.core.periodic import run_periodically
from kosmos_rag.core.telemetry.health import ALIVE_S, Probes, ReadyState, serve_health
from kosmos_rag.engine.job_kinds import NO_WINGS, LazyFunction, WingJobs
from kosmos_rag.parsing.sandbox.fork_server import probe_isolation
from kosmos_rag.parsing.sandbox.limits import clear_dumpable
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.sql import statement
from kosmos_rag.worker.channel import Progress, ToSupervisor
from kosmos_rag.worker.cluster import ClusterWatch
from kosmos_rag.worker.collectors import WorkerMetrics
from kosmos_rag.worker.process import JobRunnerFactory, WorkerProcess

log = logging.getLogger("kosmos_rag.worker")

_TICK_S = 1.0
_STARTUP_S = 30.0
_MAX_BACKOFF_S = 30.0
_CREATE_RUNNER = LazyFunction("kosmos_rag.worker.handlers:create_runner")
"""Only the processes import the engine."""


class Supervisor:
    """Runs worker processes until it is stopped.

    With `until_idle` it stops when the queue is empty.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        kinds: Sequence[str],
        create_runner: JobRunnerFactory,
        until_idle: bool = False,
        on_progress: Callable[["Supervisor"], None] | None = None,
    ) -> None:
        self._settings = settings
        self._limits = settings.worker
        self._kinds = list(kinds)
        self._create_runner = create_runner
        self._until_idle = until_idle
        self._on_progress = on_progress
        self._database = Database(settings.database)
        self._queue = Queue.open(
            self._database, settings.worker, on_expired=lambda leases: self.metrics.record_lost_leases(leases)
        )
        self._processes: list[WorkerProcess] = []
        self._last_number = 0
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = False
        self._drain_deadline = float("inf")
        self._restart_at = 0.0
        self._failures = 0
        self._retry_at = self._report_at = self._finish_sync_runs_at = 0.0
        self._sync_runs_may_end = True
        self._sync_runs = SyncRuns(self._database.worker)
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        for end in (self._wakeup_receiver, self._wakeup_sender):
            end.setblocking(False)
        self.ticked_at = self.queue_reached_at = time.monotonic()
        self._cluster = ClusterWatch(self._database)
        self.metrics = WorkerMetrics(self._queue, self._database, self._cluster, self._kinds)
        self._dead_jobs = 0

    def stop(self) -> None:
        """Claim no more jobs, drain for `worker.drain_s`, return from `run`.

        Safe in a signal handler.
        """
        self._stopping = True
        with suppress(OSError):
            self._wakeup_sender.send(b"\0")

    def count_unfinished(self) -> int:
        """Count the unfinished jobs; 0 where the queue cannot be reached."""
        with suppress(DatabaseError):
            return self._queue.count_unfinished(self._kinds)
        return 0

    @property
    def failed(self) -> int:
        """Number of dead jobs and listing failures of this run.

        Complete when `run` has returned.
        """
        return self._dead_jobs + int(self.metrics.total("listing_failures"))

    @property
    def ready(self) -> bool:
        """Whether the queue was reached recently, and a process can work."""
        queue_reachable = time.monotonic() - self.queue_reached_at < max(_STARTUP_S, 3 * self._limits.poll_s)
        return (
            queue_reachable
            and not self._stopping
            and any(process.ready or process.tokens for process in self._processes)
        )

    def _probes(self) -> Probes:
        return Probes(
            is_alive=lambda: time.monotonic() - self.ticked_at < ALIVE_S,
            ready_state=lambda: ReadyState(ready=self.ready, unavailable_nodes=self._cluster.unavailable),
            registry=self.metrics.registry,
        )

    def run(self) -> None:
        """Run jobs until `stop` is called, or the queue is empty.

        Returns at an empty queue with `until_idle` only. Raises DatabaseError where the database is not usable at the
        start; later the supervisor waits for it. Raises ConfigError where files are to be parsed in isolation and
        cannot be.
        """
        if kinds.DOCUMENT in self._kinds:
            self._check_isolation()
        since = self._queue.read_server_time()
        with ExitStack() as stack:
            stack.callback(self._database.close)
            stack.callback(self._summarise, since)
            stack.callback(self._wakeup_receiver.close)
            stack.callback(self._wakeup_sender.close)
            if self._limits.health_port is not None:
                stack.enter_context(
                    serve_health(self._probes(), "", self._limits.health_port, key="worker.health_port")
                )
            stack.callback(self._end_processes)
            stack.enter_context(self._leases())
            self._start_missing(self.ticked_at)  # they import the engine and load its model meanwhile
            stack.enter_context(self._cluster.run_in_background())
            if kinds.SYNC in self._kinds and not self._until_idle:
                from kosmos_rag.worker.source_watch import SourceWatch

                stack.enter_context(SourceWatch(self._database, self._settings).run_in_background())
            listener = stack.enter_context(_Listener(self._database.worker))
            while self._tick():
                self._wait(listener)

    def _check_isolation(self) -> None:
        isolation = probe_isolation()
        self.metrics.set_isolation(isolation)
        if self._settings.ingestion.parsing.require_isolation and not isolation.complete:
            raise ConfigError(isolation.remedy())
        level = logging.INFO if isolation.complete else logging.WARNING
        log.log(level, "%s", isolation.describe(), extra={"action": "parser_isolation"})

    def _summarise(self, since: datetime) -> None:
        with suppress(DatabaseError):
            self._sync_runs.finish_completed()
            self._dead_jobs = self._queue.count_dead_since(since, self._kinds)

    def _tick(self) -> bool:
        """Run one iteration of the main loop. Returns whether to continue."""
        now = self.ticked_at = time.monotonic()
        self._drain_messages()
        self._check_processes(now)
        if self._stopping:
            self._drain(now)
            return any(process.alive for process in self._processes)
        self._start_missing(now)
        if now >= self._retry_at:
            try:
                self._finish_sync_runs(now)
                if not self._dispatch() and self._until_idle and self._is_idle():
                    self.stop()
                self.queue_reached_at, self._failures = now, 0
            except DatabaseError as error:
                self._failures += 1
                pause = min(_MAX_BACKOFF_S, 0.25 * 2.0 ** min(self._failures, 10))
                self._retry_at = now + pause
                log.warning("%s; next try in %.1f s", error, pause, extra={"action": "queue_unreachable"})
        if self._on_progress is not None and now >= self._report_at:
            self._report_at = now + _TICK_S
            self._on_progress(self)
        return True

    def _dispatch(self) -> bool:
        """Claim jobs for idle processes. Returns whether there were any."""
        claimed = False
        for process in self._processes:
            if not process.ready or not process.alive:
                continue
            jobs = self._queue.claim(self._limits.batch, kinds=self._kinds, worker=f"{self._name}/{process.number}")
            if not jobs:
                break
            self.metrics.record_claim(jobs)
            process.assign(jobs)
            claimed = True
        return claimed

    def _is_idle(self) -> bool:
        waiting = [process for process in self._processes if process.ready and not process.tokens]
        return len(waiting) == self._limits.processes and self._queue.count_unfinished(self._kinds) == 0

    def _drain_messages(self) -> None:
        for process in self._processes:
            while (message := process.receive()) is not None:
                self._handle(message)

    def _handle(self, message: ToSupervisor) -> None:
        if isinstance(message, Progress):
            self.metrics.add(message.counts)
            self.metrics.set_tenant_gauges(message.gauges)
            self._sync_runs_may_end |= bool(message.ended)

    def _finish_sync_runs(self, now: float) -> None:
        """Finish the sync runs whose last document has its outcome."""
        if self._sync_runs_may_end and now >= self._finish_sync_runs_at:
            self._finish_sync_runs_at = now + _TICK_S
            self._sync_runs_may_end = False
            self._sync_runs.finish_completed()

    def _check_processes(self, now: float) -> None:
        """Reap ended processes; kill those that are stuck or exceed their memory."""
        for process in list(self._processes):
            if not process.alive:
                self._reap(process, now)
                continue
            silent_s = now - process.last_message_at
            if process.tokens and silent_s > self._limits.stuck_s:
                log.error(
                    "process %d made no progress for %.0f s and is killed", process.pid, silent_s,
                    extra={"action": "process_stuck"},
                )  # fmt: skip
                process.kill()
            memory = process.memory_mb()
            if memory > self._limits.memory_mb:
                log.error(
                    "process %d uses %.0f MB, more than worker.memory_mb, and is killed", process.pid, memory,
                    extra={"action": "process_too_large"},
                )  # fmt: skip
                process.kill()
            elif memory > 0.75 * self._limits.memory_mb and not process.retired:
                log.info(
                    "process %d uses %.0f MB and is replaced", process.pid, memory,
                    extra={"action": "process_replaced"},
                )  # fmt: skip
                process.stop()

    def _reap(self, process: WorkerProcess, now: float) -> None:
        self._processes.remove(process)
        while (message := process.receive()) is not None:
            self._handle(message)
        tokens = list(process.tokens)
        code = process.reap()
        expected = self._stopping or (process.retired and (code == 0 or not process.initialized))
        # A stop by the supervisor is no fault of a job.
        release = self._queue.release if expected else self._queue.expire_leases
        if tokens:
            with suppress(DatabaseError):  # else their leases expire
                release(tokens)
        if expected and code in (0, -signal.SIGKILL):
            return
        log.error(
            "process %d ended unexpectedly with code %s and %d jobs", process.pid, code, len(tokens),
            extra={"action": "process_died"},
        )  # fmt: skip
        self.metrics.record_process_death()
        if now - process.started_at < _STARTUP_S:
            # It may die at once again: a missing model, too little memory.
            self._restart_at = now + 5.0

    def _start_missing(self, now: float) -> None:
        if now < self._restart_at:
            return
        for _ in range(self._limits.processes - len(self._processes)):
            self._last_number += 1
            self._processes.append(WorkerProcess(self._last_number, self._child_settings(), self._create_runner))

    def _child_settings(self) -> Settings:
        """Return settings with the address of the server.

        A child process must not start or stop an embedded one.
        """
        database = self._settings.database.model_copy(update=self._database.urls())
        return self._settings.model_copy(update={"database": database})

    def _drain(self, now: float) -> None:
        if self._drain_deadline == float("inf"):
            self._drain_deadline = now + self._limits.drain_s
            for process in self._processes:
                process.stop()
        elif now > self._drain_deadline:
            for process in self._processes:
                log.warning(
                    "process %d has not ended within worker.drain_s; its jobs are released", process.pid,
                    extra={"action": "process_not_drained"},
                )  # fmt: skip
                process.kill()

    def _end_processes(self) -> None:
        for process in self._processes:
            process.kill()
            process.reap()

    def _wait(self, listener: "_Listener") -> None:
        """Sleep until a process, the queue or `stop` wakes the main loop."""
        busy = any(process.tokens for process in self._processes) or self._stopping
        pause = min(self._limits.poll_s, _TICK_S) if busy or self._until_idle else self._limits.poll_s
        sources: list[Any] = [process.connection for process in self._processes]
        sources.append(self._wakeup_receiver)
        if (notifications := listener.fileno()) is not None and not self._stopping:
            sources.append(notifications)
        wait(sources, pause)
        with suppress(OSError):
            self._wakeup_receiver.recv(1024)
        listener.drain()

    def _leases(self) -> AbstractContextManager[None]:
        """Renew the leases from a thread that does nothing else."""
        interval_s = self._limits.lease_s / 4
        return run_periodically(self._renew, interval_s=interval_s, delay_s=interval_s, thread_name="kosmos-rag-leases")

    def _renew(self) -> None:
        tokens = {token for process in list(self._processes) for token in process.tokens}
        if not tokens:
            return
        try:
            lost_tokens = tokens - self._queue.renew(list(tokens))
        except KosmosError as error:
            log.warning("leases are not renewed: %s", error, extra={"action": "renew_failed"})
            return
        if lost_tokens:
            # Some jobs may have just ended: wait for the messages of their processes.
            time.sleep(_TICK_S)
        for process in list(self._processes):
            process.revoke(lost_tokens)


class _Listener:
    """Listens for notifications of new jobs.

    A pooler in transaction mode forwards none.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        self._stack = ExitStack()
        self._connection: psycopg.Connection | None = None
        self._retry_at = 0.0

    def __enter__(self) -> "_Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def fileno(self) -> int | None:
        """Return the descriptor that notifications make readable; None while disconnected."""
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _TICK_S
            with suppress(psycopg.Error, KosmosError):
                connection = self._stack.enter_context(self._pool.session())
                connection.execute(statement("listen_for_jobs"))
                self._connection = connection
        return None if self._connection is None else self._connection.fileno()

    def drain(self) -> None:
        """Discard the notifications; they have no payload."""
        if self._connection is None:
            return
        try:
            for _ in self._connection.notifies(timeout=0):
                pass
        except psycopg.Error:
            self._close()

    def _close(self) -> None:
        self._connection = None
        with suppress(psycopg.Error, KosmosError):
            self._stack.close()


def create_supervisor(
    settings: Settings,
    *,
    kinds: Sequence[str] = kinds.KERNEL,
    wings: WingJobs = NO_WINGS,
    until_idle: bool = False,
    on_progress: Callable[[Supervisor], None] | None = None,
) -> Supervisor:
    """Create the supervisor of a worker.

    Args: see `run_worker`. Raises ConfigError, DatabaseError.
    """
    return Supervisor(
        settings,
        kinds=[*kinds, *(kind.name for kind in wings.kinds)],
        create_runner=partial(_CREATE_RUNNER, wings=wings),
        until_idle=until_idle,
        on_progress=on_progress,
    )


def run_worker(
    settings: Settings,
    *,
    kinds: Sequence[str] = kinds.KERNEL,
    wings: WingJobs = NO_WINGS,
    until_idle: bool = False,
    on_progress: Callable[[Supervisor], None] | None = None,
) -> Supervisor:
    """Run jobs until SIGTERM or SIGINT, or until the queue is empty.

    Main thread only.

    Args:
        kinds: kinds of jobs of the kernel to run.
        until_idle: return when the queue is empty.
        on_progress: called with the supervisor about once a second.

    Returns:
        The supervisor, with its counters.

    Raises:
        ConfigError: a setting is invalid.
        DatabaseError: the database is not usable at the start.
    """
    clear_dumpable()
    supervisor = create_supervisor(settings, kinds=kinds, wings=wings, until_idle=until_idle, on_progress=on_progress)
    with stop_on_signals(supervisor):
        supervisor.run()
    return supervisor


@contextmanager
def stop_on_signals(supervisor: Supervisor) -> Iterator[None]:
    """Drain the supervisor at SIGTERM and SIGINT. Main thread only."""
    previous = {
        number: signal.signal(number, lambda *_: supervisor.stop()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
