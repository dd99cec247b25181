"""Transactions lock jobs, collections, runs and the stream of events in this order: no two wait for each other."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, JobState, Outcome
from kosmos_rag.ingestion.sources.listing import Entry, Listing
from kosmos_rag.storage.analysis import Analysis, TextAnalyser
from kosmos_rag.storage.queue.kinds import DOCUMENT, PERMISSIONS, SYNC
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobLeases, JobWriter, count_cancelled_jobs
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.integration.worker.working import Work, last_run, run_listing

pytestmark = pytest.mark.emptied_database

WAITING = "SELECT count(*) FROM pg_stat_activity a WHERE pg_backend_pid() = ANY (pg_blocking_pids(a.pid))"
FREE_RUNS = "SELECT r.id FROM kosmos.sync_runs r WHERE r.state <> 'finished' FOR UPDATE SKIP LOCKED"
FREE_COLLECTIONS = "SELECT c.collection FROM kosmos.collection_statistics c FOR UPDATE SKIP LOCKED"


@pytest.fixture
def admin(database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        yield connection


@contextmanager
def _waiting_for_stream(
    admin: psycopg.Connection,
    run: Callable[[], object],
    table: LiteralString = "event_streams",
    condition: LiteralString = "true",
) -> Iterator[None]:
    """Lock the stream of events, or rows of another table, and run something until it waits for it."""
    with ThreadPoolExecutor(1) as pool:
        with admin.transaction():
            admin.execute(f"SELECT FROM kosmos.{table} s WHERE {condition} FOR UPDATE")
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


def test_deletion__locks_the_run_of_a_waiting_job_after_the_collection(
    engine: Engine, scope: Tenant, work: Work, folder: Path, admin: psycopg.Connection
) -> None:
    """A worker that publishes another document of the run has locked the collection, and counts its outcome last."""
    scope.jobs.enqueue(folder)
    work()
    for file in folder.iterdir():
        file.write_text(f"# New\n\n{file.name} is changed.\n")
    scope.jobs.enqueue(folder)
    run_listing(engine)
    with _waiting_for_stream(admin, lambda: scope.delete("handbook/page-1.md"), "collection_statistics"):
        assert len(admin.execute(FREE_RUNS).fetchall()) == 1
    work()
    assert last_run(scope).cancelled == 1


def test_pass__locks_its_run_after_the_collection(
    engine: Engine, scope: Tenant, folder: Path, work: Work, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over a source that names readers locks the collection to take them away at once."""
    monkeypatch.setattr(Listing, "__iter__", _list_with_readers(Listing.__iter__))
    scope.jobs.enqueue(folder)
    work()
    for file in folder.iterdir():
        file.write_text(f"# New\n\n{file.name} is changed.\n")
    scope.jobs.enqueue(folder)
    with _waiting_for_stream(admin, lambda: run_listing(engine), "collection_statistics"):
        assert len(admin.execute(FREE_RUNS).fetchall()) == 1


def _list_with_readers(iterate: Callable[[Listing], Iterator[Entry]]) -> Callable[[Listing], Iterator[Entry]]:
    return lambda listing: (replace(entry, readers=("ann",)) for entry in iterate(listing))


def test_erasure__of_waiting_documents_is_counted_in_their_run(
    engine: Engine, scope: Tenant, folder: Path, work: Work
) -> None:
    """The run of erased jobs ends: it waited for their outcomes for ever."""
    scope.jobs.enqueue(folder)
    run_listing(engine)
    scope.erase(source="*page-1.md")
    work()
    run = last_run(scope)
    assert (run.state, run.seen, run.new, run.cancelled) == ("finished", 12, 11, 1)


def test_erasure__locks_jobs_in_the_order_of_their_keys(
    scope: Tenant, admin: psycopg.Connection, database: DatabaseSettings
) -> None:
    """As a worker does that verifies the leases of a batch."""
    for number in range(20):
        scope.jobs.enqueue(SourceDocument(source=f"note{number}", data=b"Churn is falling."))
    keys = [job.key for job in scope.jobs.find(kinds=[DOCUMENT], limit=50)]
    query = "SELECT j.key FROM kosmos.jobs j WHERE j.kind = 'document' FOR UPDATE SKIP LOCKED"
    first = "s.key = (SELECT min(j.key) FROM kosmos.jobs j WHERE j.kind = 'document')"
    with _waiting_for_stream(admin, lambda: scope.erase(source="note*"), "jobs", first):
        with psycopg.connect(database.admin_url or "") as other:
            free = {key for (key,) in other.execute(query)}
        assert free == {*keys} - {min(keys)}


def test_erasure__locks_the_job_of_a_pass_before_the_collection(
    engine: Engine, scope: Tenant, admin: psycopg.Connection, folder: Path
) -> None:
    """A pass that runs has locked its job, and waits for the collection."""
    scope.ingest(SourceDocument(source="note", data=b"Churn is falling."))
    job = scope.jobs.enqueue(folder)
    admin.execute("UPDATE kosmos.jobs SET error = 'note cannot be read' WHERE id = %s", [job])
    query = "SELECT count(*) FROM (SELECT FROM kosmos.jobs j WHERE j.id = %s FOR UPDATE SKIP LOCKED) free"
    with _waiting_for_stream(admin, lambda: scope.erase(source="note"), "collection_statistics"):
        assert admin.execute(query, [job]).fetchone() == (0,)
    assert scope.jobs.find(ids=[job])[0].error == "erased"


@pytest.mark.parametrize("kind", [SYNC, PERMISSIONS])
@pytest.mark.parametrize("action", ["erase", "cancel", "delete"])
def test_jobs_of_passes__are_locked_before_those_of_documents(
    action: str, kind: str, engine: Engine, scope: Tenant, admin: psycopg.Connection, folder: Path
) -> None:
    """A pass has locked its job when it cancels and adds those of documents."""
    ids = [scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling.")), scope.jobs.enqueue(folder)]
    with engine.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        ids += JobWriter(connection, tenant("acme")).enqueue(DEFAULT_COLLECTION, PERMISSIONS, {"zone": {}})
    admin.execute("UPDATE kosmos.jobs SET error = 'note cannot be read' WHERE kind = %s", [kind])
    run: dict[str, Callable[[], object]] = {
        "erase": lambda: scope.erase(source="note"),
        "cancel": lambda: scope.jobs.cancel(ids),
        "delete": lambda: scope.collections.delete(DEFAULT_COLLECTION),
    }
    with _waiting_for_stream(admin, run[action], "jobs", "s.id = (SELECT j.id FROM kosmos.jobs j WHERE j.error <> '')"):
        free = admin.execute("SELECT j.id FROM kosmos.jobs j WHERE j.id = %s FOR UPDATE SKIP LOCKED", ids[:1])
        assert free.fetchall() == [(ids[0],)]


@pytest.mark.parametrize("action", ["document", "collection"])
def test_job_that_fails_while_its_deletion_waits__does_not_come_back(
    action: str, scope: Tenant, admin: psycopg.Connection
) -> None:
    scope.jobs.enqueue(SourceDocument(source="broken.pdf", data=b"%PDF-1.7 nothing more"))
    run: dict[str, Callable[[], object]] = {
        "document": lambda: scope.delete("broken.pdf"),
        "collection": lambda: scope.collections.delete(DEFAULT_COLLECTION),
    }
    with _waiting_for_stream(admin, run[action], "jobs", "s.kind = 'document'"):
        admin.execute("UPDATE kosmos.jobs SET state = 'dead', finished_at = now() WHERE kind = 'document'")
    assert scope.jobs.retry() == []
    assert scope.jobs.find(kinds=[DOCUMENT]) == []


def test_deletion__forgets_a_source_that_was_paused(scope: Tenant, folder: Path) -> None:
    """What the deletion itself has cancelled stays until it is pruned; a paused source would stay for ever."""
    paused = scope.jobs.enqueue(folder, every=timedelta(hours=1))
    scope.jobs.cancel([paused])
    scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling."))
    scope.collections.delete(DEFAULT_COLLECTION)
    assert [job.kind for job in scope.jobs.find(states=[JobState.CANCELLED])] == [DOCUMENT]


@pytest.mark.parametrize("action", ["cancel", "finish"])
def test_runs__are_locked_in_the_order_of_their_ids(
    action: str, engine: Engine, scope: Tenant, admin: psycopg.Connection
) -> None:
    """Two transactions that count jobs in the same runs do not wait for each other."""
    scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling."))
    (job,) = Queue.open(engine.database, engine.settings.worker).claim(1, kinds=[DOCUMENT], worker="test")
    ids = sorted(uuid.uuid4() for _ in range(20))
    with engine.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        for run_id in reversed(ids):
            values = {"tenant_id": scope.id, "run_id": run_id, "collection": DEFAULT_COLLECTION, "source": Jsonb({})}
            connection.execute(statement("insert_sync_run"), values)
    admin.execute("UPDATE kosmos.jobs SET sync_run_ids = %s WHERE id = %s", [ids, job.id])

    def count() -> None:
        with engine.database.worker.transaction(scope.id, [EVERYONE]) as connection:
            if action == "cancel":
                count_cancelled_jobs(connection, scope.id, ids[::-1])
            else:
                JobLeases(connection).finish({job.token: Outcome.NEW})

    with _waiting_for_stream(admin, count, "sync_runs", f"s.id = '{ids[0]}'"):
        free = admin.execute("SELECT r.id FROM kosmos.sync_runs r WHERE r.id = ANY (%s) FOR UPDATE SKIP LOCKED", [ids])
        assert len(free.fetchall()) == 20
    counts = admin.execute("SELECT r.cancelled + r.new FROM kosmos.sync_runs r").fetchall()
    assert counts == [(1,)] * 20


def test_publication__parses_texts_before_the_lock_where_it_replaces_documents(
    scope: Tenant, admin: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other writers of the collection would wait for it, and the server has nothing to do meanwhile."""
    scope.ingest(SourceDocument(source="note", data=b"Churn is falling."))
    words: list[str] = []
    read = TextAnalyser.read

    def read_and_record(analyser: TextAnalyser) -> Analysis:
        analysis = read(analyser)
        words.extend(analysis.vocabulary)
        return analysis

    monkeypatch.setattr(TextAnalyser, "read", read_and_record)
    version = SourceDocument(source="note", data=b"Churn is rising.")
    with _waiting_for_stream(admin, lambda: scope.ingest(version), "collection_statistics"):
        assert "rise" in words
