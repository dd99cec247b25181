"""A worker process, and its handle in the supervisor."""

import gc
import signal
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

import psutil

from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.logging import set_up_logging
from kosmos_rag.core.types import Job
from kosmos_rag.parsing.sandbox.limits import clear_dumpable
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.channel import (
    Assign,
    JobRunner,
    Progress,
    Ready,
    Revoke,
    Stop,
    SupervisorChannel,
    ToProcess,
    ToSupervisor,
)

JobRunnerFactory = Callable[[Settings], JobRunner]
"""Creates the job runner of a process; a function of a module, because each process imports it."""


def run(connection: Connection, settings: Settings, create_runner: JobRunnerFactory) -> None:
    """Run jobs until the supervisor sends Stop or ends."""
    clear_dumpable()
    for number in (signal.SIGTERM, signal.SIGINT):
        # A terminal or an init system signals the whole group; the supervisor decides when to stop.
        signal.signal(number, signal.SIG_IGN)
    set_up_logging(settings.observability)
    runner = create_runner(settings)
    # A full garbage collection looks at each object of the imports and the model, 0.1 s in the middle of a batch.
    gc.freeze()
    try:
        channel = SupervisorChannel(connection, Queue.open(runner.database, settings.worker))
        while channel.fatal_error is None and (jobs := channel.receive_jobs()) is not None:
            runner.run(jobs, channel)
        if channel.fatal_error is not None:
            raise channel.fatal_error
    finally:
        runner.close()


_MB = 1024 * 1024


class WorkerProcess:
    """A child process and the leases of its jobs.

    Creating the object starts the process.
    """

    def __init__(self, number: int, settings: Settings, create_runner: JobRunnerFactory) -> None:
        # Not forked: a child must not inherit connections and threads.
        context = get_context("spawn")
        self._connection, child_connection = context.Pipe()
        self._process = context.Process(
            target=run,
            args=(child_connection, settings, create_runner),
            name=f"kosmos-rag-worker-{number}",
            daemon=True,
        )
        self._process.start()
        child_connection.close()
        assert self._process.pid is not None
        self.number = number
        self.pid: int = self._process.pid
        self.tokens: frozenset[uuid.UUID] = frozenset()
        """Lease tokens of its unfinished jobs."""
        self._tokens_lock, self._send_lock = threading.Lock(), threading.Lock()
        self.initialized = self.ready = False
        self.retired = False
        self.started_at = self.last_message_at = time.monotonic()

    @property
    def connection(self) -> Connection:
        """Readable when it has sent a message or has ended."""
        return self._connection

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def assign(self, jobs: Sequence[Job]) -> None:
        """Send jobs to the process."""
        with self._tokens_lock:
            self.tokens |= {job.token for job in jobs}
        self.ready = False
        self.last_message_at = time.monotonic()
        self._send(Assign(jobs=tuple(jobs)))

    def revoke(self, tokens: Collection[uuid.UUID]) -> None:
        """Revoke those of its jobs whose leases are lost. Thread-safe."""
        with self._tokens_lock:
            owned = self.tokens & frozenset(tokens)
            self.tokens -= owned
        if owned:
            self._send(Revoke(tokens=owned))

    def stop(self) -> None:
        """Let the process finish its started jobs and exit.

        Kill it where it has not loaded its model yet.
        """
        if self.retired:
            return
        self.retired, self.ready = True, False
        if self.initialized:
            self._send(Stop())
        else:
            self.kill()

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()

    def receive(self) -> ToSupervisor | None:
        """Return the next message; None without one."""
        try:
            if not self._connection.poll():
                return None
            message: ToSupervisor = self._connection.recv()
        except (EOFError, OSError):
            return None
        self.last_message_at = time.monotonic()
        if isinstance(message, Ready):
            self.initialized, self.ready = True, not self.retired
        elif isinstance(message, Progress):
            with self._tokens_lock:
                self.tokens -= message.ended
        return message

    def memory_mb(self) -> float:
        """Return its resident memory in megabytes; 0 where it has ended."""
        with suppress(psutil.Error):
            return float(psutil.Process(self.pid).memory_info().rss) / _MB
        return 0.0

    def reap(self) -> int | None:
        """Wait for the process to end and release its handles.

        Returns the exit code, negative for a signal.
        """
        self._process.join()
        code = self._process.exitcode
        if code is not None:
            self._connection.close()
            self._process.close()
        return code

    def _send(self, message: ToProcess) -> None:
        # The next tick finds a process that has just ended.
        with self._send_lock, suppress(OSError):
            self._connection.send(message)
