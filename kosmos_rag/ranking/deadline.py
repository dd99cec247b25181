"""Work under a deadline: done in time, or given up on with a reason."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

from kosmos_rag.errors import first_line

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome(Generic[T]):
    """A value, or why there is none."""

    value: T | None
    reason: str | None


class Deadline:
    """Runs calls in threads of their own, a bounded number at a time, and waits for each only so long.

    A call that is given up on runs on in its thread, for Python cannot stop it, and holds its place until it ends:
    so a model that hangs costs its deadline a few times and nothing after that.
    """

    def __init__(self, *, concurrency: int) -> None:
        self._places = threading.BoundedSemaphore(concurrency)

    def run(self, call: Callable[[], T], *, deadline_ms: float, spent_ms: float = 0.0) -> Outcome[T]:
        """Return the call's value, or the reason that it has none: out of time, or its error.

        `spent_ms` of the deadline have passed before.
        """
        left = (deadline_ms - spent_ms) / 1000
        if left <= 0:
            return Outcome(value=None, reason=f"the deadline of {deadline_ms} ms passed before")
        until = time.monotonic() + left
        if not self._places.acquire(timeout=left):
            return Outcome(value=None, reason=f"the deadline of {deadline_ms} ms passed while earlier calls ran")
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
                future.set_exception(error)
            finally:
                self._places.release()

        # A daemon, so that a hanging model does not keep the process from ending.
        threading.Thread(target=work, name="kosmos-rag-deadline", daemon=True).start()
        try:
            return Outcome(value=future.result(timeout=max(0.0, until - time.monotonic())), reason=None)
        except Exception as error:  # noqa: BLE001 — whatever a model raises, the order that is there is served
            # A model may raise TimeoutError too: only a call that is not done is late.
            late = not future.done()
            return Outcome(value=None, reason=f"the deadline of {deadline_ms} ms passed" if late else first_line(error))
