"""Writing documents: a batch becomes visible in one transaction, with its vectors and its lexical statistics."""

import hashlib
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import EmbeddingSpaceChanged
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.text import bm25
from kosmos_rag.core.types import Chunk
from kosmos_rag.storage import lexical_statistics as corpus
from kosmos_rag.storage.binary import Array, array, array_literal, slices
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedDocument:
    """A document ready to be published: parsed, chunked, embedded."""

    id: uuid.UUID
    version_id: uuid.UUID
    source: str
    title: str
    media_type: str
    language: str
    """Text search configuration that its chunks are analysed with."""
    metadata: dict[str, Any]
    acl: tuple[str, ...]
    content_hash: str
    fingerprint: str
    bytes: int
    text: str
    pages: tuple[int, ...]
    chunks: Sequence[Chunk]
    indexed: Sequence[str]
    """What each chunk is found by: its text under title and section."""
    vectors: Mapping[uuid.UUID, Vectors]
    """Of the chunks, by embedding space; all documents of a batch have the same spaces."""
    source_etag: str | None = None
    """The entity tag that the source gave: an equal one means unchanged content."""


def text_hash(text: str) -> uuid.UUID:
    """Return the MD5 of a text that is embedded: equal ones have equal vectors in a space."""
    return uuid.UUID(bytes=hashlib.md5(text.encode(), usedforsecurity=False).digest())


def stored_vectors(
    connection: psycopg.Connection, tenant_id: uuid.UUID, space_id: uuid.UUID, hashes: Collection[uuid.UUID]
) -> dict[uuid.UUID, NDArray[np.float32]]:
    """Return the vectors that the tenant has in a space of texts with these hashes, by hash, exactly as stored."""
    values = {"tenant_id": tenant_id, "space_id": space_id, "hashes": array(connection, "uuid", list(hashes))}
    rows = connection.cursor(binary=True).execute(statement("vectors_of_texts"), values).fetchall()
    # Behind dimensions and a reserved word, as `halfvec_send` writes it.
    return {key: np.frombuffer(vector, dtype=">f2", offset=4).astype(np.float32) for key, vector in rows}


def publish(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    documents: Sequence[PreparedDocument],
    *,
    collection: str,
    now: datetime,
) -> set[uuid.UUID]:
    """Publish a batch in the caller's transaction; returns the ids of documents that had an earlier version.

    The old versions stay what readers see until the transaction commits. Vectors are written for those spaces that the
    tenant still has; a space that has come since they were made is filled by whoever builds it.
    Raises EmbeddingSpaceChanged where the live space is not among theirs.
    """
    scope = {"tenant_id": tenant_id, "collection": collection, "now": now}
    written = documents[0].vectors.keys()
    texts = [text for document in documents for text in document.indexed]
    languages = [document.language for document in documents for _ in document.indexed]
    analysis = corpus.analyse(connection, texts, languages)
    readers = [document.acl for document in documents for _ in document.indexed]
    added = corpus.counted(analysis, readers, languages)
    columns = _chunk_columns(documents, analysis)
    chunks = _encoded(connection, columns, _CHUNK_TYPES)
    embeddings = {space_id: _encoded(connection, _vectors(documents, space_id), _VECTOR_TYPES) for space_id in written}
    ids = [document.id for document in documents]
    # All that needs no lock is done: from here to the commit the corpus' other writers wait.
    before = corpus.lock(connection, scope)
    assert before is not None, "the pipeline creates the corpus before it publishes"
    spaces = {space_id for (space_id,) in connection.execute(statement("lock_spaces"), scope).fetchall()}
    _require_live(connection, scope, written)
    old = connection.execute(statement("versions_of_documents"), {**scope, "document_ids": ids}).fetchall()
    removed = corpus.removal(connection, tenant_id, [version_id for version_id, _, _ in old])
    lexeme_ids = corpus.change(connection, scope, before, added, removed)
    pivot = _pivot(before, analysis, removed)
    sequences = list(range(before.next_sequence, before.next_sequence + len(texts)))
    terms = corpus.saturated_terms(analysis, lexeme_ids, pivot)
    numbered = _encoded(connection, {"sequence": sequences, "terms": terms}, _LATE_TYPES)
    numbers = Counter({document_id: number for _, document_id, number in old})
    # None of these needs an answer: they are sent while the server works on those before them.
    with connection.pipeline():
        if removed.version_ids:
            connection.execute(statement("delete_unsegmented_terms"), {**scope, "version_ids": removed.version_ids})
            connection.execute(statement("delete_versions"), {**scope, "version_ids": removed.version_ids})
        for rows in slices(_document_columns(documents, numbers)):
            connection.execute(statement("upsert_documents"), {**scope, **rows})
            connection.execute(statement("insert_versions"), {**scope, **rows})
        for early, late in zip(chunks, numbered, strict=True):
            values = {**scope, "pivot": pivot, **early, **late}
            connection.execute(statement("insert_chunks"), values)
            connection.execute(statement("insert_unsegmented_terms"), values)
        for space_id in spaces & written:
            for early, vectors in zip(chunks, embeddings[space_id], strict=True):
                values = {**scope, "space_id": space_id, **early, **vectors}
                connection.execute(statement("insert_embeddings"), values)
    return set(numbers)


def _require_live(connection: psycopg.Connection, scope: dict[str, Any], written: Collection[uuid.UUID]) -> None:
    """Raise EmbeddingSpaceChanged unless the live space is among the written ones; the lock keeps it live."""
    if connection.execute(statement("live_space_id"), scope).fetchone() not in {(space_id,) for space_id in written}:
        raise EmbeddingSpaceChanged("another embedding space has become live meanwhile; embed the documents again")


def _pivot(before: corpus.Corpus, added: corpus.Analysis, removed: corpus.Removal) -> float:
    chunks = before.chunks - removed.chunks + len(added.tsvectors)
    return bm25.pivot(before.length - removed.length + int(added.lengths.sum()), chunks)


def _encoded(
    connection: psycopg.Connection, columns: dict[str, list[Any]], types: Mapping[str, str]
) -> list[dict[str, Array]]:
    """Return columns as arrays of these types, in pieces that one statement may carry."""
    wanted = {name: columns[name] for name in types}
    return [{name: array(connection, types[name], rows[name]) for name in types} for rows in slices(wanted)]


def _vectors(documents: Sequence[PreparedDocument], space_id: uuid.UUID) -> dict[str, list[Any]]:
    return {"embedding": [vector for document in documents for vector in document.vectors[space_id]]}


def remove(
    connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Sequence[uuid.UUID], *, collection: str
) -> int:
    """Remove documents with all their rows, in the caller's transaction. Returns how many there were."""
    scope = {"tenant_id": tenant_id, "collection": collection, "document_ids": list(document_ids)}
    before = corpus.lock(connection, scope)
    if before is None:
        return 0
    versions = connection.execute(statement("versions_of_documents"), scope).fetchall()
    removed = corpus.removal(connection, tenant_id, [version_id for version_id, _, _ in versions])
    corpus.change(connection, scope, before, {}, removed)
    connection.execute(statement("delete_unsegmented_terms"), {**scope, "version_ids": removed.version_ids})
    return len(connection.execute(statement("delete_documents"), scope).fetchall())


def _document_columns(documents: Sequence[PreparedDocument], numbers: Counter[uuid.UUID]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "metadata": [Jsonb(document.metadata) for document in documents],
        "acl": [array_literal(document.acl) for document in documents],
        "pages": [array_literal([str(page) for page in document.pages]) for document in documents],
        "chunks": [len(document.chunks) for document in documents],
        "number": [numbers[document.id] + 1 for document in documents],
    }
    for name in (
        "id", "version_id", "source", "title", "media_type", "language", "content_hash", "fingerprint", "bytes", "text",
        "source_etag",
    ):  # fmt: skip
        columns[name] = [getattr(document, name) for document in documents]
    return columns


_CHUNK_TYPES = {
    **dict.fromkeys(("id", "document_id", "version_id", "text_hash"), "uuid"),
    **dict.fromkeys(("chunk_index", "start_offset", "end_offset", "line_start", "line_end", "page_start"), "int4"),
    **dict.fromkeys(("page_end", "tokens", "length", "parent_start", "parent_end"), "int4"),
    **dict.fromkeys(("section", "text", "chunker", "fallback_reason", "acl"), "text"),
    "tsv": "tsvector",
}
"""What is sent of each chunk, without nulls: a page of 0, an empty reason and an end of 0 stand for them."""

_LATE_TYPES = {"sequence": "int4", "terms": "sparsevec"}
"""What is known of a chunk under the lock only."""
_VECTOR_TYPES = {"embedding": "halfvec"}


def _chunk_columns(documents: Sequence[PreparedDocument], analysis: corpus.Analysis) -> dict[str, list[Any]]:
    rows = [(document, chunk) for document in documents for chunk in document.chunks]
    readers = {document.id: array_literal(document.acl) for document in documents}
    columns: dict[str, list[Any]] = {
        "id": [uuid.uuid5(document.version_id, str(chunk.chunk_index)) for document, chunk in rows],
        "document_id": [document.id for document, _ in rows],
        "version_id": [document.version_id for document, _ in rows],
        "chunk_index": [chunk.chunk_index for _, chunk in rows],
        "chunker": [chunk.chunker for _, chunk in rows],
        "start_offset": [chunk.start for _, chunk in rows],
        "end_offset": [chunk.end for _, chunk in rows],
        "page_start": [chunk.page_start or 0 for _, chunk in rows],
        "page_end": [chunk.page_end or 0 for _, chunk in rows],
        "section": ["\x1f".join(chunk.section) for _, chunk in rows],
        "fallback_reason": [chunk.fallback_reason or "" for _, chunk in rows],
        "parent_start": [chunk.parent_span[0] if chunk.parent_span else 0 for _, chunk in rows],
        "parent_end": [chunk.parent_span[1] if chunk.parent_span else 0 for _, chunk in rows],
        "acl": [readers[document.id] for document, _ in rows],
        "text_hash": [text_hash(text) for document in documents for text in document.indexed],
        "tsv": analysis.tsvectors,
        "length": analysis.lengths.tolist(),
    }
    for name in ("line_start", "line_end", "text", "tokens"):
        columns[name] = [getattr(chunk, name) for _, chunk in rows]
    columns["ordinal"] = [chunk.chunk_index for _, chunk in rows]
    columns["splitter"] = [chunk.chunker for _, chunk in rows]
    return columns
