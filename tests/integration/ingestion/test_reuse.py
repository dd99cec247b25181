"""Vectors are made once of a text: what a tenant has of it in a space is taken from there."""

import uuid
from collections.abc import Iterator, Sequence

import numpy as np
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.publish import load_vectors, text_hash
from kosmos_rag.storage.tenants import tenant

PARAGRAPHS = [f"Paragraph {number} is about " + f"topic{number} and word{number} " * 8 for number in range(20)]


class Counting(HashingEmbedder):
    """Remembers the texts that it embeds."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return super().embed(texts)


@pytest.fixture
def embedder() -> Counting:
    return Counting()


@pytest.fixture
def counting_engine(settings: Settings, embedder: Counting) -> Iterator[Engine]:
    with Engine(settings, embedder=embedder) as opened:
        yield opened


def _document(source: str, paragraphs: Sequence[str]) -> SourceDocument:
    return SourceDocument(source=source, data="\n\n".join(paragraphs).encode())


def _vectors(database: DatabaseSettings, name: str) -> dict[str, tuple[uuid.UUID, str]]:
    """Hash and vector of each chunk of a tenant, by its text."""
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT c.text, e.text_hash, e.embedding::text FROM kosmos.chunks c "
            "JOIN kosmos.embeddings e ON e.tenant_id = c.tenant_id AND e.chunk_id = c.id WHERE c.tenant_id = %s",
            (tenant(name).id,),
        ).fetchall()
    return {text: (key, vector) for text, key, vector in rows}


def test_a_changed_paragraph__is_all_that_is_embedded(
    counting_engine: Engine, embedder: Counting, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = counting_engine.tenant(tenant_name)
    assert scope.ingest(_document("a", PARAGRAPHS)).chunks == 20
    assert len(embedder.texts) == 20
    before = _vectors(database, tenant_name)
    changed = [*PARAGRAPHS[:7], PARAGRAPHS[7].replace("about", "no longer about"), *PARAGRAPHS[8:]]
    embedder.texts.clear()
    report = scope.ingest(_document("a", changed))
    assert (report.changed, report.chunks, report.reused) == (1, 20, 19)
    assert [text.strip() for text in embedder.texts] == [changed[7].strip()]
    after = _vectors(database, tenant_name)
    assert len(after) == 20
    keys = before.keys() & after.keys()
    assert len(keys) == 19
    assert all(after[text] == before[text] for text in keys)


def test_reused_vectors__are_those_that_embedding_gives(
    counting_engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    counting_engine.tenant(tenant_name).ingest(_document("a", PARAGRAPHS))
    counting_engine.tenant(tenant_name).ingest(_document("b", PARAGRAPHS[5:]))
    counting_engine.tenant(f"{tenant_name}-fresh").ingest(_document("b", PARAGRAPHS[5:]))
    reused, fresh = _vectors(database, tenant_name), _vectors(database, f"{tenant_name}-fresh")
    assert len(fresh) == 15
    assert all(reused[text] == fresh[text] for text in fresh)


def test_the_same_text_twice_in_a_batch__is_embedded_once(
    counting_engine: Engine, embedder: Counting, tenant_name: str
) -> None:
    report = counting_engine.tenant(tenant_name).ingest(
        [_document("a", PARAGRAPHS[:3]), _document("b", PARAGRAPHS[:3])]
    )
    assert report.chunks == 6
    assert len(embedder.texts) == 3


def test_text_of_another_tenant__is_embedded_again(
    counting_engine: Engine, embedder: Counting, tenant_name: str
) -> None:
    counting_engine.tenant(tenant_name).ingest(_document("a", PARAGRAPHS))
    embedder.texts.clear()
    counting_engine.tenant(f"{tenant_name}-other").ingest(_document("a", PARAGRAPHS))
    assert len(embedder.texts) == 20


def test_text_of_another_collection__is_not_embedded_again(
    counting_engine: Engine, embedder: Counting, tenant_name: str
) -> None:
    counting_engine.tenant(tenant_name).ingest(_document("a", PARAGRAPHS))
    embedder.texts.clear()
    assert counting_engine.tenant(tenant_name, collection="more").ingest(_document("a", PARAGRAPHS)).chunks == 20
    assert embedder.texts == []


def test_load_vectors__are_of_this_tenant_and_this_space(
    counting_engine: Engine, embedder: Counting, tenant_name: str
) -> None:
    for name in (tenant_name, f"{tenant_name}-other"):
        counting_engine.tenant(name).ingest(_document("a", PARAGRAPHS))
    texts = [*embedder.texts[:20], "never seen"]
    hashes = [text_hash(text) for text in texts]
    acme = tenant(tenant_name).id
    here, wider = (
        describe_space(acme, model, normalized=True).id for model in (embedder, HashingEmbedder(dimensions=32))
    )
    elsewhere = describe_space(tenant(f"{tenant_name}-other").id, embedder, normalized=True).id
    with counting_engine.database.worker.transaction(acme, [EVERYONE]) as connection:
        vectors = load_vectors(connection, acme, here, hashes)
        assert load_vectors(connection, acme, wider, hashes) == {}
        assert load_vectors(connection, tenant(f"{tenant_name}-other").id, elsewhere, hashes) == {}
    assert vectors.keys() == set(hashes[:20])
    exact = embedder.embed(texts[:20]).astype(np.float16).astype(np.float32)
    assert all(np.array_equal(vectors[key], vector) for key, vector in zip(hashes, exact, strict=False))
