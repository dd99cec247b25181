"""Work for tests of the worker: it sleeps, dies, holds the interpreter, and writes down each time that it was done."""

import ctypes
import os
import signal
import time
from collections.abc import Sequence

from kosmos_rag.apps.worker.channel import Desk
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, LeaseLost, ParseError
from kosmos_rag.core.types import Job, Outcome
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.queue import queue as jobs


class TrialWork:
    """Does what a job's payload says, and writes a row of a table in the transaction that finishes the job."""

    def __init__(self, database: Database) -> None:
        self.database = self._database = database

    def run(self, taken: Sequence[Job], desk: Desk) -> None:
        for number, job in enumerate(taken):
            if desk.stopping:
                desk.give_back(taken[number:])
                return
            if not desk.is_dropped(job):
                self._do(job, desk)
            desk.ended([job])

    def _do(self, job: Job, desk: Desk) -> None:
        told = job.payload
        self._write("INSERT INTO public.begun VALUES (%s)", job)
        if "sleep" in told:
            time.sleep(told["sleep"])
        if "hold" in told:
            ctypes.PyDLL(None).usleep(int(told["hold"] * 1e6))  # keeps the interpreter's lock, as bad extensions do
        if told.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        if told.get("fail"):
            error = ParseError("corrupt", told["fail"])
            desk.insist(lambda: desk.queue.fail(job, error, source=job.key, retry=bool(told.get("retry"))))
            return
        try:
            if told.get("bare"):
                desk.queue.finish({job.token: Outcome.DONE})
            else:
                self._finish(job)
        except LeaseLost:
            desk.ended([job], {("failures", "lease_lost"): 1.0})
        except DatabaseError:
            desk.give_back([job])

    def _write(self, sql: str, job: Job) -> None:
        if not job.payload.get("bare"):
            try:
                with self._database.worker.queue() as connection:
                    connection.execute(sql, [job.key])  # type: ignore[call-overload]
            except DatabaseError:
                pass

    def _finish(self, job: Job) -> None:
        with self._database.worker.queue() as connection:
            connection.execute("INSERT INTO public.finished VALUES (%s)", [job.key])
            jobs.finish(connection, {job.token: Outcome.DONE})

    def close(self) -> None:
        self.database.close()


def open_work(settings: Settings) -> TrialWork:
    return TrialWork(Database(settings.database))
