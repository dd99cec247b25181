"""The queue: leases, fences, fairness, retries, and ledgers that add up."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import LeaseLost, ParseError, StatementFailed
from kosmos_rag.jobs import queue as jobs
from kosmos_rag.jobs.queue import Queue, enqueue, enqueue_periodic
from kosmos_rag.records import Job, JobState, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenancy import Tenant, tenant

ACME, BETA = tenant("acme"), tenant("beta")
KIND = "document"
LEASE_S = 60.0


@pytest.fixture
def opened(database: DatabaseSettings) -> Iterator[Database]:
    opened = Database(database)
    yield opened
    opened.close()


@pytest.fixture
def queue(opened: Database) -> Queue:
    return Queue(opened.worker, lease_s=LEASE_S, max_attempts=3, max_lost=3)


Put = Callable[..., list[int]]


@pytest.fixture
def put(opened: Database) -> Put:
    def put(*keys: str, owner: Tenant = ACME, payload: Mapping[str, Any] | None = None, **options: Any) -> list[int]:
        with opened.worker.queue() as connection:
            return enqueue(connection, owner, "default", KIND, {key: payload or {} for key in keys}, **options)

    return put


def _take(queue: Queue, limit: int = 10, worker: str = "w") -> list[Job]:
    return queue.take(limit, kinds=[KIND], worker=worker)


def _one(queue: Queue, worker: str = "w") -> Job:
    (job,) = _take(queue, 1, worker)
    return job


def _states(queue: Queue, owner: Tenant = ACME) -> dict[str, str]:
    return {info.key: str(info.state) for info in reversed(queue.jobs(owner, limit=1000))}


def _expire(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET lease_until = now() - interval '1 second' WHERE state = 'running'")


def _hasten(database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE state = 'scheduled'")


def test_take__gives_what_was_enqueued(queue: Queue, put: Put) -> None:
    put("a", payload={"path": "x"})
    job = _one(queue)
    assert (job.tenant, job.tenant_id, job.kind, job.key, job.payload) == ("acme", ACME.id, KIND, "a", {"path": "x"})
    assert (job.attempt, job.lost) == (1, 0)
    assert _take(queue) == []
    queue.finish({job.token: Outcome.NEW})
    assert _states(queue) == {"a": "done"}


def test_enqueue__rolled_back_leaves_no_job(queue: Queue, opened: Database) -> None:
    with pytest.raises(ZeroDivisionError), opened.worker.queue() as connection:  # noqa: PT012
        enqueue(connection, ACME, "default", KIND, {"a": {}})
        _ = 1 / 0
    assert queue.jobs(ACME) == []


def test_enqueue__one_job_a_key_however_often_and_from_however_many(queue: Queue, put: Put) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: put("a", "b", payload={"number": number}), range(50)))
    assert _states(queue) == {"a": "queued", "b": "queued"}


def test_enqueue__while_it_runs_does_it_again_with_the_newer_payload(queue: Queue, put: Put) -> None:
    put("a", payload={"version": 1})
    job = _one(queue)
    put("a", payload={"version": 2})
    assert _take(queue) == [], "two workers on one document"
    queue.finish({job.token: Outcome.NEW})
    again = _one(queue)
    assert (again.payload, again.attempt) == ({"version": 2}, 1)
    queue.finish({again.token: Outcome.CHANGED})
    assert _states(queue) == {"a": "done"}


def test_enqueue__while_a_running_one_fails_for_good_is_not_lost(queue: Queue, put: Put) -> None:
    put("a")
    job = _one(queue)
    put("a", payload={"version": 2})
    assert queue.fail(job, ParseError("corrupt", "broken"), source="a", retry=False) is JobState.QUEUED
    assert _one(queue).payload == {"version": 2}


def test_priority__within_a_tenant(queue: Queue, put: Put) -> None:
    put("low"), put("high", priority=5)
    assert [_one(queue).key, _one(queue).key] == ["high", "low"]


def test_finish__is_refused_to_who_lost_the_lease(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("a")
    zombie = _one(queue, "first")
    _expire(database)
    successor = _one(queue, "second")
    assert successor.lost == 1
    with pytest.raises(LeaseLost):
        queue.finish({zombie.token: Outcome.NEW})
    assert queue.fail(zombie, ParseError("corrupt", "x"), source="a", retry=True) is None
    assert queue.renew([zombie.token, successor.token]) == {successor.token}
    queue.finish({successor.token: Outcome.NEW})
    assert _states(queue) == {"a": "done"}


def test_hold__keeps_rescue_away_until_the_transaction_ends(
    queue: Queue, put: Put, opened: Database, database: DatabaseSettings
) -> None:
    put("a")
    job = _one(queue)
    _expire(database)
    with opened.worker.queue() as connection:
        assert jobs.hold(connection, [job.token]) == {job.token}
        assert _take(queue, worker="other") == []
        jobs.finish(connection, {job.token: Outcome.NEW})
    assert _states(queue) == {"a": "done"}


def test_lost_leases__make_a_job_dead_and_it_is_taken_alone(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("poison")
    assert _one(queue).lost == 0
    put("b", "c")
    _expire(database)
    for lost in (1, 2):
        alone = _take(queue)
        assert [(job.key, job.lost) for job in alone] == [("poison", lost)]
        _expire(database)
    assert [job.key for job in _take(queue)] == ["b", "c"]
    (dead,) = queue.jobs(ACME, states=[JobState.DEAD])
    assert (dead.key, dead.code, dead.lost) == ("poison", "lease_lost", 3)
    assert dead.error == "its worker w ended, or stopped, without a word"


def test_left_behind_work__comes_back_within_the_pause_however_much_is_queued(
    queue: Queue, put: Put, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "WAKE_S", 0.3)
    put("left")
    _one(queue)
    _expire(database)
    put(*map(str, range(500)))
    assert _one(queue).key == "0"
    time.sleep(0.3)
    assert _one(queue).key == "left"


def test_lose__needs_no_lease_to_run_out(queue: Queue, put: Put) -> None:
    put("a")
    queue.lose([_one(queue).token])
    assert _one(queue).lost == 1


def test_fail__comes_again_later_until_it_is_dead(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("a")
    for attempt in (1, 2, 3):
        job = _one(queue)
        assert job.attempt == attempt
        state = queue.fail(job, ParseError("crashed", "the parser died"), source="a", retry=True)
        assert _take(queue) == [], "before its time"
        _hasten(database)
    assert state is JobState.DEAD
    (info,) = queue.jobs(ACME)
    assert (info.code, info.error, info.attempt) == ("crashed", "the parser died", 3)
    assert queue.retry(ACME) == [info.id]
    assert _one(queue).attempt == 1


def test_retry__leaves_a_job_whose_key_has_newer_work(queue: Queue, put: Put) -> None:
    put("a")
    queue.fail(_one(queue), ParseError("corrupt", "x"), source="a", retry=False)
    put("a")
    assert queue.retry(ACME) == []


def test_cancel__waiting_and_running(queue: Queue, put: Put) -> None:
    first, second = put("a"), put("b")
    running = _one(queue)
    assert sorted(queue.cancel(ACME, [*first, *second])) == sorted([*first, *second])
    with pytest.raises(LeaseLost):
        queue.finish({running.token: Outcome.NEW})
    assert _states(queue) == {"a": "cancelled", "b": "cancelled"}
    assert queue.cancel(ACME, first) == []


def test_cancel__of_another_tenants_job_does_nothing(queue: Queue, put: Put) -> None:
    ids = put("a")
    assert queue.cancel(BETA, ids) == queue.retry(BETA, ids) == queue.jobs(BETA, ids=ids) == []
    assert _states(queue) == {"a": "queued"}


def test_give_back__counts_no_attempt(queue: Queue, put: Put) -> None:
    put("a")
    queue.give_back([_one(queue).token])
    assert _one(queue).attempt == 1


def test_scheduled__waits_for_its_time_and_periodic_comes_again(
    queue: Queue, put: Put, database: DatabaseSettings
) -> None:
    put("a", delay=timedelta(hours=1), every=timedelta(minutes=5))
    assert _take(queue) == []
    _hasten(database)
    queue.finish({_one(queue).token: Outcome.DONE})
    (info,) = queue.jobs(ACME)
    assert (info.state, info.every_s) == (JobState.SCHEDULED, 300.0)
    assert 290 < (info.run_at - info.created_at).total_seconds() < 310
    assert queue.unfinished([KIND]) == 0
    _hasten(database)
    assert queue.fail(_one(queue), ParseError("corrupt", "x"), source="a", retry=False) is JobState.SCHEDULED


def test_take__is_fair_however_long_the_backlog_of_another(queue: Queue, put: Put) -> None:
    for start in range(0, 2000, 500):
        put(*(f"a{number}" for number in range(start, start + 500)))
    put(*(f"b{number}" for number in range(10)), owner=BETA)
    taken: list[str] = []
    while len([t for t in taken if t == "beta"]) < 10:
        batch = _take(queue, 4)
        taken += [job.tenant for job in batch]
        queue.finish({job.token: Outcome.NEW for job in batch})
    assert len(taken) <= 40


def test_take__alone_is_fair_too(queue: Queue, put: Put) -> None:
    put(*(f"a{number}" for number in range(300)))
    put("b", owner=BETA)
    waited = 0
    while _one(queue).tenant != "beta":
        waited += 1
    assert waited <= 1, "the other tenant has none running, and is next"


def test_take__by_eight_at_once_gives_each_job_once(queue: Queue, put: Put) -> None:
    put(*(f"a{number}" for number in range(400)))
    put(*(f"b{number}" for number in range(400)), owner=BETA)

    def drain(worker: int) -> list[tuple[str, int]]:
        taken: list[tuple[str, int]] = []
        empty = 0
        while empty < 3:
            batch = queue.take(7, kinds=[KIND], worker=str(worker))
            queue.finish({job.token: Outcome.NEW for job in batch})
            taken += [(job.tenant, job.id) for job in batch]
            empty = 0 if batch else empty + 1
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [job for found in pool.map(drain, range(8)) for job in found]
    assert len(taken) == len(set(taken)) == 800


def _ledger(database: DatabaseSettings, run: uuid.UUID) -> Mapping[str, int]:
    columns = ("seen", "new", "changed", "unchanged", "removed", "failed", "chunks")
    with psycopg.connect(database.admin_url or "") as connection:
        row = connection.execute(f"SELECT {', '.join(columns)} FROM kosmos.runs WHERE id = %s", [run]).fetchone()
    assert row is not None
    return dict(zip(columns, row, strict=True))


def _open_run(database: DatabaseSettings, run: uuid.UUID) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(
            "INSERT INTO kosmos.runs VALUES (%s, %s, 'default', '{}', 'working',"
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
    held = {job.key: job for job in _take(queue)}
    with opened.worker.queue() as connection:
        jobs.finish(
            connection,
            {held["new"].token: Outcome.NEW, held["changed"].token: Outcome.CHANGED},
            {held["new"].token: 7},
        )
    queue.fail(held["corrupt"], ParseError("corrupt", "broken"), source="corrupt.pdf", retry=False)
    queue.cancel(ACME, [held["cancelled"].id])
    for _ in range(3):
        _expire(database)
        _take(queue)
    assert _ledger(database, first) == {
        "seen": 0, "new": 1, "changed": 1, "unchanged": 0, "removed": 0, "failed": 3, "chunks": 7
    }  # fmt: skip
    assert _ledger(database, second)["new"] == 1
    assert _ledger(database, second)["failed"] == 0


def test_counts__by_kind_and_state(queue: Queue, put: Put) -> None:
    put("a", "b"), put("c", delay=timedelta(hours=1))
    _one(queue)
    counted = Counter({str(count.state): count.count for count in queue.counts()})
    assert counted == {"queued": 1, "running": 1, "scheduled": 1}
    assert all(count.oldest_s >= 0 for count in queue.counts())
    assert queue.unfinished([KIND]) == 3


def test_prune__keeps_the_dead_longer(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("done", "dead")
    done, dead = sorted(_take(queue), key=lambda job: job.key, reverse=True)
    queue.finish({done.token: Outcome.NEW})
    queue.fail(dead, ParseError("corrupt", "x"), source="dead", retry=False)
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET finished_at = now() - interval '10 days'")
    assert queue.prune(keep_days=7, keep_dead_days=30) == 1
    assert _states(queue) == {"dead": "dead"}


@pytest.mark.parametrize(("attempt", "middle"), [(1, 5.0), (2, 10.0), (5, 80.0), (30, 900.0)])
def test_back_off__doubles_up_to_a_limit_and_spreads(attempt: int, middle: float) -> None:
    delays = [jobs.back_off(attempt) for _ in range(300)]
    assert 0.5 * middle <= min(delays) < max(delays) <= 1.5 * middle
    assert max(delays) - min(delays) > 0.5 * middle


def _plans(database: DatabaseSettings, sql: str, values: Mapping[str, Any]) -> str:
    with psycopg.connect(database.admin_url or "") as connection:
        rows: Sequence[Any] = connection.execute(f"EXPLAIN (ANALYZE, COSTS OFF) {sql}", values).fetchall()
        connection.rollback()
    return "\n".join(row[0] for row in rows)


def test_take__does_not_read_what_is_finished(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(
            "INSERT INTO kosmos.jobs (tenant_id, tenant, collection, kind, key, payload, state, priority, run_at,"
            " attempt, lost, again, runs, created_at, finished_at)"
            " SELECT gen_random_uuid(), 't', 'default', 'document', n::text, '{}', 'done', 0, now(),"
            " 1, 0, false, '{}', now(), now() FROM generate_series(1, 50000) n"
        )
        connection.execute("ANALYZE kosmos.jobs")
    put(*(f"a{number}" for number in range(100)))
    started = time.perf_counter()
    assert len(_take(queue)) == 10
    assert time.perf_counter() - started < 2
    for kind in (KIND, "other"):
        plan = _plans(database, statement("take_jobs"), {"limit": 10, "kinds": [kind], "worker": "w", "lease_s": 60.0})
        assert "Seq Scan on jobs" not in plan, plan
    assert "Seq Scan on jobs" not in _plans(database, statement("wake_jobs"), {"max_lost": 3})


def test_renew__passes_over_a_row_that_somebody_has_locked(queue: Queue, put: Put, opened: Database) -> None:
    put("locked", "other")
    held = {job.key: job for job in _take(queue)}
    with opened.worker.queue() as connection:
        jobs.hold(connection, [held["locked"].token])
        started = time.perf_counter()
        assert queue.renew([job.token for job in held.values()]) == {job.token for job in held.values()}
        assert time.perf_counter() - started < 5


def test_periodic__is_there_once_and_is_not_hastened_by_asking_again(queue: Queue, opened: Database) -> None:
    for _ in range(3):
        with opened.worker.queue() as connection:
            enqueue_periodic(connection, ACME, "default", {KIND: timedelta(hours=1)})
    (info,) = queue.jobs(ACME)
    assert (info.state, info.every_s) == (JobState.SCHEDULED, 3600.0)
    assert _take(queue) == []


def test_new_work__on_a_suspect_with_the_same_payload_keeps_the_suspicion(
    queue: Queue, put: Put, database: DatabaseSettings
) -> None:
    put("a", payload={"version": 1})
    _one(queue)
    put("a", payload={"version": 1})
    _expire(database)
    assert _one(queue).lost == 1
    put("a", payload={"version": 2})
    _expire(database)
    assert _one(queue).lost == 1, "the newer version has lost one worker, not two"


def test_uploads__are_not_for_the_role_that_reads(opened: Database) -> None:
    with pytest.raises(StatementFailed, match="permission denied"), opened.app.transaction(ACME.id, []) as connection:
        connection.execute("SELECT * FROM kosmos.uploads").fetchall()
