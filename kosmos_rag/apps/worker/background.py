"""A worker in a thread of another process, for development."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kosmos_rag.apps.worker.handlers import create_runner
from kosmos_rag.apps.worker.supervisor import Supervisor
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.storage.queue import kinds

log = logging.getLogger("kosmos_rag.apps.worker")


@contextmanager
def run_in_background(settings: Settings) -> Iterator[Supervisor]:
    """Run a worker during the block, and drain it at the end.

    Jobs run in processes of their own, as those of `run_worker` do. Raises ConfigError and DatabaseError at the start;
    what ends the worker later is logged.
    """
    supervisor = Supervisor(settings, kinds=kinds.ALL, create_runner=create_runner)
    thread = threading.Thread(target=_run, args=(supervisor,), name="kosmos-rag-worker")
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join()


def _run(supervisor: Supervisor) -> None:
    try:
        supervisor.run()
    except KosmosError as error:
        log.error("the worker has ended, and jobs wait: %s", error, extra={"action": "worker_failed"})
