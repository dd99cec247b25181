"""A tenant of some thousand chunks with vectors in clusters, published without models, and an oracle of its answers.

Its chunks have a document each, so that filters and readers may leave more documents than are looked up one by one.
"""

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag import Engine, Filter, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.protocols import Tokenizer, Vectors
from kosmos_rag.core.types import DEFAULT_COLLECTION, EVERYONE, Chunk, IndexInfo, SearchResult
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.publish import PreparedDocument, publish
from kosmos_rag.storage.tenants import ensure_tenant, tenant

TOPICS = 40
CHUNKS_A_DOCUMENT = 5
_BATCH_CHUNKS = 1_000
_TOPIC = re.compile(r"topic(\d+)")
_CENTRES = np.random.default_rng(7).standard_normal((TOPICS, 1024), dtype=np.float32)
_NOISE = 0.8


class TopicEmbedder:
    """Embeds `… topic7 …` near the centre of topic 7, and a text of several topics between their centres."""

    def __init__(self, *, dimensions: int = 64, name: str = "topics") -> None:
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
        if topics := sorted({int(number) % TOPICS for number in _TOPIC.findall(question)}):
            vector = _NOISE * vector + _CENTRES[topics, : self._dimensions].sum(axis=0)
        return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def make_text(number: int) -> str:
    """The text of a chunk: any eight words of it name its topic; every third holds the word `third`."""
    topic = f"topic{number * 17 % TOPICS}"
    third = "third" if number % 3 == 0 else "other"
    return f"chunk{number} of {topic} says that {topic} has common words, {third} {topic} as ever it was"


def make_question(number: int) -> str:
    """A question near the chunks of one topic, and equal to none of them."""
    return f"common topic{number * 7 % TOPICS} question number {number}"


def load(
    engine: Engine,
    name: str,
    chunks: range,
    *,
    acl: Callable[[int], tuple[str, ...]] = lambda _: (EVERYONE,),
    metadata: Callable[[int], dict[str, Any]] = lambda _: {},
    collection: str = DEFAULT_COLLECTION,
    a_document: int = CHUNKS_A_DOCUMENT,
    text: Callable[[int], str] = make_text,
) -> None:
    """Publish chunks with these numbers as a writer does, `a_document` of them a document.

    Readers and metadata of a document are given by the number of its first chunk, which its source carries as well.
    """
    owner, embedder = tenant(name), engine.embedder
    space = describe_space(owner.id, embedder, normalized=True)
    now = datetime.now(UTC)
    documents = []
    for numbers in (chunks[at : at + a_document] for at in range(0, len(chunks), a_document)):
        source = f"{collection}/{numbers[0]}"
        key = document_id(owner.id, collection, source)
        document = _document(key, source, [text(number) for number in numbers], acl(numbers[0]), metadata(numbers[0]))
        documents.append(replace(document, vectors={space.id: embedder.embed(document.embedded)}))
    with engine.database.worker.transaction(owner.id, [EVERYONE]) as connection:
        ensure_tenant(connection, owner, collection, space, now=now)
    step = _BATCH_CHUNKS // a_document
    for at in range(0, len(documents), step):
        with engine.database.worker.transaction(owner.id, [EVERYONE]) as connection:
            batch = documents[at : at + step]
            publish(connection, owner.id, batch, collection=collection, now=now, events=EventBuffer())


def _document(
    key: uuid.UUID, source: str, texts: list[str], readers: tuple[str, ...], metadata: dict[str, Any]
) -> PreparedDocument:
    """Return a document without its vectors."""
    text, chunks = "", []
    for ordinal, piece in enumerate(texts):
        start, text = len(text), f"{text}{piece}\n"
        chunks.append(
            Chunk(
                chunk_index=ordinal, start=start, end=start + len(piece), text=piece, section=(),
                line_start=ordinal + 1,
                line_end=ordinal + 1, page_start=None, page_end=None, tokens=8, chunker="test",
            )
        )  # fmt: skip
    return PreparedDocument(
        id=key, version_id=uuid.uuid4(), source=source, title=source, media_type="text/plain",
        language="english", metadata=metadata, acl=readers, content_hash="0" * 64, fingerprint="0" * 64,
        bytes=len(text), text=text, pages=(), chunks=chunks, embedded=texts, analysed=texts, vectors={},
    )  # fmt: skip


CHUNKS = 3_000
FULL = 10
QUESTIONS = [make_question(number) for number in range(30)]
WORLD = TopicEmbedder()
PRINCIPALS = {"half": 2, "twentieth": 20, "few": 200}
"""Who may read every so many-th chunk."""


def choose_readers(number: int) -> tuple[str, ...]:
    return (EVERYONE, *(name for name, step in PRINCIPALS.items() if number % step == 0))


def make_metadata(number: int) -> dict[str, Any]:
    return {"n": number, "tenth": number // 7 % 10}


def publish_world(engine: Engine, name: str, chunks: range, **more: Any) -> None:
    load(engine, name, chunks, acl=choose_readers, metadata=make_metadata, a_document=1, **more)


@contextmanager
def opened(settings: Settings, embedder: TopicEmbedder | None = None, **indexes: Any) -> Iterator[Engine]:
    changed = settings.model_copy(update={"indexes": settings.indexes.model_copy(update=indexes)})
    with Engine(changed, embedder=embedder or WORLD) as engine:
        yield engine


def select_vector_indexes(result: Sequence[IndexInfo]) -> list[IndexInfo]:
    return [info for info in result if info.kind not in {"segment", "unsegmented"}]


def only(result: Sequence[IndexInfo]) -> IndexInfo:
    [info] = select_vector_indexes(result)
    return info


def physical(database: DatabaseSettings) -> dict[str, bool]:
    """Vector indexes of the server's own catalogue, and whether each is valid."""
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT c.relname, x.indisvalid FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid "
            "WHERE starts_with(c.relname, 'vec_')"
        ).fetchall()
    return dict(rows)


def parse_numbers(result: SearchResult) -> set[int]:
    return {hit.metadata["n"] for hit in result.hits}


def of_the_world(number: int) -> bool:
    return number < CHUNKS


@cache
def stored(embedder: TopicEmbedder = WORLD) -> NDArray[np.float32]:
    """Vectors of all chunks that a test may have, by number, in the precision that they are stored in."""
    vectors = embedder.embed([make_text(number) for number in range(2 * CHUNKS + 1)])
    return vectors.astype(np.float16).astype(np.float32)


def measure_recall(
    ask: Callable[[str], SearchResult],
    passes: Callable[[int], bool] = of_the_world,
    *,
    embedder: TopicEmbedder = WORLD,
    questions: Sequence[str] = QUESTIONS,
) -> tuple[float, float]:
    """Share that is found of the ten nearest of the chunks that pass, by an oracle; and its standard error."""
    numbers = np.array([number for number in range(2 * CHUNKS + 1) if passes(number)])
    shares = []
    for question in questions:
        scores = stored(embedder)[numbers] @ embedder.embed_query(question).astype(np.float16).astype(np.float32)
        nearest = set(numbers[np.argsort(-scores, kind="stable")[:FULL]].tolist())
        shares.append(len(nearest & parse_numbers(ask(question))) / len(nearest))
    return float(np.mean(shares)), float(np.std(shares) / len(shares) ** 0.5)


def asking(engine: Engine, filter: Filter | None = None, **scope: Any) -> Callable[[str], SearchResult]:  # noqa: A002
    return lambda question: engine.tenant("acme", **scope).search(question, FULL, filter)


def assert_right(
    engine: Engine, plan: str, passes: Callable[[int], bool] = of_the_world, *, embedder: TopicEmbedder = WORLD
) -> None:
    """Answers come by this plan, are complete, and as good as the target says, which other questions measured."""
    result = engine.tenant("acme").search(QUESTIONS[0], FULL)
    assert result.returned == FULL
    assert result.retrievers["dense"].plan == plan
    recall, error = measure_recall(asking(engine), passes, embedder=embedder)
    assert recall >= engine.settings.indexes.recall_target - 4 * error


def assert_exact(engine: Engine, passes: Callable[[int], bool] = of_the_world) -> None:
    """Answers leave out none of the nearest."""
    assert measure_recall(asking(engine), passes)[0] >= 0.99  # halves may tie
