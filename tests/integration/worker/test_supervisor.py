"""The supervisor: what becomes of the leases of its processes while they run, and when they end."""

import time
from collections.abc import Iterator
from multiprocessing.connection import wait

import psycopg
import pytest

from kosmos_rag import Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import Job, JobInfo, JobState
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.process import WorkerProcess
from kosmos_rag.worker.supervisor import Supervisor
from tests.integration.variants import changed
from tests.integration.worker.obedient_work import create_runner
from tests.integration.worker.queue_calls import ACME, KIND, Put

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def supervisor(settings: Settings) -> Iterator[Supervisor]:
    """A supervisor with one process, whose main loop the test runs step by step."""
    settings = changed(settings, {"worker.processes": 1, "worker.batch": 8, "worker.lease_s": 600.0})
    supervisor = Supervisor(settings, kinds=[KIND], create_runner=create_runner, until_idle=True)
    supervisor._start_missing(0.0)
    yield supervisor
    supervisor._end_processes()
    supervisor._wakeup_receiver.close()
    supervisor._wakeup_sender.close()
    supervisor._database.close()


def _assign(supervisor: Supervisor) -> WorkerProcess:
    """Have the process take all jobs."""
    (process,) = supervisor._processes
    while not process.ready:
        assert wait([process.connection], 120), "the process does not start"
        assert process.receive() is not None, "the process has ended"
    assert supervisor._dispatch()
    return process


def _end(process: WorkerProcess) -> None:
    """Wait until the process has ended, without reading its messages."""
    process._process.join(120)
    assert not process.alive


def _jobs(queue: Queue) -> dict[str, JobInfo]:
    return {info.key: info for info in queue.jobs(ACME)}


def _claim_one(supervisor: Supervisor) -> Job:
    (job,) = supervisor._queue.claim(1, kinds=[KIND], worker="w")
    return job


def _sample(supervisor: Supervisor, name: str) -> float | None:
    return supervisor.metrics.registry.get_sample_value(f"kosmos_worker_{name}")


def test_process_that_exits__loses_the_leases_of_its_unfinished_jobs(
    supervisor: Supervisor, queue: Queue, put: Put
) -> None:
    put("done", "first", "second")
    _end(_assign(supervisor))
    now = time.monotonic()
    supervisor._check_processes(now)
    # Its last message counts, although it has ended.
    assert supervisor.metrics.total("failures", "reported") == 1
    assert _sample(supervisor, "processes_died_total") == 1
    assert _jobs(queue)["done"].state == JobState.DONE
    # The other jobs can be claimed at once, long before their leases would end.
    assert {job.key: job.lost for job in (_claim_one(supervisor), _claim_one(supervisor))} == {"first": 1, "second": 1}
    assert _sample(supervisor, "leases_lost_total") == 2
    # A process that dies while it starts may die again: the next one waits.
    supervisor._start_missing(now + 1)
    assert supervisor._processes == []


def test_process_that_the_supervisor_stops__gives_its_jobs_back_without_blame(
    supervisor: Supervisor, queue: Queue, put: Put
) -> None:
    put("wait", "next")
    process = _assign(supervisor)
    supervisor.stop()
    process.kill()
    _end(process)
    supervisor._check_processes(time.monotonic())
    jobs = _jobs(queue).values()
    assert [(job.state, job.attempt, job.lost) for job in jobs] == [(JobState.QUEUED, 0, 0)] * 2
    assert _sample(supervisor, "processes_died_total") == 0


def _lease_seconds(database: DatabaseSettings) -> dict[str, float]:
    """How long each lease is valid."""
    with psycopg.connect(database.admin_url or "") as connection:
        query = "SELECT key, extract(epoch FROM lease_until - now())::float8 FROM kosmos.jobs WHERE state = 'running'"
        return dict(connection.execute(query).fetchall())


def test_renew__extends_the_leases_of_running_jobs_and_revokes_lost_ones(
    supervisor: Supervisor, queue: Queue, put: Put, database: DatabaseSettings
) -> None:
    put("wait", "cancelled", "next")
    process = _assign(supervisor)
    cancelled = _jobs(queue)["cancelled"].id
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET lease_until = now() + interval '60 seconds'")
    assert queue.cancel(ACME, [cancelled]) == [cancelled]
    supervisor._renew()
    leases = _lease_seconds(database)
    assert leases.keys() == {"wait", "next"}
    assert all(seconds > 500 for seconds in leases.values())
    assert len(process.tokens) == 2
    # A job that was cancelled has lost no worker.
    assert supervisor._queue.claim(8, kinds=[KIND], worker="w") == []
    assert _sample(supervisor, "leases_lost_total") == 0


def test_renew__that_the_database_refuses_revokes_nothing(
    supervisor: Supervisor, put: Put, database: DatabaseSettings
) -> None:
    put("wait")
    process = _assign(supervisor)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute("REVOKE UPDATE ON kosmos.jobs FROM kosmos_worker")
        try:
            supervisor._renew()
        finally:
            connection.execute("GRANT UPDATE ON kosmos.jobs TO kosmos_worker")
    assert len(process.tokens) == 1
