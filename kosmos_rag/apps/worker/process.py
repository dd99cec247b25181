"""One working process as its supervisor sees it."""

import signal
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil

from kosmos_rag.apps.worker.channel import (
    Assign,
    Progress,
    Ready,
    Revoke,
    Stop,
    SupervisorChannel,
    ToProcess,
    ToSupervisor,
    Work,
)
from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.logging import set_up_logging
from kosmos_rag.core.types import Job
from kosmos_rag.ingestion.sandbox.limits import clear_dumpable
from kosmos_rag.storage.queue.queue import Queue

OpenWork = Callable[[Settings], Work]
"""Makes what a process works with. Named in a module: each process imports it anew."""


def run(connection: Connection, settings: Settings, open_work: OpenWork) -> None:
    """Work until the supervisor says stop, or is gone."""
    clear_dumpable()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A terminal or an init system signals the whole group: when to end is the supervisor's to say.
        signal.signal(number, signal.SIG_IGN)
    set_up_logging(settings.observability)
    work = open_work(settings)
    try:
        channel = SupervisorChannel(connection, Queue.open(work.database, settings.worker))
        while channel.fatal_error is None and (jobs := channel.receive_jobs()) is not None:
            work.run(jobs, channel)
        if channel.fatal_error is not None:
            raise channel.fatal_error
    finally:
        work.close()


_MB = 1024 * 1024


class WorkerProcess:
    """A process with its jobs. It is started anew for each object: what one leaves behind is never used again."""

    def __init__(self, number: int, settings: Settings, open_work: OpenWork) -> None:
        # Not forked: models, connections and threads of the supervisor must not be in there.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=run, args=(theirs, settings, open_work), name=f"kosmos-rag-worker-{number}", daemon=True
        )
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.number = number
        self.pid: int = self._process.pid
        self.tokens: frozenset[uuid.UUID] = frozenset()
        """Of the jobs that it has not ended."""
        self._changing, self._sending = threading.Lock(), threading.Lock()
        self.opened = self.ready = False
        self.retired = False
        self.started_at = self.last_message_at = time.monotonic()

    @property
    def connection(self) -> Connection:
        """Readable when it has said something, or has ended."""
        return self._connection

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.is_alive()

    def assign(self, jobs: Sequence[Job]) -> None:
        """Assign jobs to it."""
        with self._changing:
            self.tokens |= {job.token for job in jobs}
        self.ready = False
        self.last_message_at = time.monotonic()
        self._send(Assign(jobs=tuple(jobs)))

    def revoke(self, tokens: Collection[uuid.UUID]) -> int:
        """Tell it which of its jobs are no longer its own. Returns how many there are. Safe beside the other calls."""
        with self._changing:
            mine = self.tokens & frozenset(tokens)
            self.tokens -= mine
        if mine:
            self._send(Revoke(tokens=mine))
        return len(mine)

    def stop(self) -> None:
        """Let it end what it has begun, and exit; one that still loads its model has begun nothing, and ends now."""
        if self.retired:
            return
        self.retired, self.ready = True, False
        if self.opened:
            self._send(Stop())
        else:
            self.kill()

    def kill(self) -> None:
        """End it now."""
        self._process.kill()

    def receive(self) -> ToSupervisor | None:
        """Return its next message; None where there is no more."""
        try:
            if not self._connection.poll():
                return None
            message: ToSupervisor = self._connection.recv()
        except (EOFError, OSError):
            return None
        self.last_message_at = time.monotonic()
        if isinstance(message, Ready):
            self.opened, self.ready = True, not self.retired
        elif isinstance(message, Progress):
            with self._changing:
                self.tokens -= message.ended
        return message

    def memory_mb(self) -> float:
        """Return its resident memory in megabytes; 0 where it has ended."""
        with suppress(psutil.Error):
            return float(psutil.Process(self.pid).memory_info().rss) / _MB
        return 0.0

    def reap(self, timeout_s: float | None = None) -> int | None:
        """Wait for its end and free what it held here. Returns its exit code, negative for a signal."""
        self._process.join(timeout_s)
        code = self._process.exitcode
        if code is not None:
            self._connection.close()
            self._process.close()
        return code

    def _send(self, message: ToProcess) -> None:
        # One that has just ended is found dead by the next turn.
        with self._sending, suppress(OSError):
            self._connection.send(message)
