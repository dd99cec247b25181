"""Transactions, statements and model calls of an `ingest` call, counted; none depends on the size of the collection."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.models.embedding.space import PROBE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant

_ROWS = "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_user_tables WHERE relname = %s"

pytestmark = pytest.mark.emptied_database


class CallCounter(HashingEmbedder):
    """Counts the calls of the model, and its embeddings of the probe sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []
        self.probes = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(len(texts))
        return super().embed(texts)

    def embed_query(self, question: str) -> NDArray[np.float32]:
        self.probes += question == PROBE
        return super().embed_query(question)


@pytest.fixture
def embedder() -> CallCounter:
    return CallCounter()


@pytest.fixture
def counting_engine(settings: Settings, embedder: CallCounter) -> Iterator[Engine]:
    with Engine(settings, embedder=embedder) as opened:
        opened.tenant("warm").ingest(_text("a", "the first call opens the pool"))
        embedder.calls.clear()
        embedder.probes = 0
        yield opened


def _text(source: str, text: str) -> SourceDocument:
    return SourceDocument(source=source, data=text.encode())


@contextmanager
def _transactions(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count the transactions that both roles begin, by their names."""
    names: list[str] = []
    database = engine.database
    for name, role in (("app", database.app), ("worker", database.worker)):
        for method in ("transaction", "queue", "queue_at_once", "session"):
            if not hasattr(role, method):
                continue
            original = getattr(role, method)

            def begin(*args: Any, original: Callable[..., Any] = original, name: str = name, **options: Any) -> Any:
                names.append(name)
                return original(*args, **options)

            monkeypatch.setattr(role, method, begin)
    yield names
    monkeypatch.undo()


def test_a_new_document__takes_two_transactions_and_one_call_of_the_model(
    counting_engine: Engine, embedder: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = counting_engine.tenant("acme")
    with _transactions(counting_engine, monkeypatch) as transactions:
        assert acme.ingest(_text("a", "Churn is falling.")).new == 1
    assert transactions == ["worker", "worker"]
    assert embedder.calls == [1]
    assert embedder.probes == 0, "the probe sentence is remembered"


def test_an_unchanged_document__takes_one_transaction_and_no_call_of_the_model(
    counting_engine: Engine, embedder: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = counting_engine.tenant("acme")
    acme.ingest(_text("a", "Churn is falling."))
    embedder.calls.clear()
    with _transactions(counting_engine, monkeypatch) as transactions:
        assert acme.ingest(_text("a", "Churn is falling.")).unchanged == 1
    assert transactions == ["worker"]
    assert (embedder.calls, embedder.probes) == ([], 0)


def test_a_file__takes_as_many_as_a_document_and_a_folder_one_more(
    counting_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acme = counting_engine.tenant("acme")
    (tmp_path / "a.md").write_text("Churn is falling.")
    with _transactions(counting_engine, monkeypatch) as transactions:
        assert acme.ingest(tmp_path / "a.md").new == 1
    assert len(transactions) == 2
    with _transactions(counting_engine, monkeypatch) as transactions:
        assert acme.ingest(tmp_path).unchanged == 1
    assert len(transactions) == 2, "one loads the state, one compares the folder with what is stored"


def test_many_texts__are_embedded_by_one_call_outside_of_the_transaction(
    counting_engine: Engine, embedder: CallCounter, monkeypatch: pytest.MonkeyPatch
) -> None:
    paragraphs = "\n\n".join(f"Paragraph {number} is about " + f"topic{number} " * 20 for number in range(40))
    with _transactions(counting_engine, monkeypatch) as transactions:
        report = counting_engine.tenant("acme").ingest(_text("a", paragraphs))
    assert report.chunks > 16
    assert embedder.calls == [report.chunks]
    assert len(transactions) == 3


def _rows_read(database: DatabaseSettings, table: str) -> int:
    with closing(psycopg.connect(database.admin_url or "", autocommit=True)) as connection:
        row = connection.execute(_ROWS, (table,)).fetchone()
    assert row is not None
    return int(row[0])


def _fill(database: DatabaseSettings, count: int, *, analyze: bool = True) -> None:
    """Add stored documents without chunks to the tenant's collection."""
    with psycopg.connect(database.admin_url or "") as connection:
        connection.execute(
            "INSERT INTO kosmos.documents (tenant_id, id, source, title, media_type, language, metadata, acl, version,"
            " created_at, updated_at, collection) SELECT %s, gen_random_uuid(), 'filler/' || n, 'x', 'text/plain',"
            " 'english', '{}', '{everyone}', 1, now(), now(), 'default' FROM generate_series(1, %s) n",
            (tenant("acme").id, count),
        )
    if not analyze:
        return
    with closing(psycopg.connect(database.admin_url or "", autocommit=True)) as connection:
        connection.execute("VACUUM ANALYZE kosmos.documents")


@pytest.mark.own_database
def test_a_document__reads_no_more_of_a_large_collection_than_of_a_small_one(
    settings: Settings, database: DatabaseSettings
) -> None:
    read: list[int] = []
    for rows in (20, 3000):
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            engine.tenant("acme").ingest(_text("first", "The tenant exists."))
        _fill(database, rows)
        before = _rows_read(database, "documents")
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            assert engine.tenant("acme").ingest(_text(f"new {rows}", "Churn is falling.")).new == 1
        # The sessions have ended with their engine: what they read is in the statistics.
        read.append(_rows_read(database, "documents") - before)
    assert read[1] <= read[0] + 20


@pytest.mark.own_database
def test_a_document_of_a_new_database__checks_its_foreign_keys_by_their_index(
    settings: Settings, database: DatabaseSettings
) -> None:
    def ingest(engine: Engine, name: str) -> None:
        documents = [_text(f"{name} {number}", "Churn is falling.") for number in range(20)]
        assert engine.tenant("acme").ingest(documents).new == 20

    with Engine(settings, embedder=HashingEmbedder()) as engine:
        ingest(engine, "first")  # the connection plans its checks while the tables are almost empty
        _fill(database, 3000, analyze=False)
        before = _rows_read(database, "documents")
        ingest(engine, "next")
    assert _rows_read(database, "documents") - before < 20_000, "a check reads all documents of the tenant"
