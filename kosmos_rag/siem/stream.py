"""Send the events of a running log in the background: its writer never waits."""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self

from kosmos_rag.siem.targets import EVENT, EventTarget, ExportError

MAX_EVENTS = 10_000
"""Events that wait, about 10 MB; more are dropped."""
_BATCH = 500
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_DRAIN_S = 30.0
"""Seconds that a target has for the events that wait at the end of the log."""
_WARNING_INTERVAL_S = 10.0

log = logging.getLogger("kosmos_rag.siem")


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamReport:
    """What became of the events of a stream."""

    exported: int
    refused: int
    """Refused by the target forever, or impossible to send."""
    dropped: int
    """Not sent: the target was too slow, or did not work."""


class EventStream:
    """A bounded queue of events, and the thread that sends them.

    The thread sends a batch again until the target takes it, with growing pauses. An event that cannot be sent at all
    is logged, and counts as refused.
    """

    def __init__(self, target: EventTarget, *, max_events: int = MAX_EVENTS, drain_s: float = _DRAIN_S) -> None:
        """`target` is closed with the stream.

        Args:
            max_events: Events that may wait.
            drain_s: Seconds for the events that wait at the end.
        """
        self._target = target
        self._max_events = max_events
        self._drain_s = drain_s
        self._waiting: deque[EVENT] = deque()
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._exported = self._refused = self._dropped = 0
        self._warn_at = 0.0
        self._thread = threading.Thread(target=self._run, name="kosmos-rag-siem", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, events: Sequence[EVENT]) -> None:
        """Queue events; drop those that the queue has no room for. Never waits for the target."""
        with self._changed:
            room = max(0, self._max_events - len(self._waiting))
            self._waiting.extend(events[:room])
            self._changed.notify()
            if len(events) > room:
                self._dropped += len(events) - room
                self._warn()

    def close(self) -> StreamReport:
        """Send what waits, for a bounded time, and return what became of all events."""
        if not self._closed.is_set():  # a second call does not wait again
            self._closed.set()
            with self._changed:
                self._changed.notify()
            self._thread.join(self._drain_s)
        with self._changed:
            self._dropped += len(self._waiting)
            self._waiting.clear()
            return StreamReport(exported=self._exported, refused=self._refused, dropped=self._dropped)

    def _warn(self) -> None:
        if time.monotonic() >= self._warn_at:
            self._warn_at = time.monotonic() + _WARNING_INTERVAL_S
            log.warning(
                "%d events were dropped so far: the target takes them more slowly than the log has them", self._dropped,
                extra={"action": "siem_events_dropped"},
            )  # fmt: skip

    def _run(self) -> None:
        pause_s, size = _FIRST_PAUSE_S, _BATCH
        while batch := self._read_batch(size):
            try:
                refused = self._target.write(batch)
            except ExportError as error:
                log.warning("%s; next try in %.1f s", error, pause_s, extra={"action": "siem_target_failed"})
                if self._closed.wait(pause_s):
                    time.sleep(_FIRST_PAUSE_S)
                pause_s, size = min(2 * pause_s, _LONGEST_PAUSE_S), _BATCH
                continue
            except Exception:  # the thread continues: what follows can be sent
                if len(batch) > 1:
                    size = len(batch) // 2
                    continue
                log.exception("an event cannot be sent, and is skipped", extra={"action": "siem_event_refused"})
                refused = 1
            pause_s, size = _FIRST_PAUSE_S, min(2 * size, _BATCH)
            with self._changed:
                for _ in batch[: len(self._waiting)]:  # none where the stream was closed meanwhile
                    self._waiting.popleft()
                self._exported += len(batch) - refused
                self._refused += refused
        self._target.close()

    def _read_batch(self, size: int) -> list[EVENT]:
        """Wait for events, and return the oldest, which stay in the queue; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed.is_set())
            return list(islice(self._waiting, size))
