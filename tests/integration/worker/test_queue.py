"""The queue: what is enqueued, what becomes of it, and ledgers that add up."""

import uuid
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import IngestionError, LeaseLost, ParseError, StatementFailed
from kosmos_rag.core.types import JobState, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import queue as jobs
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobLeases, JobWriter
from tests.integration.worker.queue_calls import ACME, BETA, KIND, Put, claim_one, expire, hasten, states, take

pytestmark = pytest.mark.emptied_database


def test_take__gives_what_was_enqueued(queue: Queue, put: Put) -> None:
    put("a", payload={"path": "x"})
    job = claim_one(queue)
    assert (job.tenant, job.tenant_id, job.kind, job.key, job.payload) == ("acme", ACME.id, KIND, "a", {"path": "x"})
    assert (job.attempt, job.lost) == (1, 0)
    assert take(queue) == []
    queue.finish({job.token: Outcome.NEW})
    assert states(queue) == {"a": "done"}


def test_ids__are_in_the_order_of_time_and_tell_nothing_of_other_tenants(put: Put) -> None:
    """Ids of jobs are random except for the time: no tenant sees how much the others enqueue."""
    (first,) = put("a")
    put(*"bcdef", owner=BETA)
    (second,) = put("g")
    (same,) = put("a")
    assert first == same
    assert first < second, "jobs of one priority run, and are listed, by id"
    assert [job_id.version for job_id in (first, second)] == [7, 7]
    # All but the time and the version is random.
    assert first.int & (2**62 - 1) != second.int & (2**62 - 1)


def test_enqueue__rolled_back_leaves_no_job(queue: Queue, opened: Database) -> None:
    with pytest.raises(ZeroDivisionError), opened.worker.untenanted() as connection:  # noqa: PT012
        JobWriter(connection, ACME).enqueue("default", KIND, {"a": {}})
        _ = 1 / 0
    assert queue.jobs(ACME) == []


def test_enqueue__one_job_a_key_however_often_and_from_however_many(queue: Queue, put: Put) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: put("a", "b", payload={"number": number}), range(50)))
    assert states(queue) == {"a": "queued", "b": "queued"}


def test_enqueue__while_it_runs_does_it_again_with_the_newer_payload(queue: Queue, put: Put) -> None:
    put("a", payload={"version": 1})
    job = claim_one(queue)
    put("a", payload={"version": 2})
    assert take(queue) == [], "two workers on one document"
    queue.finish({job.token: Outcome.NEW})
    again = claim_one(queue)
    assert (again.payload, again.attempt) == ({"version": 2}, 1)
    queue.finish({again.token: Outcome.CHANGED})
    assert states(queue) == {"a": "done"}


def test_enqueue__while_a_running_one_fails_for_good_is_not_lost(queue: Queue, put: Put) -> None:
    put("a")
    job = claim_one(queue)
    put("a", payload={"version": 2})
    assert queue.fail(job, ParseError("corrupt", "broken"), source="a", retry=False) is JobState.QUEUED
    assert claim_one(queue).payload == {"version": 2}


def test_priority__within_a_tenant(queue: Queue, put: Put) -> None:
    put("low"), put("high", priority=5)
    assert [claim_one(queue).key, claim_one(queue).key] == ["high", "low"]


def test_fail__comes_again_later_until_it_is_dead(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("a")
    for attempt in (1, 2, 3):
        job = claim_one(queue)
        assert job.attempt == attempt
        state = queue.fail(job, ParseError("crashed", "the parser died"), source="a", retry=True)
        assert take(queue) == [], "before its time"
        hasten(database)
    assert state is JobState.DEAD
    (info,) = queue.jobs(ACME)
    assert (info.code, info.error, info.attempt) == ("crashed", "the parser died", 3)
    assert queue.retry(ACME) == [info.id]
    assert claim_one(queue).attempt == 1


def test_fail__by_a_full_disk_costs_no_attempt_for_a_week(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    """A full disk uses up no attempt of a job."""
    put("a")
    full = IngestionError("disk_full", "No space left on device")
    for _ in range(5):
        job = claim_one(queue)
        assert job.attempt == 1
        assert queue.fail(job, full, source="a", retry=True) is JobState.SCHEDULED
        assert take(queue) == [], "before its time"
        hasten(database)
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET created_at = now() - interval '8 days'")
    for attempt in (1, 2, 3):
        job = claim_one(queue)
        assert job.attempt == attempt
        state = queue.fail(job, full, source="a", retry=True)
        hasten(database)
    assert state is JobState.DEAD


def test_retry__leaves_a_job_whose_key_has_newer_work(queue: Queue, put: Put) -> None:
    put("a")
    queue.fail(claim_one(queue), ParseError("corrupt", "x"), source="a", retry=False)
    put("a")
    assert queue.retry(ACME) == []


def test_retry__leaves_a_cancelled_periodic_job_that_another_has_replaced(
    queue: Queue, put: Put, opened: Database
) -> None:
    """Periodic jobs are enqueued next to cancelled ones of their key."""

    def enqueue_maintenance() -> None:
        with opened.worker.untenanted() as connection:
            JobWriter(connection, ACME).enqueue_periodic("default", {"maintain": timedelta(hours=1)})

    cancelled = []
    for _ in range(2):
        enqueue_maintenance()
        (waiting,) = queue.jobs(ACME, states=[JobState.SCHEDULED])
        cancelled += queue.cancel(ACME, [waiting.id])
    assert queue.retry(ACME) == []
    assert queue.retry(ACME, cancelled) == cancelled[1:], "one job a key"
    enqueue_maintenance()
    (dead,) = put("a")
    queue.fail(claim_one(queue), ParseError("corrupt", "x"), source="a", retry=False)
    assert queue.retry(ACME, cancelled) == []
    assert queue.retry(ACME) == [dead]


def test_cancel__waiting_and_running(queue: Queue, put: Put) -> None:
    first, second = put("a"), put("b")
    running = claim_one(queue)
    assert sorted(queue.cancel(ACME, [*first, *second])) == sorted([*first, *second])
    with pytest.raises(LeaseLost):
        queue.finish({running.token: Outcome.NEW})
    assert states(queue) == {"a": "cancelled", "b": "cancelled"}
    assert {(job.outcome, job.code) for job in queue.jobs(ACME)} == {("cancelled", "cancelled")}
    assert queue.cancel(ACME, first) == []


def test_cancel__of_another_tenants_job_does_nothing(queue: Queue, put: Put) -> None:
    ids = put("a")
    assert queue.cancel(BETA, ids) == queue.retry(BETA, ids) == queue.jobs(BETA, ids=ids) == []
    assert states(queue) == {"a": "queued"}


def test_give_back__counts_no_attempt(queue: Queue, put: Put) -> None:
    put("a")
    queue.release([claim_one(queue).token])
    assert claim_one(queue).attempt == 1


def test_scheduled__waits_for_its_time_and_periodic_comes_again(
    queue: Queue, put: Put, database: DatabaseSettings
) -> None:
    put("a", delay=timedelta(hours=1), every=timedelta(minutes=5))
    assert take(queue) == []
    hasten(database)
    queue.finish({claim_one(queue).token: Outcome.DONE})
    (info,) = queue.jobs(ACME)
    assert (info.state, info.every_s) == (JobState.SCHEDULED, 300.0)
    assert 290 < (info.run_at - info.created_at).total_seconds() < 310
    assert queue.count_unfinished([KIND]) == 0
    hasten(database)
    assert queue.fail(claim_one(queue), ParseError("corrupt", "x"), source="a", retry=False) is JobState.SCHEDULED


def _ledger(database: DatabaseSettings, run: uuid.UUID) -> Mapping[str, int]:
    columns = ("seen", "new", "changed", "unchanged", "removed", "failed", "cancelled", "chunks")
    with psycopg.connect(database.admin_url or "") as connection:
        row = connection.execute(f"SELECT {', '.join(columns)} FROM kosmos.sync_runs WHERE id = %s", [run]).fetchone()
    assert row is not None
    return dict(zip(columns, row, strict=True))


def _open_run(database: DatabaseSettings, run: uuid.UUID) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(
            "INSERT INTO kosmos.sync_runs VALUES (%s, %s, 'default', '{}', 'working',"
            " 0, 0, 0, 0, 0, 0, 0, '[]', NULL, now())",
            [ACME.id, run],
        )


def test_ledger__counts_every_outcome_once_in_every_run_that_waits(
    queue: Queue, put: Put, opened: Database, database: DatabaseSettings
) -> None:
    first, second = uuid.uuid4(), uuid.uuid4()
    for run in (first, second):
        _open_run(database, run)
    put("new", "changed", "corrupt", "poison", "cancelled", run=first)
    put("new", run=second)  # waits already: one piece of work, two who wait for it
    claimed = {job.key: job for job in take(queue)}
    with opened.worker.untenanted() as connection:
        JobLeases(connection).finish(
            {claimed["new"].token: Outcome.NEW, claimed["changed"].token: Outcome.CHANGED},
            {claimed["new"].token: 7},
        )
    queue.fail(claimed["corrupt"], ParseError("corrupt", "broken"), source="corrupt.pdf", retry=False)
    queue.cancel(ACME, [claimed["cancelled"].id])
    for _ in range(3):
        expire(database)
        take(queue)
    assert _ledger(database, first) == {
        "seen": 0, "new": 1, "changed": 1, "unchanged": 0, "removed": 0, "failed": 2, "cancelled": 1,
        "chunks": 7,
    }  # fmt: skip
    assert _ledger(database, second)["new"] == 1
    assert _ledger(database, second)["failed"] == 0


def test_counts__by_kind_and_state(queue: Queue, put: Put) -> None:
    put("a", "b"), put("c", delay=timedelta(hours=1))
    claim_one(queue)
    counts = Counter({str(count.state): count.count for count in queue.count_jobs()})
    assert counts == {"queued": 1, "running": 1, "scheduled": 1}
    assert all(count.oldest_s >= 0 for count in queue.count_jobs())
    assert queue.count_unfinished([KIND]) == 3


def test_unclaimed__are_due_jobs_while_no_worker_runs(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    def age(seconds: int) -> None:
        with psycopg.connect(database.admin_url or "") as connection:
            connection.execute(
                "UPDATE kosmos.jobs SET run_at = run_at - make_interval(secs => %(age)s),"
                " lease_until = lease_until - make_interval(secs => %(age)s),"
                " finished_at = finished_at - make_interval(secs => %(age)s)",
                {"age": seconds},
            )

    put("a", "b")
    put("c", owner=BETA)
    put("later", delay=timedelta(hours=1))
    assert queue.count_unclaimed() == 0, "a worker may claim them at once"
    age(60)
    assert (queue.count_unclaimed(), queue.count_unclaimed(ACME), queue.count_unclaimed(BETA)) == (3, 2, 1)
    job = claim_one(queue)
    assert queue.count_unclaimed() == 0, "a worker runs a job"
    queue.finish({job.token: Outcome.NEW})
    assert queue.count_unclaimed() == 0, "a worker has ended a job"
    age(60)
    assert queue.count_unclaimed() == 2


def test_prune__keeps_the_dead_longer(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("done", "dead")
    result, dead = sorted(take(queue), key=lambda job: job.key, reverse=True)
    queue.finish({result.token: Outcome.NEW})
    queue.fail(dead, ParseError("corrupt", "x"), source="dead", retry=False)
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET finished_at = now() - interval '10 days'")
    assert queue.prune(keep_days=7, keep_dead_days=30) == 1
    assert states(queue) == {"dead": "dead"}


@pytest.mark.parametrize(("attempt", "middle"), [(1, 5.0), (2, 10.0), (5, 80.0), (30, 900.0)])
def test_back_off__doubles_up_to_a_limit_and_spreads(attempt: int, middle: float) -> None:
    delays = [jobs.retry_delay(attempt) for _ in range(300)]
    assert 0.5 * middle <= min(delays) < max(delays) <= 1.5 * middle
    assert max(delays) - min(delays) > 0.5 * middle


def test_periodic__is_there_once_and_is_not_hastened_by_asking_again(queue: Queue, opened: Database) -> None:
    for _ in range(3):
        with opened.worker.untenanted() as connection:
            JobWriter(connection, ACME).enqueue_periodic("default", {KIND: timedelta(hours=1)})
    (info,) = queue.jobs(ACME)
    assert (info.state, info.every_s) == (JobState.SCHEDULED, 3600.0)
    assert take(queue) == []


def test_uploads__are_not_for_the_role_that_reads(opened: Database) -> None:
    with pytest.raises(StatementFailed, match="permission denied"), opened.app.transaction(ACME.id, []) as connection:
        connection.execute("SELECT * FROM kosmos.uploads").fetchall()
