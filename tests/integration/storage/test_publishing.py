"""Publishing a batch: into several spaces, behind a fence, with marks."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import psycopg
import pytest

from kosmos_rag import Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import LeaseLost
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, Chunk, ParsedDocument, Space
from kosmos_rag.ingestion.document import ChunkedDocument, document_id
from kosmos_rag.ingestion.publisher import Publisher
from kosmos_rag.models.embedding.registry import EmbedderRegistry, EmbeddingModel
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.documents import source_etags, update_source_etags
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import PreparedDocument, publish
from kosmos_rag.storage.tenants import BUILDING, DROPPING, create_space, ensure_tenant, tenant

ACME = tenant("acme")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _chunk(text: str) -> Chunk:
    return Chunk(
        chunk_index=0, start=0, end=len(text), text=text, section=(), line_start=1, line_end=1, page_start=None,
        page_end=None, tokens=len(text.split()), chunker="test",
    )  # fmt: skip


def _chunked(source: str, text: str = "alpha beta", *, mark: str | None = None, **metadata: object) -> ChunkedDocument:
    return ChunkedDocument(
        id=document_id(ACME.id, DEFAULT_COLLECTION, source),
        source=SourceDocument(source=source, data=text.encode(), metadata=metadata),
        parsed=ParsedDocument(text=text, media_type="text/plain"),
        title=source,
        language="english",
        fingerprint=f"{text}{metadata}",
        chunks=[_chunk(text)],
        indexed=[text],
        mark=mark,
    )


@pytest.fixture
def opened(settings: Settings) -> Iterator[Database]:
    with closing(Database(settings.database)) as database:
        yield database


@pytest.fixture
def publisher(opened: Database) -> Publisher:
    embedders = EmbedderRegistry(EmbeddingModel(embedder=HashingEmbedder(), normalized=True), None)
    return Publisher(opened, embedders, ACME, DEFAULT_COLLECTION)


def _rows(database: DatabaseSettings, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(database.admin_url or "") as connection:
        return connection.execute(query.encode()).fetchall()


class Leases:
    """A fence whose account of what was settled is a row of the database: it commits with the documents."""

    def __init__(self, lost: Collection[str] = (), *, fails: bool = False) -> None:
        self._lost = {document_id(ACME.id, DEFAULT_COLLECTION, source) for source in lost}
        self._fails = fails
        self.asked: list[list[UUID]] = []

    def hold(self, connection: psycopg.Connection, document_ids: Sequence[UUID]) -> Collection[UUID]:
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        self.asked.append(list(document_ids))
        return set(document_ids) - self._lost

    def settle(self, connection: psycopg.Connection, documents: Sequence[PreparedDocument]) -> None:
        if self._fails:
            raise LeaseLost("taken over while it was written")
        connection.execute(
            "UPDATE kosmos.tenants SET name = name || ' ' || %s WHERE tenant_id = %s",
            (",".join(document.source for document in documents), ACME.id),
        )


def test_publish__drops_what_the_fence_no_longer_holds(publisher: Publisher, database: DatabaseSettings) -> None:
    outcomes = list(publisher.publish([_chunked("a"), _chunked("b"), _chunked("c")], fence=Leases(["b"])))
    assert [(document.source.source, error and error.code) for document, error in outcomes] == [
        ("a", None), ("b", "lease_lost"), ("c", None),
    ]  # fmt: skip
    assert _rows(database, "SELECT source FROM kosmos.documents ORDER BY 1") == [("a",), ("c",)]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == [("acme a,c",)]


def test_publish__settles_nothing_where_all_is_lost(publisher: Publisher, database: DatabaseSettings) -> None:
    outcomes = list(publisher.publish([_chunked("a")], fence=Leases(["a"])))
    assert [error and error.code for _, error in outcomes] == ["lease_lost"]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == [("acme",)]
    assert _rows(database, "SELECT chunks, epoch FROM kosmos.collection_statistics") == [(0, 0)]


def test_publish__goes_through_the_fence_for_each_document_alone(
    publisher: Publisher, database: DatabaseSettings
) -> None:
    fence = Leases(["b"])
    poison = _chunked("poison", nul="\x00")  # JSON may hold it, jsonb may not
    outcomes = list(publisher.publish([_chunked("a"), poison, _chunked("b"), _chunked("c")], fence=fence))
    assert [error and error.code for _, error in outcomes] == [None, "storage", "lease_lost", None]
    assert [len(asked) for asked in fence.asked] == [4, 1, 1, 1, 1]
    assert _rows(database, "SELECT name FROM kosmos.tenants") == [("acme a c",)]


def test_publish__writes_nothing_where_settling_fails(publisher: Publisher, database: DatabaseSettings) -> None:
    with pytest.raises(LeaseLost, match="taken over"):
        list(publisher.publish([_chunked("a")], fence=Leases(fails=True)))
    assert _rows(database, "SELECT count(*) FROM kosmos.documents") == [(0,)]


def test_publish__counts_the_chunks_that_were_not_embedded(publisher: Publisher) -> None:
    assert list(publisher.publish([])) == []
    list(publisher.publish([_chunked("a"), _chunked("b")]))
    assert publisher.reused == 0
    list(publisher.publish([_chunked("c"), _chunked("d", "gamma delta")]))
    assert publisher.reused == 1


def _space(dimensions: int) -> tuple[Space, HashingEmbedder]:
    embedder = HashingEmbedder(dimensions=dimensions)
    return describe_space(ACME.id, embedder, normalized=True), embedder


def _prepared(spaces: Sequence[tuple[Space, HashingEmbedder]], text: str) -> PreparedDocument:
    key = document_id(ACME.id, DEFAULT_COLLECTION, "a")
    return PreparedDocument(
        id=key, version_id=UUID(int=len(text)), source="a", title="a", media_type="text/plain", language="english",
        metadata={}, acl=(EVERYONE,), content_hash="", fingerprint=text, bytes=len(text), text=text, pages=(),
        chunks=[_chunk(text)], indexed=[text],
        vectors={space.id: embedder.embed([text]) for space, embedder in spaces},
    )  # fmt: skip


def test_publish__writes_vectors_of_the_spaces_that_are_still_there(
    opened: Database, database: DatabaseSettings
) -> None:
    live, following, gone, dropping, later = (_space(dimensions) for dimensions in (64, 32, 16, 8, 4))
    with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
        ensure_tenant(connection, ACME, DEFAULT_COLLECTION, live[0], now=NOW)
        create_space(connection, ACME.id, following[0], state=BUILDING, now=NOW)
        create_space(connection, ACME.id, dropping[0], state=DROPPING, now=NOW)
        create_space(connection, ACME.id, later[0], state=BUILDING, now=NOW)
    for text in ("alpha", "alpha beta"):
        document = _prepared([live, following, gone, dropping], text)
        with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
            publish(connection, ACME.id, [document], collection=DEFAULT_COLLECTION, now=NOW)
        stored = dict(_rows(database, "SELECT space_id, embedding::real[] FROM kosmos.embeddings"))
        assert stored.keys() == {live[0].id, following[0].id}
        for space, embedder in (live, following):
            assert np.allclose(stored[space.id], embedder.embed([text])[0], atol=1e-3)


def test_marks__are_stored_replaced_and_touched(publisher: Publisher, opened: Database) -> None:
    documents = [_chunked("a", mark="1"), _chunked("b")]
    list(publisher.publish(documents))
    list(publisher.publish([_chunked("a", "alpha gamma", mark="2")]))
    ids = [*(document.id for document in documents), UUID(int=7)]
    with opened.worker.transaction(ACME.id, [EVERYONE]) as connection:
        assert source_etags(connection, ACME.id, ids) == {"a": "2", "b": None}
        update_source_etags(connection, ACME.id, {ids[1]: "3", ids[2]: "4"}, collection=DEFAULT_COLLECTION)
        assert source_etags(connection, ACME.id, ids) == {"a": "2", "b": "3"}
        update_source_etags(connection, ACME.id, {ids[0]: "9"}, collection="another")
        assert source_etags(connection, ACME.id, ids[:1]) == {"a": "2"}


def test_marks__of_another_tenant_are_not_seen(publisher: Publisher, opened: Database) -> None:
    document = _chunked("a", mark="1")
    list(publisher.publish([document]))
    other = tenant("other").id
    with opened.worker.transaction(other, [EVERYONE]) as connection:
        assert source_etags(connection, other, [document.id]) == {}
        assert source_etags(connection, ACME.id, [document.id]) == {}
