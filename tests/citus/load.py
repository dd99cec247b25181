"""Calls from a thread while a test changes the cluster."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from kosmos_rag import Engine
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.tenants import tenant
from tests import waiting

SMALL_INDEXES = {
    "indexes.unsegmented_chunks": 10,
    "indexes.vector_min_chunks": 10,
    "indexes.vector": "ivfflat",
}
"""Settings by which small tenants have indexes, of one kind: `auto` chooses by measured times."""


eventually = partial(waiting.eventually, within_s=120)
"""A cluster is slow."""


@contextmanager
def load(call: Callable[[int], object]) -> Iterator[tuple[list[float], list[Exception]]]:
    """Call again and again from a thread; what it took, and what it raised."""
    ended, seconds, errors = threading.Event(), list[float](), list[Exception]()

    def run() -> None:
        number = 0
        while not ended.is_set():
            began = time.monotonic()
            try:
                call(number := number + 1)
                seconds.append(time.monotonic() - began)
            except Exception as error:  # noqa: BLE001 — the test looks at them
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seconds, errors
    finally:
        ended.set()
        thread.join()


def tenants_by_port(engine: Engine) -> dict[int, str]:
    """A new tenant on each of two workers, by the port of the worker."""
    result: dict[int, str] = {}
    with engine.database.worker.untenanted() as connection:
        while len(result) < 2:
            name = f"tenant-{uuid.uuid4().hex[:12]}"
            placement = find_placement(connection, tenant(name).id)
            assert placement is not None
            result.setdefault(placement.port, name)
    return result
