"""Leases of jobs: who holds one, who lost it, and what becomes of the job."""

import time

import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import LeaseLost, ParseError
from kosmos_rag.core.types import JobState, Outcome
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import queue as jobs
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobLeases
from tests.integration.worker.queue_calls import ACME, Put, claim_one, expire, states, take

pytestmark = pytest.mark.emptied_database


def test_finish__is_refused_to_who_lost_the_lease(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("a")
    zombie = claim_one(queue, "first")
    expire(database)
    successor = claim_one(queue, "second")
    assert successor.lost == 1
    with pytest.raises(LeaseLost):
        queue.finish({zombie.token: Outcome.NEW})
    assert queue.fail(zombie, ParseError("corrupt", "x"), source="a", retry=True) is None
    assert queue.renew([zombie.token, successor.token]) == {successor.token}
    queue.finish({successor.token: Outcome.NEW})
    assert states(queue) == {"a": "done"}


def test_hold__keeps_rescue_away_until_the_transaction_ends(
    queue: Queue, put: Put, opened: Database, database: DatabaseSettings
) -> None:
    put("a")
    job = claim_one(queue)
    expire(database)
    with opened.worker.untenanted() as connection:
        assert JobLeases(connection).lock([job.token]) == {job.token}
        assert take(queue, worker="other") == []
        JobLeases(connection).finish({job.token: Outcome.NEW})
    assert states(queue) == {"a": "done"}


def test_lost_leases__make_a_job_dead_and_it_is_taken_alone(queue: Queue, put: Put, database: DatabaseSettings) -> None:
    put("poison")
    assert claim_one(queue).lost == 0
    put("b", "c")
    expire(database)
    for losses in (1, 2):
        alone = take(queue)
        assert [(job.key, job.lost) for job in alone] == [("poison", losses)]
        expire(database)
    assert [job.key for job in take(queue)] == ["b", "c"]
    (dead,) = queue.jobs(ACME, states=[JobState.DEAD])
    assert (dead.key, dead.code, dead.lost) == ("poison", "lease_lost", 3)
    assert dead.error == "its worker w ended, or stopped, without a word"


def test_left_behind_work__comes_back_within_the_pause_however_much_is_queued(
    queue: Queue, put: Put, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "REQUEUE_INTERVAL_S", 3600.0)
    put("left")
    claim_one(queue)
    expire(database)
    put(*map(str, range(500)))
    assert claim_one(queue).key == "0"
    monkeypatch.setattr(queue, "_requeue_at", 0.0)  # the pause is over
    assert claim_one(queue).key == "left"


def test_lose__needs_no_lease_to_run_out(queue: Queue, put: Put) -> None:
    put("a")
    queue.expire_leases([claim_one(queue).token])
    assert claim_one(queue).lost == 1


def test_renew__passes_over_a_row_that_somebody_has_locked(queue: Queue, put: Put, opened: Database) -> None:
    put("locked", "other")
    jobs_by_key = {job.key: job for job in take(queue)}
    with opened.worker.untenanted() as connection:
        JobLeases(connection).lock([jobs_by_key["locked"].token])
        started = time.perf_counter()
        assert queue.renew([job.token for job in jobs_by_key.values()]) == {job.token for job in jobs_by_key.values()}
        assert time.perf_counter() - started < 20


def test_new_work__on_a_suspect_with_the_same_payload_keeps_the_suspicion(
    queue: Queue, put: Put, database: DatabaseSettings
) -> None:
    put("a", payload={"version": 1})
    claim_one(queue)
    put("a", payload={"version": 1})
    expire(database)
    assert claim_one(queue).lost == 1
    put("a", payload={"version": 2})
    expire(database)
    assert claim_one(queue).lost == 1, "the newer version has lost one worker, not two"
