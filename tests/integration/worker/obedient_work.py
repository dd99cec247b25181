"""Work for tests of the supervisor: a process that waits, or reports and exits."""

import os
import threading
from collections.abc import Sequence

from kosmos_rag.core.config import Settings
from kosmos_rag.core.types import Job
from kosmos_rag.storage.database import Database
from kosmos_rag.worker.channel import SupervisorChannel

EXIT_CODE = 7


class ObedientRunner:
    """Waits with a job `wait`; otherwise finishes and reports the job `done`, and exits with the others."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def run(self, jobs: Sequence[Job], channel: SupervisorChannel) -> None:
        # Jobs that are enqueued together have no order.
        by_key = {job.key: job for job in jobs}
        if "wait" in by_key:
            threading.Event().wait()
        channel.finish(by_key["done"])
        channel.report_ended([by_key["done"]], {("failures", "reported"): 1.0})
        os._exit(EXIT_CODE)

    def close(self) -> None:
        self.database.close()


def create_runner(settings: Settings) -> ObedientRunner:
    return ObedientRunner(Database(settings.database))
