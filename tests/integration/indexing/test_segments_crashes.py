"""Maintenance beside maintenance, and its end in the middle: what is not committed has not happened."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseError, IndexLocked
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.indexing import segments
from kosmos_rag.indexing.catalog import list_indexes
from kosmos_rag.indexing.status import filter_segments, segments_end
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import tenant
from tests.integration.indexing.row_counts import count_rows
from tests.integration.variants import changed
from tests.waiting import wait_for_lock

pytestmark = pytest.mark.emptied_database

ACME = tenant("acme").id


def _document(source: str, text: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode())


def test_maintenance__is_refused_while_another_runs(keywords: Engine, keyword_settings: Settings) -> None:
    keywords.tenant("acme").ingest(_document("a.txt", "some words"))
    keywords.tenant("other").ingest(_document("a.txt", "some words"))
    event, go_on = threading.Event(), threading.Event()

    def stop(_: str) -> None:
        event.set()
        go_on.wait(30)

    with Engine(keyword_settings, embedder=HashingEmbedder()) as second, ThreadPoolExecutor(1) as pool:
        running = pool.submit(keywords.tenant("acme").indexes.build, stop)
        assert event.wait(30)
        try:
            for engine in (keywords, second):
                for again in (engine.tenant("acme").indexes.build, engine.tenant("acme").indexes.rebuild):
                    with pytest.raises(IndexLocked, match="acme"):
                        again()
            second.tenant("other").indexes.build()
            second.tenant("acme").indexes.status()
        finally:
            go_on.set()
        running.result()
        second.tenant("acme").indexes.rebuild()
    assert [hit.source for hit in keywords.tenant("acme").search("words").hits] == ["a.txt"]


def test_maintenance__right_after_another_is_not_refused(keywords: Engine, admin: psycopg.Connection) -> None:
    """The server notices the end of a session late: the lock must be released before."""
    indexes, owner = keywords.indexes, tenant("acme")
    keywords.tenant("acme").ingest(_document("a.txt", "some words"))
    for _ in range(50):
        # It ends with the release of the lock, and finds nothing to restore.
        assert indexes.repair_recall(owner, [], "", progress=lambda _: None) is None
        assert _advisory_locks(admin) == 0
        keywords.tenant("acme").indexes.build()


def test_maintenance__that_failed_has_released_its_lock(keywords: Engine, admin: psycopg.Connection) -> None:
    scope = keywords.tenant("acme")

    def fail(_: str) -> None:
        raise RuntimeError("stopped by its caller")

    for number in range(30):
        scope.ingest(_document("a.txt", f"some words, version {number}"))
        with pytest.raises(RuntimeError, match="stopped by its caller"):
            scope.indexes.build(fail)
        assert _advisory_locks(admin) == 0
    scope.indexes.build()


def _advisory_locks(admin: psycopg.Connection) -> int:
    query = """
        SELECT count(*) FROM pg_locks
         WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    return int((admin.execute(query).fetchone() or (-1,))[0])


def _pack(connection: psycopg.Connection) -> None:
    stored_segments = filter_segments(list_indexes(connection, ACME), "default")
    assert (
        segments.pack_unsegmented(connection, ACME, "default", first_sequence=segments_end(stored_segments)) is not None
    )


def _merge(connection: psycopg.Connection) -> None:
    segments.merge_segments(connection, ACME, filter_segments(list_indexes(connection, ACME), "default"))


STEPS = pytest.mark.parametrize("step", [_pack, _merge])
WORDS = [f"word{n}" for n in range(30)]


def _segmented(engine: Engine) -> None:
    """Two segments, a tail, and some chunks of each deleted."""
    dice = random.Random(2)
    scope = engine.tenant("acme")
    for size in (60, 20, 10):
        scope.ingest(_document(f"{size}-{n}.txt", " ".join(dice.choices(WORDS, k=12))) for n in range(size))
        if size > 10:
            scope.indexes.build()
    scope.delete(["60-1.txt", "20-1.txt", "10-1.txt"])


def _answers(engine: Engine) -> list[list[tuple[uuid.UUID, float | None]]]:
    scope = engine.tenant("acme")
    return [[(hit.chunk_id, hit.lexical_score) for hit in scope.search(word, 100).hits] for word in WORDS]


@STEPS
def test_change_of_segments__whose_connection_is_lost_before_the_commit_has_not_happened(
    step: Callable[[psycopg.Connection], None], keywords: Engine, database: DatabaseSettings, admin: psycopg.Connection
) -> None:
    _segmented(keywords)
    answers, rows = _answers(keywords), count_rows(admin)
    other = Database(database)

    def cut_off() -> None:
        with other.worker.transaction(ACME, [EVERYONE]) as connection:
            step(connection)
            assert _answers(keywords) == answers  # not committed, not seen
            # Not that of the connection: it may be to a pooler.
            (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (None,)
            admin.execute("SELECT pg_terminate_backend(%s, 5000)", (backend,))

    with pytest.raises(DatabaseError):
        cut_off()
    other.close()
    assert (_answers(keywords), count_rows(admin)) == (answers, rows)
    keywords.tenant("acme").indexes.build()
    assert _answers(keywords) == answers
    assert count_rows(admin)["unsegmented_terms"] == 0


@STEPS
def test_change_of_segments__that_another_transaction_has_made_is_refused(
    step: Callable[[psycopg.Connection], None], keywords: Engine, database: DatabaseSettings, admin: psycopg.Connection
) -> None:
    """A killed maintenance holds its lock no longer, but its last transaction may still be about to commit."""
    _segmented(keywords)
    answers = _answers(keywords)
    other = Database(database)
    with ThreadPoolExecutor(1) as pool:

        def late() -> None:
            with other.worker.transaction(ACME, [EVERYONE]) as connection:
                step(connection)

        with other.worker.transaction(ACME, [EVERYONE]) as connection:
            step(connection)
            running = pool.submit(late)
            wait_for_lock(admin)
        with pytest.raises(IndexLocked):
            running.result()
    other.close()
    assert _answers(keywords) == answers
    keywords.tenant("acme").indexes.rebuild()
    assert _answers(keywords) == answers
    assert (count_rows(admin)["indexes"], count_rows(admin)["segments"]) == (1, 1)


MAINTENANCE = """
import json, sys
from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
with Engine(Settings.model_validate(json.load(sys.stdin)), embedder=HashingEmbedder()) as engine:
    scope = engine.tenant("acme")
    scope.indexes.status()
    print("ready", flush=True)
    while True:
        scope.indexes.rebuild()
"""


def _killed_after(settings: Settings, seconds: float) -> None:
    """Run maintenance over and over in a process of its own, and kill that."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAINTENANCE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(settings.model_dump(mode="json"), process.stdin)
        process.stdin.close()
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_process__killed_at_any_moment_leaves_nothing_that_the_next_does_not_clean_up(
    keywords: Engine, keyword_settings: Settings, admin: psycopg.Connection
) -> None:
    with_vectors = changed(keyword_settings, {"indexes.vector": "ivfflat", "indexes.vector_min_chunks": 1})
    _segmented(keywords)
    answers = _answers(keywords)
    dice = random.Random(9)
    ready = "SELECT 'vec_' || replace(id::text, '-', ''), state = 'ready' FROM kosmos.indexes WHERE kind = 'ivfflat'"
    vectors = "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON oid = indexrelid WHERE relname ~ '^vec_'"
    with Engine(with_vectors, embedder=HashingEmbedder()) as engine:
        for _ in range(5):
            _killed_after(with_vectors, dice.uniform(0, 0.4))
            assert _answers(keywords) == answers
            engine.tenant("acme").indexes.build()
            assert _answers(keywords) == answers
            stored = admin.execute(ready).fetchall()
            assert len(stored) == 1
            assert admin.execute(vectors).fetchall() == stored
            assert count_rows(admin)["indexes"] == count_rows(admin)["segments"] + 1
            assert count_rows(admin)["unsegmented_terms"] == 0
