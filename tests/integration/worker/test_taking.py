"""Taking from the queue: fair between tenants, each job once, and at a price that does not grow."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import Outcome
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.sql import statement
from tests.integration.worker.queue_calls import BETA, KIND, Put, claim_one, take

pytestmark = pytest.mark.emptied_database


def test_take__is_fair_however_long_the_backlog_of_another(queue: Queue, put: Put) -> None:
    for start in range(0, 2000, 500):
        put(*(f"a{number}" for number in range(start, start + 500)))
    put(*(f"b{number}" for number in range(10)), owner=BETA)
    tenants: list[str] = []
    while len([t for t in tenants if t == "beta"]) < 10:
        batch = take(queue, 4)
        tenants += [job.tenant for job in batch]
        queue.finish({job.token: Outcome.NEW for job in batch})
    assert len(tenants) <= 40


def test_take__alone_is_fair_too(queue: Queue, put: Put) -> None:
    put(*(f"a{number}" for number in range(300)))
    put("b", owner=BETA)
    waited = 0
    while claim_one(queue).tenant != "beta":
        waited += 1
    assert waited <= 1, "the other tenant has none running, and is next"


def test_take__by_eight_at_once_gives_each_job_once(queue: Queue, put: Put) -> None:
    put(*(f"a{number}" for number in range(400)))
    put(*(f"b{number}" for number in range(400)), owner=BETA)

    def drain(worker: int) -> list[tuple[str, UUID]]:
        pairs: list[tuple[str, UUID]] = []
        empty = 0
        while empty < 3:
            batch = queue.claim(7, kinds=[KIND], worker=str(worker))
            queue.finish({job.token: Outcome.NEW for job in batch})
            pairs += [(job.tenant, job.id) for job in batch]
            empty = 0 if batch else empty + 1
        return pairs

    with ThreadPoolExecutor(8) as pool:
        pairs = [job for result in pool.map(drain, range(8)) for job in result]
    assert len(pairs) == len(set(pairs)) == 800


def _rows_read(connection: psycopg.Connection, sql: str, values: Mapping[str, Any]) -> int:
    """Return how many rows of the jobs a statement reads; what it does is undone."""
    text = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'kosmos.jobs'::regclass"
    with connection.transaction(force_rollback=True):
        before = connection.execute(text).fetchone()  # what other transactions have not reported yet is counted too
        connection.execute(sql, values)
        after = connection.execute(text).fetchone()
    assert before is not None
    assert after is not None
    rows: int = after[0] - before[0]
    return rows


# The plan depends on the pages of the table: it has had no rows of other tests.
@pytest.mark.own_database
@pytest.mark.parametrize("analysed", [True, False])
def test_take__soon_reads_no_more_than_it_takes(put: Put, database: DatabaseSettings, analysed: bool) -> None:
    taking = statement("claim_jobs"), {"limit": 10, "worker": "w", "lease_s": 60.0, "kinds": [KIND]}
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        put("first")
        if analysed:
            connection.execute("VACUUM ANALYZE kosmos.jobs")
        for _ in range(10):  # the plan that the server keeps is one for a table of one page
            _rows_read(connection, *taking)
        connection.execute(
            "INSERT INTO kosmos.jobs (tenant_id, id, tenant, collection, kind, key, payload, state, priority,"
            " run_at, attempt, lost, requeue, sync_run_ids, created_at, finished_at)"
            " SELECT gen_random_uuid(), kosmos.new_job_id(), 't', 'default', 'document', n::text, '{}', 'done', 0,"
            " now(), 1, 0, false, '{}', now(), now() FROM generate_series(1, 5000) n"
        )
        put(*(f"a{number}" for number in range(100)))
        read = [_rows_read(connection, *taking)]
        while read[-1] > 500 and len(read) < 2000:
            read.append(_rows_read(connection, *taking))
        assert read[-1] <= 500
        assert _rows_read(connection, statement("requeue_due_jobs"), {"max_lost": 3}) <= 500
