"""Tenants of some thousand chunks with vectors in clusters, published without models: what vector indexes are for."""

import re
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag import Engine
from kosmos_rag.embedding.space import space_of
from kosmos_rag.ports import Tokenizer, Vectors
from kosmos_rag.records import DEFAULT_COLLECTION, EVERYONE, Chunk
from kosmos_rag.storage.publishing import PreparedDocument, publish
from kosmos_rag.storage.tenancy import ensure_tenant, tenant
from kosmos_rag.testing import HashingEmbedder

TOPICS = 40
CHUNKS_A_DOCUMENT = 5
_BATCH_DOCUMENTS = 200
_TOPIC = re.compile(r"topic(\d+)")
_CENTRES = np.random.default_rng(7).standard_normal((TOPICS, 1024), dtype=np.float32)
_NOISE = 0.8


class TopicEmbedder:
    """Embeds `… topic7 …` beside the centre of topic 7: as far from it as the rest of the text says."""

    def __init__(self, *, dimensions: int = 32, name: str = "topics") -> None:
        self._dimensions = dimensions
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        return 256

    @property
    def tokenizer(self) -> Tokenizer:
        return HashingEmbedder().tokenizer

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([self.embed_query(text) for text in texts], dtype=np.float32)

    def embed_query(self, question: str) -> NDArray[np.float32]:
        seed = int.from_bytes(blake2b(f"{self._name} {question}".encode(), digest_size=8).digest())
        vector = np.random.default_rng(seed).standard_normal(self._dimensions, dtype=np.float32)
        if found := _TOPIC.search(question):
            vector = _NOISE * vector + _CENTRES[int(found[1]) % TOPICS, : self._dimensions]
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def text_of(number: int) -> str:
    """The text of a chunk: its topic, its number, and a word that every third chunk holds."""
    third = " third" if number % 3 == 0 else ""
    return f"topic{number * 17 % TOPICS} chunk{number} of common words{third}"


def question_of(number: int) -> str:
    """A question near the chunks of one topic, and equal to none of them."""
    return f"common topic{number * 7 % TOPICS} question number {number}"


def load(
    engine: Engine,
    name: str,
    chunks: range,
    *,
    readers: Callable[[int], tuple[str, ...]] = lambda _: (EVERYONE,),
    metadata: Callable[[int], dict[str, Any]] = lambda _: {},
    collection: str = DEFAULT_COLLECTION,
    a_document: int = CHUNKS_A_DOCUMENT,
) -> None:
    """Publish chunks with these numbers as a writer does, `a_document` of them a document.

    Readers and metadata of a document are given by the number of its first chunk, which its source carries as well.
    """
    owner, embedder = tenant(name), engine._embedder
    space = space_of(owner.id, embedder, normalized=True)
    now = datetime.now(UTC)
    documents = [
        _document(embedder, f"{collection}/{start}", chunks[at : at + a_document], readers(start), metadata(start))
        for at, start in list(enumerate(chunks))[::a_document]
    ]
    with engine._database.worker.transaction(owner.id, [EVERYONE]) as connection:
        ensure_tenant(connection, owner, collection, space, now=now)
    for at in range(0, len(documents), _BATCH_DOCUMENTS):
        with engine._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            batch = documents[at : at + _BATCH_DOCUMENTS]
            publish(connection, owner.id, batch, collection=collection, space_id=space.id, now=now)


def _document(
    embedder: Any, source: str, numbers: range, readers: tuple[str, ...], metadata: dict[str, Any]
) -> PreparedDocument:
    texts = [text_of(number) for number in numbers]
    text, chunks = "", []
    for ordinal, piece in enumerate(texts):
        start, text = len(text), f"{text}{piece}\n"
        chunks.append(
            Chunk(
                ordinal=ordinal, start=start, end=start + len(piece), text=piece, section=(), line_start=ordinal + 1,
                line_end=ordinal + 1, page_start=None, page_end=None, tokens=8, splitter="test",
            )
        )  # fmt: skip
    return PreparedDocument(
        id=uuid.uuid4(), version_id=uuid.uuid4(), source=source, title=source, media_type="text/plain",
        language="english", metadata=metadata, readers=readers, content_hash="0" * 64, fingerprint="0" * 64,
        bytes=len(text), text=text, pages=(), chunks=chunks, indexed=texts, vectors=embedder.embed(texts),
    )  # fmt: skip
