"""Writing documents: a batch becomes visible in one transaction, with its vectors and its lexical statistics."""

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector
from psycopg.types.json import Jsonb

from kosmos_rag import bm25
from kosmos_rag.ports import Vectors
from kosmos_rag.records import Chunk
from kosmos_rag.storage import corpus
from kosmos_rag.storage.slices import slices
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
    readers: tuple[str, ...]
    content_hash: str
    fingerprint: str
    bytes: int
    text: str
    pages: tuple[int, ...]
    chunks: Sequence[Chunk]
    indexed: Sequence[str]
    """What each chunk is found by: its text under title and section."""
    vectors: Vectors


def publish(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    documents: Sequence[PreparedDocument],
    *,
    collection: str,
    space_id: uuid.UUID,
    now: datetime,
) -> None:
    """Publish a batch in the caller's transaction: each document's new version replaces the one before.

    The old versions stay what readers see until the transaction commits.
    """
    scope = {"tenant_id": tenant_id, "collection": collection, "now": now}
    languages = [document.language for document in documents for _ in document.indexed]
    analysis = corpus.analyse(connection, [text for document in documents for text in document.indexed], languages)
    columns = _chunk_columns(documents, analysis)
    columns["embedding"] = [
        HalfVector(vector.astype(np.float16)) for document in documents for vector in document.vectors
    ]
    ids = [document.id for document in documents]
    # All that needs no lock is done: from here to the commit the corpus' other writers wait.
    before = corpus.lock(connection, scope)
    assert before is not None, "the pipeline creates the corpus before it publishes"
    old = connection.execute(statement("versions_of_documents"), {**scope, "document_ids": ids}).fetchall()
    removed = corpus.removal(connection, tenant_id, [version_id for version_id, _, _ in old])
    lexeme_ids = corpus.change(connection, scope, before, analysis, removed)
    if new := sorted(set(languages)):
        connection.execute(statement("add_languages"), {**scope, "languages": new})
    connection.execute(statement("delete_tail"), {**scope, "version_ids": removed.version_ids})
    connection.execute(statement("delete_versions"), {**scope, "version_ids": removed.version_ids})

    numbers = Counter({document_id: number for _, document_id, number in old})
    for rows in slices(_document_columns(documents, numbers)):
        connection.execute(statement("upsert_documents"), {**scope, **rows})
        connection.execute(statement("insert_versions"), {**scope, **rows})
    chunks = before.chunks - removed.chunks + len(analysis.lengths)
    pivot = bm25.pivot(before.length - removed.length + sum(analysis.lengths), chunks)
    columns["terms"] = corpus.saturated_terms(analysis, lexeme_ids, pivot)
    columns["serial"] = list(range(before.next_serial, before.next_serial + len(analysis.lengths)))
    for rows in slices(columns):
        connection.execute(statement("insert_chunks"), {**scope, **rows})
        connection.execute(statement("insert_tail"), {**scope, **rows, "pivot": pivot})
        connection.execute(statement("insert_embeddings"), {**scope, **rows, "space_id": space_id})


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
    corpus.change(connection, scope, before, corpus.Analysis(tsvectors=[], frequencies=[]), removed)
    connection.execute(statement("delete_tail"), {**scope, "version_ids": removed.version_ids})
    return len(connection.execute(statement("delete_documents"), scope).fetchall())


def _document_columns(documents: Sequence[PreparedDocument], numbers: Counter[uuid.UUID]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "metadata": [Jsonb(document.metadata) for document in documents],
        "acl": [_array_literal(document.readers) for document in documents],
        "pages": [_array_literal([str(page) for page in document.pages]) for document in documents],
        "chunks": [len(document.chunks) for document in documents],
        "number": [numbers[document.id] + 1 for document in documents],
    }
    for name in (
        "id", "version_id", "source", "title", "media_type", "language", "content_hash", "fingerprint", "bytes", "text"
    ):  # fmt: skip
        columns[name] = [getattr(document, name) for document in documents]
    return columns


def _array_literal(values: Sequence[str]) -> str:
    """Render an array as one text: rows of an unnested array cannot be arrays of different lengths."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _chunk_columns(documents: Sequence[PreparedDocument], analysis: corpus.Analysis) -> dict[str, list[Any]]:
    rows = [(document, chunk) for document in documents for chunk in document.chunks]
    readers = {document.id: _array_literal(document.readers) for document in documents}
    columns: dict[str, list[Any]] = {
        "id": [uuid.uuid5(document.version_id, str(chunk.ordinal)) for document, chunk in rows],
        "document_id": [document.id for document, _ in rows],
        "version_id": [document.version_id for document, _ in rows],
        "start_offset": [chunk.start for _, chunk in rows],
        "end_offset": [chunk.end for _, chunk in rows],
        "section": ["\x1f".join(chunk.section) for _, chunk in rows],
        "acl": [readers[document.id] for document, _ in rows],
        "tsv": analysis.tsvectors,
        "length": analysis.lengths,
    }
    for name in (
        "ordinal", "line_start", "line_end", "page_start", "page_end", "text", "tokens", "splitter", "fallback_reason"
    ):  # fmt: skip
        columns[name] = [getattr(chunk, name) for _, chunk in rows]
    return columns
