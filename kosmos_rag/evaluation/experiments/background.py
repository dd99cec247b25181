"""Work for afterwards: one thread, and a line of bounded length before it."""

import logging
import threading
from collections import deque
from collections.abc import Callable

_LOG = logging.getLogger(__name__)


class Background:
    """Runs calls one after the other in a thread of its own, and refuses those that find the line full. Thread-safe.

    A call that hangs holds up those behind it, and nobody else: the thread is a daemon.
    """

    def __init__(self, *, places: int) -> None:
        self._places = places
        self._line: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False

    def submit(self, call: Callable[[], None]) -> bool:
        """Put a call into the line. Returns whether it had room for it; never waits for one that runs."""
        with self._changed:
            if self._closed or len(self._line) >= self._places or not self._started():
                return False
            self._line.append(call)
            self._changed.notify_all()
            return True

    def _started(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="kosmos-rag-experiments", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                call()
            except Exception as error:  # noqa: BLE001 — logged, and the thread goes on
                _LOG.error(
                    "a call of an experiment failed: %s", type(error).__name__, extra={"action": "experiment_failed"}
                )

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._busy = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._line or self._closed)
            if self._closed:
                return None
            self._busy = True
            return self._line.popleft()

    def drain(self, timeout_s: float) -> bool:
        """Wait until all calls have run. Returns whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._line and not self._busy, timeout_s)

    def close(self) -> None:
        """Drop what waits; a call that runs ends by itself."""
        with self._changed:
            self._closed = True
            self._line.clear()
            self._changed.notify_all()
