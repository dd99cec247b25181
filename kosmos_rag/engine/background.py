"""Background work of an engine: one thread and a bounded queue."""

import logging
import threading
from collections import deque
from collections.abc import Callable

from kosmos_rag.core.telemetry import usage

_LOG = logging.getLogger(__name__)

CAPACITY = 256
"""Tasks that may wait."""


class BackgroundQueue:
    """Runs tasks in sequence in a background thread. Thread-safe.

    It refuses tasks while the queue is full.

    A task that hangs delays the tasks behind it and nothing else: the thread is a daemon.
    """

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._tasks: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False

    def submit(self, task: Callable[[], None]) -> bool:
        """Add a task and return whether there was room for it.

        Never waits.
        """
        with self._changed:
            if self._closed or len(self._tasks) >= self._capacity or not self._ensure_thread():
                return False
            self._tasks.append(usage.bind(task))
            self._changed.notify_all()
            return True

    def drain(self, timeout_s: float) -> bool:
        """Wait until all tasks have run. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._tasks and not self._busy, timeout_s)

    def close(self, timeout_s: float = 0.0) -> None:
        """Refuse new tasks, and run waiting ones for at most `timeout_s`.

        Then the rest are dropped.

        A task that is running ends by itself.
        """
        self.drain(timeout_s)
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()

    def _ensure_thread(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="kosmos-rag-background", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no thread can be started: the task is refused
                return False
            self._thread = thread
        return True

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except Exception as error:  # noqa: BLE001 — logged, and the thread continues
                # Only the type: a message may quote the text of a query.
                _LOG.error("a background task failed: %s", type(error).__name__, extra={"action": "background_failed"})

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._tasks or self._closed)
            if self._closed:
                return None
            self._busy = True
            return self._tasks.popleft()
