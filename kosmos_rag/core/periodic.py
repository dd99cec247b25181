"""Repeat an action from a thread of its own."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)


@contextmanager
def run_periodically(
    action: Callable[[], None],
    *,
    interval_s: float,
    delay_s: float,
    thread_name: str,
    wait_s: float | None = None,
) -> Iterator[None]:
    """Run an action at intervals until the block ends.

    An action that fails is run again: without a thread that renews its leases, a worker would lose all its work. Of
    failures in a row the first is logged. Raises RuntimeError where no thread can be started.

    Args:
        delay_s: Seconds before the first time.
        wait_s: Seconds that the end of the block waits for an action at most; None for as long as that takes.
    """
    ended = threading.Event()

    def run() -> None:
        pause_s, is_failing = delay_s, False
        while not ended.wait(pause_s):
            try:
                action()
                is_failing = False
            except Exception:  # the thread continues
                if not is_failing:
                    log.exception("the thread %s fails, and continues", thread_name, extra={"action": "thread_failed"})
                is_failing = True
            pause_s = interval_s

    thread = threading.Thread(target=run, name=thread_name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(wait_s)
