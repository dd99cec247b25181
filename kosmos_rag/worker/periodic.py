"""Repeat an action from a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def run_periodically(
    action: Callable[[], None], *, interval_s: float, delay_s: float, thread_name: str
) -> Iterator[None]:
    """Run an action at intervals until the block ends.

    Args:
        delay_s: Seconds before the first time.
    """
    ended = threading.Event()

    def run() -> None:
        wait_s = delay_s
        while not ended.wait(wait_s):
            action()
            wait_s = interval_s

    thread = threading.Thread(target=run, name=thread_name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
