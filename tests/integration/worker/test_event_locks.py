"""Transactions with events lock the tenant's stream after all other rows, so that no two wait for each other."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from tests.integration.worker.working import Work, last_run

pytestmark = pytest.mark.emptied_database

WAITING = "SELECT count(*) FROM pg_stat_activity a WHERE pg_backend_pid() = ANY (pg_blocking_pids(a.pid))"
FREE_RUNS = "SELECT r.id FROM kosmos.sync_runs r WHERE r.state <> 'finished' FOR UPDATE SKIP LOCKED"
FREE_COLLECTIONS = "SELECT c.collection FROM kosmos.collection_statistics c FOR UPDATE SKIP LOCKED"


@pytest.fixture
def admin(database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        yield connection


@contextmanager
def _waiting_for_stream(admin: psycopg.Connection, run: Callable[[], object]) -> Iterator[None]:
    """Lock the stream of events, and run something until it waits for it."""
    with ThreadPoolExecutor(1) as pool:
        with admin.transaction():
            admin.execute("SELECT FROM kosmos.event_streams s FOR UPDATE")
            future = pool.submit(run)
            while admin.execute(WAITING).fetchone() == (0,):
                assert not future.done(), future.result()
                time.sleep(0.02)
            yield
        future.result(timeout=60)


def test_worker__locks_the_counts_of_its_run_before_the_stream(
    scope: Tenant, work: Work, folder: Path, admin: psycopg.Connection
) -> None:
    scope.events.start()
    scope.jobs.enqueue(folder)
    with _waiting_for_stream(admin, work):
        assert admin.execute(FREE_RUNS).fetchall() == []
    (folder / "page-1.md").unlink()
    scope.jobs.enqueue(folder)
    with _waiting_for_stream(admin, work):
        assert admin.execute(FREE_RUNS).fetchall() == []
    assert last_run(scope).removed == 1


def test_erasure__locks_all_collections_before_the_stream(
    engine: Engine, scope: Tenant, admin: psycopg.Connection
) -> None:
    scope.events.start()
    collections = [engine.tenant("acme", collection=name) for name in ("a", "b", "c")]
    for collection in collections:
        collection.ingest([SourceDocument(source="ann.md", data=b"About Ann.")])
    with _waiting_for_stream(admin, lambda: scope.erase(source="ann.md")):
        assert admin.execute(FREE_COLLECTIONS).fetchall() == []
    assert [collection.documents() for collection in collections] == [[], [], []]
    events, _ = scope.events.read(3)
    assert [(event.type, event.collection) for event in events] == [
        ("document.removed", name) for name in ("a", "b", "c")
    ]
