"""Segments under readers and writers: no answer changes by how its chunks are stored."""

import itertools
import math
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.tenants import tenant
from tests.integration.indexing.row_counts import count_rows
from tests.integration.variants import changed
from tests.waiting import wait_for_lock

pytestmark = pytest.mark.emptied_database

ACME = tenant("acme").id


@pytest.fixture
def keyword_settings(keyword_settings: Settings) -> Settings:
    """Equal texts stay apart."""
    return changed(keyword_settings, {"rag.retrieval.fold_copies": False})


def _document(source: str, text: str, *readers: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode(), acl=readers or (EVERYONE,))


def _sources(engine: Engine, question: str, k: int, *principals: str) -> list[str]:
    return [hit.source for hit in engine.tenant("acme", principals=principals or (EVERYONE,)).search(question, k).hits]


# --- readers -----------------------------------------------------------------------------------------------------


def test_reader__gets_what_is_asked_for_where_the_best_are_for_others(keywords: Engine) -> None:
    """250 better chunks are forbidden: the walk goes on until there are enough, or no more."""
    scope = keywords.tenant("acme")
    scope.ingest(_document(f"board{n}.txt", "secret " * (5 + n % 50) + f"b{n}", "board") for n in range(250))
    scope.ingest(_document(f"staff{n:02}.txt", f"secret {'word ' * (n + 1)}", "staff") for n in range(50))
    scope.indexes.build()
    texts = [f"staff{n:02}.txt" for n in range(50)]  # the shorter, the better
    for k in (1, 7, 40, 50, 60):
        assert _sources(keywords, "secret", k, "staff") == texts[:k]
        assert len(_sources(keywords, "secret", k, "board", "staff")) == k
        assert all(source.startswith("board") for source in _sources(keywords, "secret", k, "board"))
    assert _sources(keywords, "secret", 10, "nobody") == []


def test_deleted_chunk__is_gone_though_postings_hold_it(keywords: Engine, admin: psycopg.Connection) -> None:
    scope = keywords.tenant("acme")
    scope.ingest(_document(f"{n}.txt", f"secret {'word ' * n}") for n in range(20))
    scope.indexes.build()
    before = count_rows(admin)
    scope.delete([f"{n}.txt" for n in range(0, 20, 2)])
    assert count_rows(admin) == before
    for k in (1, 5, 10, 20):
        assert _sources(keywords, "secret", k) == [f"{n}.txt" for n in range(1, 20, 2)][:k]
    assert scope.search("secret").retrievers["lexical"].read["postings"] == 20
    scope.indexes.rebuild()
    assert _sources(keywords, "secret", 20) == [f"{n}.txt" for n in range(1, 20, 2)]
    assert scope.search("secret").retrievers["lexical"].read["postings"] == 10


def test_replaced_document__shows_its_new_version_at_once(keywords: Engine) -> None:
    scope = keywords.tenant("acme")
    scope.ingest(_document(f"{n}.txt", f"secret word{n}") for n in range(5))
    scope.indexes.build()
    scope.ingest(_document("3.txt", "public matter"))
    assert "3.txt" not in _sources(keywords, "secret", 10)
    assert _sources(keywords, "word3", 10) == []
    result = keywords.tenant("acme").search("public", 10)
    assert [(hit.source, hit.version, hit.text) for hit in result.hits] == [("3.txt", 2, "public matter")]
    scope.ingest(_document("4.txt", "secret word4", "board"))
    assert "4.txt" not in _sources(keywords, "secret", 10)
    assert _sources(keywords, "word4", 10, "board") == ["4.txt"]


# --- what is beside a question -----------------------------------------------------------------------------------


def _everlasting(seconds: float) -> Callable[[Callable[[], object]], None]:
    """Return how to repeat something until the time is over, or until a repetition beside it has failed."""
    ends = time.monotonic() + seconds
    failed = threading.Event()

    def repeat(step: Callable[[], object]) -> None:
        while time.monotonic() < ends and not failed.is_set():
            try:
                step()
            except BaseException:
                failed.set()
                raise

    return repeat


def _together(repeat: Callable[[Callable[[], object]], None], steps: list[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(len(steps)) as pool:
        for running in [pool.submit(repeat, step) for step in steps]:
            running.result()


FIXED, MOST = 12, 40


def _corpus_size(score: float, holding: int) -> float:
    """How many chunks a corpus has in which a term that `holding` of them hold has this idf."""
    return (holding + 0.5) * (math.exp(score) - 1) + holding - 0.5


def test_answers__are_of_one_committed_state_while_everything_changes(keywords: Engine) -> None:
    """All chunks are of eight terms: so the average length stays, and of a state only the number of chunks tells."""
    scope = keywords.tenant("acme")
    scope.ingest(
        _document(f"fixed{n:02}.txt", " ".join(["anchor"] * (n % 4 + 1) + [f"f{n}"] * (7 - n % 4)))
        for n in range(FIXED)
    )
    anchors = _sources(keywords, "anchor", 100)
    assert len(anchors) == FIXED
    dice = random.Random(1)

    def anchored() -> None:
        result = scope.search("anchor", 100)
        assert [hit.source for hit in result.hits] == anchors
        scores = [hit.lexical_score or 0.0 for hit in result.hits]
        # One number of chunks explains all scores: statistics and candidates are of one snapshot.
        weights = [tf * 2.5 / (tf + 1.5) for tf in sorted((n % 4 + 1 for n in range(FIXED)), reverse=True)]
        sizes = [_corpus_size(score / weight, FIXED) for score, weight in zip(scores, weights, strict=True)]
        assert sizes == pytest.approx([round(sizes[0])] * FIXED, rel=1e-9)
        assert FIXED <= round(sizes[0]) <= FIXED + MOST

    def drifting() -> None:
        result = scope.search("drift", 100)
        sizes = [_corpus_size(hit.lexical_score or 0.0, len(result.hits)) for hit in result.hits]
        assert len({hit.source for hit in result.hits}) == len(result.hits)
        assert sizes == pytest.approx([FIXED + len(result.hits)] * len(sizes), rel=1e-9)

    def publish() -> None:
        numbers = dice.sample(range(MOST), 3)
        unique = uuid.uuid4().hex
        report = scope.ingest(_document(f"drift{n}.txt", f"drift {f'u{unique} ' * 7}") for n in numbers)
        assert report.failed == ()

    def delete() -> None:
        scope.delete([f"drift{n}.txt" for n in dice.sample(range(MOST), 3)])

    repeat = _everlasting(6)
    _together(repeat, [anchored, drifting, publish, delete, scope.indexes.build])
    assert _sources(keywords, "anchor", 100) == anchors


def _assert_statistics(admin: psycopg.Connection) -> None:
    """Assert that the statistics are what counting the chunks gives."""
    stored = admin.execute("SELECT chunks, length FROM kosmos.collection_statistics").fetchall()
    assert stored == admin.execute("SELECT count(*), coalesce(sum(length), 0) FROM kosmos.chunks").fetchall()
    lexemes = admin.execute("SELECT lexeme, chunks FROM kosmos.lexemes ORDER BY lexeme").fetchall()
    assert (
        lexemes
        == admin.execute(
            'SELECT u.lexeme COLLATE "C", count(*) FROM kosmos.chunks c, unnest(c.tsv) u GROUP BY 1 ORDER BY 1'
        ).fetchall()
    )


def _deadlocks(admin: psycopg.Connection) -> int:
    row = admin.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return row[0] if row else 0


def test_writers__of_the_same_documents_never_wait_for_each_other_in_a_circle(
    keywords: Engine, admin: psycopg.Connection
) -> None:
    scope = keywords.tenant("acme")
    together = _everlasting(8)
    numbers = itertools.count()

    def write(seed: int) -> Callable[[], None]:
        dice = random.Random(seed)

        def step() -> None:
            names = [f"{n}.txt" for n in dice.sample(range(40), 20)]
            if dice.random() < 0.4:
                scope.delete(names)
            else:
                unique = next(numbers)
                report = scope.ingest(_document(name, f"shared u{unique} {name}") for name in names)
                assert report.failed == ()

        return step

    def build() -> None:
        scope.indexes.build()

    _together(together, [*(write(seed) for seed in range(4)), build])
    _assert_statistics(admin)
    assert _deadlocks(admin) == 0
    assert sorted(_sources(keywords, "shared", 100)) == sorted(scope.sources())


def test_packing__waits_for_a_publication_before_it_locks_a_chunk(
    keywords: Engine, database: DatabaseSettings, admin: psycopg.Connection
) -> None:
    """A publication locks the corpus, then chunks in any order: here the last before the first."""
    scope = keywords.tenant("acme")
    scope.ingest(_document(f"{n}.txt", f"shared word{n}") for n in range(50))
    select = "SELECT sequence FROM kosmos.unsegmented_terms ORDER BY sequence"
    sequences = [row[0] for row in admin.execute(select).fetchall()]
    delete = "DELETE FROM kosmos.unsegmented_terms WHERE tenant_id = %s AND sequence = %s"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database.admin_url or "") as publication:
        publication.execute("SELECT FROM kosmos.collection_statistics WHERE tenant_id = %s FOR UPDATE", (ACME,))
        publication.execute(delete, (ACME, sequences[-1]))
        packing = pool.submit(scope.indexes.build)
        wait_for_lock(admin)
        publication.execute(delete, (ACME, sequences[0]))
        publication.commit()
        packing.result()
    assert _deadlocks(admin) == 0
    assert count_rows(admin)["unsegmented_terms"] == 0
