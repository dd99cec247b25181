"""How well each retriever finds known items: questions made of the texts of a collection.

A question is half of the words of one sentence of a chunk, and the chunk is what it asks for. A model that does not
know the language of the texts finds few of them, while words find nearly all. The fusion weighs the retrievers by it
(docs/ranking.md).
"""

import random
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from kosmos_rag.core.config import RetrievalSettings
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.text.analysis import is_unspaced, unspaced_runs
from kosmos_rag.core.text.languages import LANGUAGES, UNSPACED, choose_text_language
from kosmos_rag.core.text.sentences import sentences
from kosmos_rag.core.types import EVERYONE, IndexInfo, Space
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.models.embedding.registry import EmbedderRegistry, embed_queries
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, CandidateList
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.query import QueryRequest, RetrieverQuery, parse_query
from kosmos_rag.retrieval.views.database import DatabaseSession
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

QUESTIONS = 256
"""Questions of a collection, at most one of a chunk."""
MIN_CHUNKS = 100
"""Chunks that everyone may read below which a collection is not measured: so few questions decide nothing."""
_GROWTH = 2.0
"""Factor by which a collection grows or shrinks until it is measured again."""
_DEPTH = 10
"""Rank down to which a chunk counts as found."""
_WORDS = range(4, 25)
"""Words of a sentence that is asked about; longer ones are cut."""
_LETTERS = 3
"""Letters of a word in a script without spaces."""
_POSTINGS_BYTES = 32 * 1024 * 1024
_WORD = re.compile(r"[^\W_]+(?:[.'_-][^\W_]+)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionMeasurement:
    """The measurement of a collection, and what decides whether it is due again."""

    collection: str
    chunks: int
    """Chunks that everyone may read now."""
    content: Mapping[str, Any] | None
    """What is stored: space, chunks, time, and the figures by language; None before the first measurement."""

    def find_due(self, space_id: uuid.UUID) -> str | None:
        """Return why the collection is to be measured; None if it is not."""
        if self.chunks < MIN_CHUNKS:
            return None
        if self.content is None:
            return "known items were never measured"
        if self.content["space_id"] != str(space_id):
            return "known items were measured with another model"
        measured = self.content["chunks"]
        if not measured / _GROWTH < self.chunks < measured * _GROWTH:
            return f"known items were measured with {measured:,} chunks"
        return None


def list_measurements(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[CollectionMeasurement]:
    """Return the measurements of the collections whose settings use them."""
    rows = connection.execute(statement("known_items_of_tenant"), {"tenant_id": tenant_id}).fetchall()
    return [
        CollectionMeasurement(collection=collection, chunks=chunks, content=content)
        for collection, chunks, content in rows
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownItem:
    """A question, and the chunk that it was made of."""

    chunk_id: uuid.UUID
    question: str
    language: str


def sample_items(connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str) -> list[KnownItem]:
    """Make questions of chunks that everyone may read. The same chunks give the same questions."""
    texts: dict[uuid.UUID, tuple[str, str]] = {}
    for number in range(QUESTIONS):
        # Ids of chunks are hashes, so the chunks after evenly spaced ids are random.
        values = {"tenant_id": tenant_id, "collection": collection, "id": uuid.UUID(int=(number << 128) // QUESTIONS)}
        for chunk_id, text, language in connection.execute(statement("chunk_of_collection_after"), values).fetchall():
            texts[chunk_id] = text, language
    return list(_ask(texts))


def _ask(texts: Mapping[uuid.UUID, tuple[str, str]]) -> Iterator[KnownItem]:
    for chunk_id, (text, configured) in texts.items():
        language = UNSPACED if is_unspaced(text) else choose_text_language(text, configured, LANGUAGES)
        if question := make_question(text, random.Random(chunk_id.int)):  # noqa: S311 — not for security
            yield KnownItem(chunk_id=chunk_id, question=question, language=language)


def make_question(text: str, dice: random.Random) -> str | None:
    """Return half of the words of a sentence, in order.

    The result is None for a text without one of four words.

    Args:
        text: The text of a chunk.
        dice: Chooses sentence and words.
    """
    candidates = [words for start, end in sentences(text, (0, len(text))) if len(words := _words(text[start:end])) >= 4]
    if not candidates:
        return None
    words = dice.choice(candidates)[: _WORDS.stop - 1]
    positions = sorted(dice.sample(range(len(words)), max(2, len(words) // 2)))
    return " ".join(words[at] for at in positions)


def _words(sentence: str) -> list[str]:
    if not is_unspaced(sentence):
        return _WORD.findall(sentence)
    return [run[at : at + _LETTERS] for run in unspaced_runs(sentence) for at in range(0, len(run), _LETTERS)]


def measure_items(
    connection: psycopg.Connection,
    tenant: TenantRef,
    collection: str,
    items: Sequence[KnownItem],
    vectors: Sequence[NDArray[np.float32]],
) -> dict[str, dict[str, float]]:
    """Ask both retrievers, and return number of questions and mean reciprocal rank of each by language.

    Args:
        connection: Of maintenance; it sees all chunks.
        items: The questions.
        vectors: Their embeddings by the model of the live space, each of shape (dimensions,).
    """
    ranks_by_language: dict[str, list[tuple[float, float]]] = defaultdict(list)
    session = DatabaseSession(
        connection=connection,
        tenant_id=tenant.id,
        postings=PostingsCache(_POSTINGS_BYTES),
        close_terms=None,
        timer=StageTimer(),
    )
    for item, vector in zip(items, vectors, strict=True):
        wording = _wording(tenant, collection, item.question, vector)
        lists = session.candidates(wording, session.snapshot(wording))
        ranks = tuple(_reciprocal_rank(lists[name], item.chunk_id) for name in (DENSE, LEXICAL))
        ranks_by_language[item.language].append((ranks[0], ranks[1]))
    return {
        language: {
            "questions": len(pairs),
            "dense": round(sum(dense for dense, _ in pairs) / len(pairs), 4),
            "lexical": round(sum(lexical for _, lexical in pairs) / len(pairs), 4),
        }
        for language, pairs in sorted(ranks_by_language.items())
    }


def store_measurement(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    measured: CollectionMeasurement,
    space_id: uuid.UUID,
    figures: Mapping[str, Mapping[str, float]],
) -> None:
    """Store the figures of a collection, by language.

    Args:
        connection: connection of the worker role, with the tenant set.
        measured: the collection and its number of chunks.
        space_id: embedding space of the vectors.
        figures: figures of both retrievers by language.
    """
    content = {
        "space_id": str(space_id),
        "chunks": measured.chunks,
        "measured_at": datetime.now(UTC).isoformat(),
        "languages": figures,
    }
    values = {"tenant_id": tenant_id, "collection": measured.collection, "content": Jsonb(content)}
    connection.execute(statement("store_known_items"), values)


def _wording(tenant: TenantRef, collection: str, question: str, vector: NDArray[np.float32]) -> RetrieverQuery:
    reader = AuditContext(tenant=tenant, principals=(EVERYONE,), subject=None, collection=collection)
    query = parse_query(QueryRequest(text=question, syntax="plain"), reader, max_chars=len(question))
    return RetrieverQuery(
        scope=query.scope,
        principals=query.principals,
        parsed=query.parsed,
        texts={query.parsed.text: 1.0},
        vector=vector,
        lexical=True,
        fuzzy=False,
        candidates=_DEPTH,
        similarity_threshold=-1.0,
        use_vector_index=True,
    )


def _reciprocal_rank(candidates: CandidateList, chunk_id: uuid.UUID) -> float:
    return next((1 / candidate.rank for candidate in candidates.candidates if candidate.chunk_id == chunk_id), 0.0)


class KnownItemsMaintenance:
    """Measures the retrievers of collections that are due. Thread-safe."""

    def __init__(self, database: Database, embedders: EmbedderRegistry, settings: RetrievalSettings) -> None:
        self._database = database
        self._embedders = embedders
        # With one retriever, or with fixed weights, nothing follows from it.
        self._enabled = bool(
            settings.weighting == "collection" and settings.semantic_weight and settings.keyword_weight
        )

    def measure(
        self, tenant: TenantRef, space: Space, progress: Callable[[str], None], *, everything: bool = False
    ) -> None:
        """Measure the collections that are due. Without a model, nothing is measured.

        Args:
            space: Its live space.
            progress: Called with one line for each collection.
            everything: Whether to measure those that are not due too.

        Raises DatabaseError.
        """
        for measured in self.list_due(tenant, space, everything=everything):
            progress(f"measuring how the retrievers find known items of {measured.collection}")
            with maintenance_transaction(self._database, tenant) as connection:
                items = sample_items(connection, tenant.id, measured.collection)
            try:
                embedder = self._embedders.get(space, tenant.name)
                vectors = embed_queries(embedder, [item.question for item in items])
            except ModelError as error:
                progress(f"known items are not measured: {error}")
                return
            # Connections are not held while texts are embedded.
            with maintenance_transaction(self._database, tenant) as connection:
                figures = measure_items(connection, tenant, measured.collection, items, vectors)
                store_measurement(connection, tenant.id, measured, space.id, figures)

    def list_due(self, tenant: TenantRef, space: Space, *, everything: bool = False) -> list[CollectionMeasurement]:
        """Return the collections that are due."""
        if not self._enabled:
            return []
        with maintenance_transaction(self._database, tenant) as connection:
            measurements = list_measurements(connection, tenant.id)
        return [
            measured
            for measured in measurements
            if measured.find_due(space.id) is not None or (everything and measured.chunks >= MIN_CHUNKS)
        ]

    def status(self, connection: psycopg.Connection, tenant: TenantRef, space_id: uuid.UUID) -> list[IndexInfo]:
        """Return the measurements of a tenant, and which of them are due."""
        if not self._enabled:
            return []
        return [
            _info(measured, measured.find_due(space_id))
            for measured in list_measurements(connection, tenant.id)
            if measured.content is not None or measured.find_due(space_id) is not None
        ]


def _info(measured: CollectionMeasurement, due: str | None) -> IndexInfo:
    content = measured.content or {"chunks": 0, "measured_at": None, "languages": {}}
    measured_at = content["measured_at"]
    return IndexInfo(
        kind="known items",
        state="due" if measured.content is None else "ready",
        collection=measured.collection,
        rows=content["chunks"],
        rows_now=measured.chunks,
        bytes=0,
        settings={},
        health=content["languages"],
        checked_at=None if measured_at is None else datetime.fromisoformat(measured_at),
        due=due,
    )
