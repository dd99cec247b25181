"""The supervisor: takes jobs for its processes, renews their leases, replaces what is stuck or dead, and drains.

It does no work of its own: whatever a job does to its process, the leases are renewed here, and a process that has
ended without a word is known at once.
"""

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from multiprocessing.connection import wait
from typing import Any

import psycopg

from kosmos_rag.apps.worker.channel import Progress, ToSupervisor
from kosmos_rag.apps.worker.handlers import open_work
from kosmos_rag.apps.worker.health import serve_health
from kosmos_rag.apps.worker.metrics import WorkerMetrics
from kosmos_rag.apps.worker.process import OpenWork, WorkerProcess
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, KosmosError
from kosmos_rag.ingestion.sandbox.limits import clear_dumpable
from kosmos_rag.storage.pool import ConnectionPool, Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.sql import statement

log = logging.getLogger("kosmos_rag.apps.worker")

_TICK_S = 1.0
_YOUNG_S = 30.0
_LONGEST_PAUSE_S = 30.0


class Supervisor:
    """Runs working processes until it is told to stop, or until nothing is left to do."""

    def __init__(
        self,
        settings: Settings,
        *,
        kinds: Sequence[str],
        open_work: OpenWork,
        until_idle: bool = False,
        on_progress: Callable[["Supervisor"], None] | None = None,
    ) -> None:
        self._settings = settings
        self._limits = settings.worker
        self._kinds = list(kinds)
        self._open_work = open_work
        self._until_idle = until_idle
        self._on_progress = on_progress
        self._database = Database(settings.database)
        self._queue = Queue.open(self._database, settings.worker)
        self._processes: list[WorkerProcess] = []
        self._numbers = 0
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._stopping = False
        self._drain_until = float("inf")
        self._start_again_at = 0.0
        self._failures = 0
        self._retry_at = self._tell_at = self._close_at = 0.0
        self._runs_may_end = True
        self._sync_runs = SyncRuns(self._database.worker)
        self._woken, self._waker = socket.socketpair()
        for end in (self._woken, self._waker):
            end.setblocking(False)
        self.ticked_at = self.reached_at = time.monotonic()
        self.metrics = WorkerMetrics(self._queue, self._database)
        self._dead = 0

    def stop(self) -> None:
        """Take nothing more, let what runs end within `worker.drain_s`, return from `run`. Safe in a signal handler."""
        self._stopping = True
        with suppress(OSError):
            self._waker.send(b"\0")

    def waiting(self) -> int:
        """Count the jobs that are not finished; 0 where the queue cannot be reached."""
        with suppress(DatabaseError):
            return self._queue.count_unfinished(self._kinds)
        return 0

    @property
    def failed(self) -> int:
        """What failed for good while this ran: jobs, and what sources could not list. Known when it has ended."""
        return self._dead + int(self.metrics.total("listing_failures"))

    @property
    def ready(self) -> bool:
        """Whether the queue was reached lately, and a process can work."""
        lately = time.monotonic() - self.reached_at < max(_YOUNG_S, 3 * self._limits.poll_s)
        return lately and not self._stopping and any(process.ready or process.tokens for process in self._processes)

    def run(self) -> None:
        """Work until `stop` is called, or nothing is left where that was asked for.

        Raises DatabaseError where the database is not one to work with at the start; later it is waited for.
        """
        since = self._queue.server_time()
        with ExitStack() as stack:
            stack.callback(self._database.close)
            stack.callback(self._summarise, since)
            stack.callback(self._woken.close)
            stack.callback(self._waker.close)
            if self._limits.health_port is not None:
                stack.enter_context(serve_health(self, self._limits.health_port))
            stack.callback(self._end_processes)
            stack.enter_context(self._leases())
            listener = stack.enter_context(_Listener(self._database.worker))
            while self._tick():
                self._wait(listener)

    def _summarise(self, since: datetime) -> None:
        with suppress(DatabaseError):
            self._sync_runs.finish_completed()
            self._dead = self._queue.count_dead_since(since, self._kinds)

    def _tick(self) -> bool:
        """Do what is due now. Returns whether to go on."""
        now = self.ticked_at = time.monotonic()
        self._drain_messages()
        self._check_processes(now)
        if self._stopping:
            self._drain(now)
            return any(process.alive for process in self._processes)
        self._start_missing(now)
        if now >= self._retry_at:
            try:
                self._close_runs(now)
                if not self._dispatch() and self._until_idle and self._is_idle():
                    self.stop()
                self.reached_at, self._failures = now, 0
            except DatabaseError as error:
                self._failures += 1
                pause = min(_LONGEST_PAUSE_S, 0.25 * 2.0 ** min(self._failures, 10))
                self._retry_at = now + pause
                log.warning("%s; next try in %.1f s", error, pause, extra={"action": "queue_unreachable"})
        if self._on_progress is not None and now >= self._tell_at:
            self._tell_at = now + _TICK_S
            self._on_progress(self)
        return True

    def _dispatch(self) -> bool:
        """Claim jobs for the idle processes. Returns whether there were any."""
        taken = False
        for process in self._processes:
            if not process.ready or not process.alive:
                continue
            jobs = self._queue.claim(self._limits.batch, kinds=self._kinds, worker=f"{self._name}/{process.number}")
            if not jobs:
                break
            self.metrics.record_claim(jobs)
            process.assign(jobs)
            taken = True
        return taken

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
            self.metrics.set_tenant_gauges(message.measured)
            self._runs_may_end |= bool(message.ended)

    def _close_runs(self, now: float) -> None:
        """Close the runs whose last document has just got its outcome."""
        if self._runs_may_end and now >= self._close_at:
            self._close_at = now + _TICK_S
            self._runs_may_end = False
            self._sync_runs.finish_completed()

    def _check_processes(self, now: float) -> None:
        """Reap ended processes; end stuck ones and those with too much memory."""
        for process in list(self._processes):
            if not process.alive:
                self._reap(process, now)
                continue
            silent = now - process.last_message_at
            if process.tokens and silent > self._limits.stuck_s:
                log.error(
                    "process %d made no progress for %.0f s and is ended", process.pid, silent,
                    extra={"action": "process_stuck"},
                )  # fmt: skip
                process.kill()
            memory = process.memory_mb()
            if memory > self._limits.memory_mb:
                log.error(
                    "process %d takes %.0f MB, more than worker.memory_mb, and is ended", process.pid, memory,
                    extra={"action": "process_too_large"},
                )  # fmt: skip
                process.kill()
            elif memory > 0.75 * self._limits.memory_mb and not process.retired:
                log.info(
                    "process %d takes %.0f MB and is replaced", process.pid, memory,
                    extra={"action": "process_replaced"},
                )  # fmt: skip
                process.stop()

    def _reap(self, process: WorkerProcess, now: float) -> None:
        self._processes.remove(process)
        while (message := process.receive()) is not None:
            self._handle(message)
        tokens = list(process.tokens)
        code = process.reap()
        ours = self._stopping or (process.retired and (code == 0 or not process.opened))
        # What we stop ourselves is no fault of a job.
        release = self._queue.release if ours else self._queue.expire_leases
        if tokens:
            with suppress(DatabaseError):  # else their leases run out
                release(tokens)
        if ours and code in (0, -signal.SIGKILL):
            return
        log.error(
            "process %d ended by itself with code %s, holding %d jobs", process.pid, code, len(tokens),
            extra={"action": "process_died"},
        )  # fmt: skip
        self.metrics.record_died_process()
        if now - process.started_at < _YOUNG_S:
            # It may die of the same again at once: a model that is not there, a machine without memory.
            self._start_again_at = now + 5.0

    def _start_missing(self, now: float) -> None:
        if now < self._start_again_at:
            return
        for _ in range(self._limits.processes - len(self._processes)):
            self._numbers += 1
            self._processes.append(WorkerProcess(self._numbers, self._child_settings(), self._open_work))

    def _child_settings(self) -> Settings:
        """Return settings in which the server is named by address: a process must not start or stop an embedded one."""
        database = self._settings.database.model_copy(update=self._database.urls())
        return self._settings.model_copy(update={"database": database})

    def _drain(self, now: float) -> None:
        if self._drain_until == float("inf"):
            self._drain_until = now + self._limits.drain_s
            for process in self._processes:
                process.stop()
        elif now > self._drain_until:
            for process in self._processes:
                log.warning(
                    "process %d has not ended within worker.drain_s; its jobs go back", process.pid,
                    extra={"action": "process_not_drained"},
                )  # fmt: skip
                process.kill()

    def _end_processes(self) -> None:
        for process in self._processes:
            process.kill()
            process.reap()

    def _wait(self, listener: "_Listener") -> None:
        """Sleep until a process, the queue or a caller of `stop` has something to say."""
        busy = any(process.tokens for process in self._processes) or self._stopping
        pause = min(self._limits.poll_s, _TICK_S) if busy or self._until_idle else self._limits.poll_s
        sources: list[Any] = [process.connection for process in self._processes]
        sources.append(self._woken)
        if (heard := listener.socket()) is not None and not self._stopping:
            sources.append(heard)
        wait(sources, pause)
        with suppress(OSError):
            self._woken.recv(1024)
        listener.drain()

    @contextmanager
    def _leases(self) -> Iterator[None]:
        """Renew the leases from a thread of this process, which does nothing that could hold it up."""
        ended = threading.Event()

        def keep() -> None:
            while not ended.wait(self._limits.lease_s / 4):
                self._renew()

        thread = threading.Thread(target=keep, name="kosmos-rag-leases", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _renew(self) -> None:
        tokens = {token for process in list(self._processes) for token in process.tokens}
        if not tokens:
            return
        try:
            lost = tokens - self._queue.renew(list(tokens))
        except KosmosError as error:
            log.warning("leases are not renewed: %s", error, extra={"action": "renew_failed"})
            return
        if lost:
            # Some have ended only just now, and their processes' word of it is on its way.
            time.sleep(_TICK_S)
        for process in list(self._processes):
            self.metrics.record_lost_leases(process.revoke(lost))


class _Listener:
    """Listens for notifications of new jobs; a pooler in transaction mode passes none on."""

    def __init__(self, role: ConnectionPool) -> None:
        self._role = role
        self._stack = ExitStack()
        self._connection: psycopg.Connection | None = None
        self._retry_at = 0.0

    def __enter__(self) -> "_Listener":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def socket(self) -> int | None:
        """Return what becomes readable when there is news; None while there is no connection."""
        if self._connection is None and time.monotonic() >= self._retry_at:
            self._retry_at = time.monotonic() + _TICK_S
            with suppress(psycopg.Error, KosmosError):
                connection = self._stack.enter_context(self._role.session())
                connection.execute(statement("listen_for_jobs"))
                self._connection = connection
        return None if self._connection is None else self._connection.fileno()

    def drain(self) -> None:
        """Take the news: that there is some is all that they say."""
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


def run_worker(
    settings: Settings,
    *,
    kinds: Sequence[str] = kinds.ALL,
    until_idle: bool = False,
    on_progress: Callable[[Supervisor], None] | None = None,
) -> Supervisor:
    """Work on the queue until SIGTERM or SIGINT, or until nothing is left. From the main thread of a process only.

    Returns the supervisor, for what it counted. Raises ConfigError, DatabaseError.
    """
    clear_dumpable()
    supervisor = Supervisor(settings, kinds=kinds, open_work=open_work, until_idle=until_idle, on_progress=on_progress)
    with stop_on_signals(supervisor):
        supervisor.run()
    return supervisor


@contextmanager
def stop_on_signals(supervisor: Supervisor) -> Iterator[None]:
    """Have SIGTERM and SIGINT drain the supervisor. From the main thread only."""
    before = {number: signal.signal(number, lambda *_: supervisor.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
