"""Publishing a batch: into several spaces, under leases, with etags."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from email.message import EmailMessage
from io import BytesIO
from typing import Any, Self
from uuid import UUID, uuid5

import docx
import numpy as np
import openpyxl
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import LeaseLost
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    EVERYONE,
    Chunk,
    Citation,
    Note,
    Outcome,
    ParsedDocument,
    Place,
    Space,
    hash_text,
)
from kosmos_rag.core.types.serialize import to_dict
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.document import ChunkedDocument, document_id
from kosmos_rag.ingestion.publisher import NO_LEASE, Completion, Lease, Publisher, PublishResult
from kosmos_rag.models.embedding.registry import EmbedderRegistry, EmbeddingModel
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, chunk_id, publish
from kosmos_rag.storage.tenants import SpaceState, SpaceStore, ensure_tenant, tenant

ACME = tenant("acme")
NOW = datetime(2026, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.emptied_database


def _chunk(text: str) -> Chunk:
    return Chunk(
        chunk_index=0, start=0, end=len(text), text=text, section=(), line_start=1, line_end=1, page_start=None,
        page_end=None, tokens=len(text.split()), chunker="test",
    )  # fmt: skip


def _chunked(source: str, text: str = "alpha beta", *, etag: str | None = None, **metadata: object) -> ChunkedDocument:
    return ChunkedDocument(
        id=document_id(ACME.id, DEFAULT_COLLECTION, source),
        source=SourceDocument(source=source, data=text.encode(), metadata=metadata),
        parsed=ParsedDocument(text=text, media_type="text/plain"),
        title=source,
        language="english",
        languages=["english"],
        fingerprint=f"{text}{metadata}",
        chunks=[_chunk(text)],
        embedded=[text],
        analysed=[text],
        etag=etag,
    )


@pytest.fixture
def opened(settings: Settings) -> Iterator[Database]:
    with closing(Database(settings.database)) as database:
        yield database


@pytest.fixture
def publisher(opened: Database) -> Publisher:
    embedders = EmbedderRegistry(EmbeddingModel(embedder=HashingEmbedder(), normalized=True), None)
    return Publisher(opened, embedders)


def _rows(database: DatabaseSettings, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(query.encode()).fetchall()


def _publish(publisher: Publisher, *documents: ChunkedDocument, lease: Lease = NO_LEASE) -> list[PublishResult]:
    return list(publisher.publish(ACME, DEFAULT_COLLECTION, documents, lease=lease))


class Leases:
    """Leases whose completion is a row of the database: it commits with the documents."""

    def __init__(self, missing: Collection[str] = (), *, fails: bool = False) -> None:
        self._missing = {document_id(ACME.id, DEFAULT_COLLECTION, source) for source in missing}
        self._fails = fails
        self.calls: list[list[UUID]] = []

    def may_start(self, document: PendingDocument) -> bool:
        return True

    def may_continue(self, document: PendingDocument) -> bool:
        return True

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[UUID]) -> Collection[UUID]:
        assert queue.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        self.calls.append(list(document_ids))
        return set(document_ids) - self._missing

    def complete(
        self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[UUID, Completion]
    ) -> None:
        assert queue is data, "a single server commits both together"
        if self._fails:
            raise LeaseLost("taken over while it was written")
        data.execute(
            "UPDATE kosmos.tenants SET name = name || ' ' || (SELECT string_agg(d.source, ',' ORDER BY d.source) "
            "FROM kosmos.documents d WHERE d.id = ANY (%s)) WHERE tenant_id = %s",
            (list(completions), ACME.id),
        )


def test_publish__notes_are_in_lists_and_hits_until_the_next_version(publisher: Publisher, settings: Settings) -> None:
    note = Note(code="page_unreadable", message="page 2 of 10 cannot be read")
    plain = _chunked("a")
    _publish(publisher, replace(plain, parsed=replace(plain.parsed, notes=(note,))), _chunked("b", "alpha gamma"))
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        acme = engine.tenant("acme")
        hits = {hit.source: hit for hit in acme.search("alpha").hits}
        assert {source: hit.notes for source, hit in hits.items()} == {"a": (note,), "b": ()}
        assert to_dict(hits["a"], explain=False)["notes"] == [{"code": note.code, "message": note.message}]
        assert [document.notes for document in acme.documents()] == [(note,), ()]
        lines = acme.read_lines(hits["a"].document_id)
        assert lines is not None
        assert lines.document.notes == (note,)
        _publish(publisher, _chunked("a", "alpha again"))
        assert [document.notes for document in acme.documents()] == [(), ()]


def test_publish__a_chunk_of_a_table_is_found_and_shown_with_its_header(settings: Settings, opened: Database) -> None:
    rows = [f"Plan {number},{number} seats of many,{number * 100} euros a year" for number in range(100)]
    data = "\n".join(["Prices of 2024", "", "Plan,Seats,Price", *rows]).encode()
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        acme = engine.tenant("acme")
        acme.ingest([SourceDocument(source="prices.csv", data=data)], prune=False)
        context = acme.context("Plan 77", k=1)
        (hit,) = context.retrieval.hits
        assert "Plan: Plan 77;" in hit.text
        assert hit.table_context == ("Prices of 2024", "Plan | Seats | Price")
        (passage,) = context.passages
        assert passage.text.startswith("Plan: Plan ")
        assert f"\nPrices of 2024\nPlan | Seats | Price\n{passage.text[:40]}" in context.text
        lines = acme.read_lines(hit.document_id)
        assert lines is not None
        assert lines.text[hit.start : hit.end] == hit.text


def test_publish__places_reach_hits_citations_and_sentences(settings: Settings) -> None:
    workbook = openpyxl.Workbook()
    workbook.active.title = "Plan prices"
    for row in (["Plan", "Seats", "Price"], *([f"Plan {number}", number, 100 * number] for number in range(1, 60))):
        workbook.active.append(["", *row])
    word_file, saved = docx.Document(), BytesIO()
    workbook.save(saved)
    word_file.add_heading("Leave", 1)
    word_file.add_paragraph("Leave is paid.")
    word_file.add_paragraph("Unused days of leave expire in March.")
    document = BytesIO()
    word_file.save(document)
    mail = EmailMessage()
    mail["Subject"] = "The offer"
    mail.set_content("Please see the file.")
    mail.add_attachment("The tender closes on the last Friday of June.", filename="tender.txt")
    page = b"<body><h1>Guide</h1><p>Read it.</p><h2 id='backup'>Copies</h2><p>Backups run at night.</p></body>"
    sources = {"plans.xlsx": saved.getvalue(), "leave.docx": document.getvalue(), "offer.eml": mail.as_bytes()}
    sources |= {"https://example.org/guide.html": page}
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        acme = engine.tenant("acme")
        report = acme.ingest([SourceDocument(source=name, data=data) for name, data in sources.items()], prune=False)
        assert not report.failed
        paragraph, attachment, anchor = [
            next(sentence.citation for sentence in acme.answer(question).sentences if words in sentence.text)
            for question, words in (
                ("When do unused days of leave expire?", "expire"),
                ("When does the tender close?", "closes"),
                ("When do backups run?", "night"),
            )
        ]
        assert paragraph.place == Place(paragraphs=(2, 2))
        assert paragraph.location == "Leave | paragraph 2"
        assert attachment.place == Place(attachment="tender.txt")
        assert anchor.place == Place(anchor="backup")
        for citation in (paragraph, attachment, anchor):
            lines = acme.read_lines(citation.document_id)
            assert lines is not None
            assert hash_text(lines.text[citation.start : citation.end]) == citation.quote_sha256
            assert Citation.from_dict(json.loads(json.dumps(citation.to_dict()))).place == citation.place
        (passage,) = acme.context("price of Plan 57", k=1).passages
        assert passage.citation.location.startswith("'Plan prices'!B")
        assert passage.citation.location.endswith(":D60")
        start = passage.start + passage.text.index("Plan: Plan 57;")
        row = replace(passage.citation, start=start, end=start + 20)
        assert row.location == "'Plan prices'!B58:D58"
        assert row.to_dict()["place"]["cells"] == "B58:D58"


class ClockAhead(datetime):
    """The clock of a process that is a day ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(days=1)


def test_publish__takes_the_time_from_the_server(
    publisher: Publisher, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents have the time of the database server, not of a worker."""
    monkeypatch.setattr("kosmos_rag.ingestion.publisher.datetime", ClockAhead, raising=False)
    _publish(publisher, _chunked("a"))
    ahead = "SELECT count(*) FROM kosmos.documents WHERE greatest(created_at, updated_at) > now() + interval '1 hour'"
    assert _rows(database, ahead) == [(0,)]


def test_publish__drops_documents_whose_lease_is_lost(publisher: Publisher, database: DatabaseSettings) -> None:
    results = _publish(publisher, _chunked("a"), _chunked("b"), _chunked("c"), lease=Leases(["b"]))
    outcomes = [(each.document.source.source, each.error and each.error.code, each.outcome) for each in results]
    assert outcomes == [
        ("a", None, Outcome.NEW), ("b", "lease_lost", None), ("c", None, Outcome.NEW),
    ]  # fmt: skip
    assert _rows(database, "SELECT source FROM kosmos.documents ORDER BY 1") == [("a",), ("c",)]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == [("acme a,c",)]


def test_publish__completes_and_creates_nothing_where_all_leases_are_lost(
    publisher: Publisher, database: DatabaseSettings
) -> None:
    results = _publish(publisher, _chunked("a"), lease=Leases(["a"]))
    assert [result.error and result.error.code for result in results] == ["lease_lost"]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == []
    assert _rows(database, "SELECT chunks, epoch FROM kosmos.collection_statistics") == []


def test_publish__verifies_the_lease_of_each_document_that_is_written_alone(
    publisher: Publisher, database: DatabaseSettings
) -> None:
    leases = Leases(["b"])
    poison = _chunked("poison", nul="\x00")  # JSON may hold it, jsonb may not
    results = _publish(publisher, _chunked("a"), poison, _chunked("b"), _chunked("c"), lease=leases)
    assert [result.error and result.error.code for result in results] == [None, "storage", "lease_lost", None]
    assert [len(tokens) for tokens in leases.calls] == [4, 1, 1, 1, 1]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == [("acme a c",)]


def test_publish__writes_nothing_where_completing_fails(publisher: Publisher, database: DatabaseSettings) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        _publish(publisher, _chunked("a"), lease=Leases(fails=True))
    assert _rows(database, "SELECT count(*) FROM kosmos.documents") == [(0,)]


def test_publish__counts_the_chunks_that_were_not_embedded(publisher: Publisher) -> None:
    assert _publish(publisher) == []
    assert [item.reused for item in _publish(publisher, _chunked("a"), _chunked("b"))] == [0, 0]
    assert [item.reused for item in _publish(publisher, _chunked("c"), _chunked("d", "gamma delta"))] == [1, 0]


def test_publish__says_which_documents_had_an_earlier_version(publisher: Publisher) -> None:
    assert [result.outcome for result in _publish(publisher, _chunked("a"))] == [Outcome.NEW]
    results = _publish(publisher, _chunked("a", "alpha gamma"), _chunked("b"))
    assert [result.outcome for result in results] == [Outcome.CHANGED, Outcome.NEW]


def test_publish__replaces_a_document_of_the_same_fingerprint(publisher: Publisher, database: DatabaseSettings) -> None:
    _publish(publisher, _chunked("a"))
    # Two writers may publish the same text; a permission pass may empty the fingerprint of what it stored.
    for _ in range(2):
        results = _publish(publisher, _chunked("a"), _chunked("b"))
        assert [result.error for result in results] == [None, None]
    stored = "SELECT d.source, v.text, (SELECT count(*) FROM kosmos.chunks c WHERE c.version_id = v.id) "
    stored += "FROM kosmos.documents d JOIN kosmos.document_versions v ON v.document_id = d.id ORDER BY 1"
    assert _rows(database, stored) == [("a", "alpha beta", 1), ("b", "alpha beta", 1)]


def _space(dimensions: int) -> tuple[Space, HashingEmbedder]:
    embedder = HashingEmbedder(dimensions=dimensions)
    return describe_space(ACME.id, embedder, normalized=True), embedder


def _prepared(spaces: Sequence[tuple[Space, HashingEmbedder]], text: str) -> PreparedDocument:
    key = document_id(ACME.id, DEFAULT_COLLECTION, "a")
    return PreparedDocument(
        id=key, version_id=UUID(int=len(text)), source="a", title="a", media_type="text/plain", language="english",
        metadata={}, acl=(EVERYONE,), content_hash="", fingerprint=text, bytes=len(text), text=text, pages=(),
        chunks=[_chunk(text)], embedded=[text], analysed=[text],
        vectors={space.id: embedder.embed([text]) for space, embedder in spaces},
    )  # fmt: skip


def test_publish__writes_vectors_of_the_spaces_that_are_still_there(
    opened: Database, database: DatabaseSettings
) -> None:
    live, following, dropped, dropping, later = (_space(dimensions) for dimensions in (64, 32, 16, 8, 4))
    with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
        ensure_tenant(connection, ACME, DEFAULT_COLLECTION, live[0], now=NOW)
        SpaceStore(connection, ACME.id).create(following[0], state=SpaceState.BUILDING, now=NOW)
        SpaceStore(connection, ACME.id).create(dropping[0], state=SpaceState.DROPPING, now=NOW)
        SpaceStore(connection, ACME.id).create(later[0], state=SpaceState.BUILDING, now=NOW)
    for text in ("alpha", "alpha beta"):
        document = _prepared([live, following, dropped, dropping], text)
        with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
            publish(connection, ACME.id, [document], collection=DEFAULT_COLLECTION, now=NOW, events=EventBuffer())
        stored = dict[Any, Any](_rows(database, "SELECT space_id, embedding::real[] FROM kosmos.embeddings"))
        assert stored.keys() == {live[0].id, following[0].id}
        for space, embedder in (live, following):
            assert np.allclose(stored[space.id], embedder.embed([text])[0], atol=1e-3)


@pytest.mark.parametrize("text", ["alpha gamma", "alpha beta"])
def test_publish__records_the_chunks_of_the_former_version_as_changed(
    publisher: Publisher, database: DatabaseSettings, text: str
) -> None:
    """A process that follows the changes drops them. The same content has the same version again."""
    _publish(publisher, _chunked("a"), _chunked("b"))
    _publish(publisher, _chunked("a", text))
    assert _rows(database, "SELECT sequence FROM kosmos.chunks ORDER BY 1") == [(2,), (3,)]
    assert _rows(database, "SELECT sequences::text FROM kosmos.collection_changes ORDER BY epoch") == [
        ("{[1,3)}",),
        ("{[1,2),[3,4)}",),
    ]


def test_publish__updates_the_counts_of_words_in_place(publisher: Publisher, database: DatabaseSettings) -> None:
    """Both documents have all words: the row of each word is updated, and its page has space for the new version."""
    text = " ".join(f"word{number}" for number in range(2_000))
    query = (
        "SELECT lexeme, split_part(trim('(' FROM ctid::text), ',', 1) FROM kosmos.lexemes WHERE chunks = {} ORDER BY 1"
    )
    _publish(publisher, _chunked("a", text))
    pages = _rows(database, query.format(1))
    _publish(publisher, _chunked("b", text))
    assert len(pages) == 2_000
    assert _rows(database, query.format(2)) == pages


@pytest.mark.parametrize("index", [0, 1, 99_999])
def test_chunk_id__is_the_uuid_of_version_and_index(index: int) -> None:
    for number in range(50):
        version_id = UUID(int=number**20)
        assert UUID(bytes=chunk_id(version_id, index)) == uuid5(version_id, str(index))


def test_marks__are_stored_replaced_and_touched(publisher: Publisher, opened: Database) -> None:
    documents = [_chunked("a", etag="1"), _chunked("b")]
    _publish(publisher, *documents)
    _publish(publisher, _chunked("a", "alpha gamma", etag="2"))
    ids = [*(document.id for document in documents), UUID(int=7)]
    with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
        assert StoredDocuments(connection, ACME.id).read_etags(ids) == {"a": "2", "b": None}
        StoredDocuments(connection, ACME.id).update_etags({ids[1]: "3", ids[2]: "4"}, collection=DEFAULT_COLLECTION)
        assert StoredDocuments(connection, ACME.id).read_etags(ids) == {"a": "2", "b": "3"}
        StoredDocuments(connection, ACME.id).update_etags({ids[0]: "9"}, collection="another")
        assert StoredDocuments(connection, ACME.id).read_etags(ids[:1]) == {"a": "2"}


def test_marks__of_another_tenant_are_not_seen(publisher: Publisher, opened: Database) -> None:
    document = _chunked("a", etag="1")
    _publish(publisher, document)
    other = tenant("other").id
    with opened.worker.transaction(other, [EVERYONE]) as connection:
        assert StoredDocuments(connection, other).read_etags([document.id]) == {}
        assert StoredDocuments(connection, ACME.id).read_etags([document.id]) == {}
