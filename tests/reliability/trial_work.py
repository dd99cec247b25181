"""Work for tests of the worker: it sleeps, dies, holds the interpreter, and writes down each time that it was done."""

import ctypes
import os
import signal
import time
from collections.abc import Sequence

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, LeaseLost, ParseError
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.writing import JobLeases
from kosmos_rag.worker.channel import SupervisorChannel


class TrialWork:
    """Does what a job's payload says, and writes a row of a table in the transaction that finishes the job."""

    def __init__(self, database: Database) -> None:
        self.database = self._database = database

    def run(self, claimed: Sequence[Job], channel: SupervisorChannel) -> None:
        for number, job in enumerate(claimed):
            if channel.stopping:
                channel.release(claimed[number:])
                return
            if not channel.is_revoked(job):
                self._do(job, channel)
            channel.report_ended([job])

    def _do(self, job: Job, channel: SupervisorChannel) -> None:
        result = job.payload
        self._write("INSERT INTO public.begun VALUES (%s)", job)
        if "sleep" in result:
            time.sleep(result["sleep"])
        if "hold" in result:
            ctypes.PyDLL(None).usleep(int(result["hold"] * 1e6))  # keeps the interpreter's lock, as bad extensions do
        if result.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if result.get("fail"):
            error = ParseError("corrupt", result["fail"])
            channel.retry_until_available(
                lambda: channel.queue.fail(job, error, source=job.key, retry=bool(result.get("retry")))
            )
            return
        try:
            if result.get("bare"):
                channel.queue.finish({job.token: Outcome.DONE})
            else:
                self._finish(job)
        except LeaseLost:
            channel.report_ended([job], {("failures", "lease_lost"): 1.0})
        except DatabaseError:
            channel.release([job])

    def _write(self, sql: str, job: Job) -> None:
        if not job.payload.get("bare"):
            try:
                with self._database.worker.untenanted() as connection:
                    connection.execute(sql, [job.key])
            except DatabaseError:
                pass

    def _finish(self, job: Job) -> None:
        with self._database.worker.untenanted() as connection:
            connection.execute("INSERT INTO public.finished VALUES (%s)", [job.key])
            JobLeases(connection).finish({job.token: Outcome.DONE})

    def close(self) -> None:
        self.database.close()


def create_runner(settings: Settings) -> TrialWork:
    return TrialWork(Database(settings.database))
