"""The body of a working process."""

import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

from kosmos_rag.config import Settings
from kosmos_rag.jobs.queue import Queue
from kosmos_rag.logs import set_up_logging
from kosmos_rag.worker.desk import Desk, Work

OpenWork = Callable[[Settings], Work]
"""Makes what a process works with. Named in a module: each process imports it anew."""


def run(connection: Connection, settings: Settings, open_work: OpenWork) -> None:
    """Work until the supervisor says stop, or is gone."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # A terminal or an init system signals the whole group: when to end is the supervisor's to say.
        signal.signal(number, signal.SIG_IGN)
    set_up_logging(settings.observability)
    work = open_work(settings)
    try:
        desk = Desk(connection, Queue.open(work.database, settings.worker))
        while desk.broken is None and (jobs := desk.next()) is not None:
            work.run(jobs, desk)
        if desk.broken is not None:
            raise desk.broken
    finally:
        work.close()
