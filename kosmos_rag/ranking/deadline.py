"""Work under a deadline: done in time, or given up on with a reason."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kosmos_rag.errors import first_line

T = TypeVar("T")
LATE, BUSY, MODEL = "deadline", "busy", "model"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[T]):
    """A value, or why there is none."""

    value: T | None
    reason: str | None
    why: str | None = None
    """The kind of the reason: `deadline` passed, `busy` with calls that hang, or the `model` failed."""


class Deadline:
    """Runs calls in threads of their own, a bounded number at a time, and waits for each only so long.

    A call that is given up on runs on in its thread, for Python cannot stop it, and holds its place until it ends.
    While all places are held by such calls, others are refused at once: so a model that hangs costs its deadline as
    often as there are places, and nothing after that.
    """

    def __init__(self, *, concurrency: int) -> None:
        self._concurrency = concurrency
        self._places = threading.BoundedSemaphore(concurrency)
        self._lock = threading.Lock()
        self._late: set[Future[Any]] = set()

    def run(self, call: Callable[[], T], *, deadline_ms: float, spent_ms: float = 0.0) -> Outcome[T]:
        """Return the call's value, or the reason that it has none: out of time, or its error.

        `spent_ms` of the deadline have passed before.
        """
        until = time.monotonic() + (deadline_ms - spent_ms) / 1000
        if spent_ms >= deadline_ms:
            return _none(f"the deadline of {deadline_ms} ms passed before", LATE)
        if len(self._late) >= self._concurrency:
            return _none(f"{self._concurrency} earlier calls are past their deadline and have not ended", BUSY)
        if not self._places.acquire(timeout=max(0.0, until - time.monotonic())):
            return _none(f"the deadline of {deadline_ms} ms passed while earlier calls ran", BUSY)
        future: Future[Outcome[T]] = Future()
        try:
            # A daemon, so that a hanging model does not keep the process from ending.
            threading.Thread(target=self._work, args=(call, future), name="kosmos-rag-deadline", daemon=True).start()
        except RuntimeError as error:
            self._places.release()
            return _none(first_line(error), BUSY)
        wait([future], timeout=max(0.0, until - time.monotonic()))
        with self._lock:
            if not future.done():
                self._late.add(future)
                return _none(f"the deadline of {deadline_ms} ms passed", LATE)
        return future.result()

    def _work(self, call: Callable[[], T], future: Future[Outcome[T]]) -> None:
        outcome: Outcome[T]
        try:
            outcome = Outcome(value=call(), reason=None)
        except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
            outcome = _none(first_line(error), MODEL)
        with self._lock:
            future.set_result(outcome)
            self._late.discard(future)
        self._places.release()


def _none(reason: str, why: str) -> Outcome[T]:
    return Outcome(value=None, reason=reason, why=why)
