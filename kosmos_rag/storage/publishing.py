"""Writing documents: a batch becomes visible in one transaction, with its vectors and its lexical statistics."""

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector, SparseVector
from psycopg.types.json import Jsonb

from kosmos_rag import bm25
from kosmos_rag.ports import Vectors
from kosmos_rag.records import Chunk
from kosmos_rag.storage.sql import statement

_ROWS = 4096
"""Rows of one statement at most: a document of any size stays within the time that a statement may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedDocument:
    """A document ready to be published: parsed, chunked, embedded."""

    id: uuid.UUID
    version_id: uuid.UUID
    source: str
    title: str
    media_type: str
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


@dataclass(frozen=True, kw_only=True)
class _Analysis:
    """Lexemes of each chunk of a batch with their frequencies, in the order of the chunks."""

    tsvectors: list[str]
    frequencies: list[dict[str, int]]

    @cached_property
    def lengths(self) -> list[int]:
        return [sum(chunk.values()) for chunk in self.frequencies]

    @property
    def chunk_counts(self) -> Counter[str]:
        """In how many of the chunks each lexeme stands."""
        return Counter(lexeme for chunk in self.frequencies for lexeme in chunk)


def publish(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    documents: Sequence[PreparedDocument],
    *,
    space_id: uuid.UUID,
    language: str,
    now: datetime,
) -> None:
    """Publish a batch in the caller's transaction: each document's new version replaces the one before.

    The old versions stay what readers see until the transaction commits.
    """
    scope = {"tenant_id": tenant_id, "now": now, "language": language}
    analysis = _analyse(connection, [text for document in documents for text in document.indexed], language)
    columns = _chunk_columns(documents, analysis)
    vectors = [HalfVector(vector.astype(np.float16)) for document in documents for vector in document.vectors]
    ids = [document.id for document in documents]
    # All that needs no lock is done: from here to the commit the tenant's other writers wait.
    corpus = connection.execute(statement("lock_corpus"), scope).fetchone()
    assert corpus is not None, "the pipeline creates the tenant before it publishes"
    chunks_before, length_before, next_id = corpus
    old = connection.execute(statement("versions_of_documents"), {**scope, "document_ids": ids}).fetchall()
    removed = _Removal.of(connection, tenant_id, [version_id for version_id, _, _ in old])
    numbers = Counter({document_id: number for _, document_id, number in old})

    chunks = chunks_before - removed.chunks + len(analysis.frequencies)
    length = length_before - removed.length + sum(analysis.lengths)
    pivot = bm25.pivot(length, chunks)
    lexeme_ids, next_id = _change_lexemes(connection, tenant_id, analysis.chunk_counts, removed.lexemes, next_id)
    connection.execute(
        statement("change_corpus"),
        {
            **scope,
            "chunks": chunks - chunks_before,
            "length": length - length_before,
            "pivot": pivot if analysis.frequencies else float("inf"),
            "next_lexeme_id": next_id,
        },
    )
    connection.execute(statement("delete_versions"), {**scope, "version_ids": removed.version_ids})
    rows = [_document_row(scope, document, numbers[document.id] + 1) for document in documents]
    connection.cursor().executemany(statement("upsert_document"), rows)
    connection.cursor().executemany(statement("insert_version"), rows)
    terms = [
        _sparse(bm25.saturated({lexeme_ids[lexeme]: tf for lexeme, tf in chunk.items()}, length, pivot))
        for chunk, length in zip(analysis.frequencies, analysis.lengths, strict=True)
    ]
    columns |= {"terms": terms, "embedding": vectors}
    for start in range(0, len(terms), _ROWS):
        rows_of = {name: values[start : start + _ROWS] for name, values in columns.items()}
        connection.execute(statement("insert_chunks"), {**scope, **rows_of, "pivot": pivot})
        connection.execute(statement("insert_embeddings"), {**scope, **rows_of, "space_id": space_id})


def remove(connection: psycopg.Connection, tenant_id: uuid.UUID, document_ids: Sequence[uuid.UUID]) -> int:
    """Remove documents with all their rows, in the caller's transaction. Returns how many there were."""
    scope = {"tenant_id": tenant_id, "document_ids": list(document_ids)}
    corpus = connection.execute(statement("lock_corpus"), scope).fetchone()
    if corpus is None:
        return 0
    versions = connection.execute(statement("versions_of_documents"), scope).fetchall()
    removed = _Removal.of(connection, tenant_id, [version_id for version_id, _, _ in versions])
    _, next_id = _change_lexemes(connection, tenant_id, Counter(), removed.lexemes, corpus[2])
    connection.execute(
        statement("change_corpus"),
        {
            **scope,
            "chunks": -removed.chunks,
            "length": -removed.length,
            "pivot": float("inf"),
            "next_lexeme_id": next_id,
        },
    )
    return len(connection.execute(statement("delete_documents"), scope).fetchall())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Removal:
    """What leaves the statistics with these versions."""

    version_ids: list[uuid.UUID]
    chunks: int
    length: int
    lexemes: Counter[str]

    @classmethod
    def of(cls, connection: psycopg.Connection, tenant_id: uuid.UUID, version_ids: list[uuid.UUID]) -> "_Removal":
        scope = {"tenant_id": tenant_id, "version_ids": version_ids}
        size = connection.execute(statement("size_of_documents"), scope).fetchone() if version_ids else None
        rows = connection.execute(statement("lexemes_of_documents"), scope) if version_ids else ()
        chunks, length = size or (0, 0)
        return cls(version_ids=version_ids, chunks=chunks, length=length, lexemes=Counter(dict(rows)))


def _analyse(connection: psycopg.Connection, texts: Sequence[str], language: str) -> _Analysis:
    rows = [
        row
        for start in range(0, len(texts), _ROWS)
        for row in connection.execute(
            statement("analyse"), {"texts": list(texts[start : start + _ROWS]), "language": language}
        ).fetchall()
    ]
    tsvectors = [tsvector for (tsvector,) in rows]
    return _Analysis(tsvectors=tsvectors, frequencies=[lexeme_frequencies(tsvector) for tsvector in tsvectors])


_LEXEME = re.compile(r"'((?:[^'\\]|''|\\\\)+)':([\d,]+)")


def lexeme_frequencies(tsvector: str) -> dict[str, int]:
    """Count the positions of each lexeme in the text form of a tsvector: `'churn':2,5 'rate':3`."""
    return {_unquoted(lexeme): positions.count(",") + 1 for lexeme, positions in _LEXEME.findall(tsvector)}


def _unquoted(lexeme: str) -> str:
    return lexeme.replace("''", "'").replace("\\\\", "\\") if "'" in lexeme or "\\" in lexeme else lexeme


def _sparse(weights: dict[int, float]) -> SparseVector:
    """Make a `sparsevec` of weights by lexeme id. Ids count from 1 as its text form does, the class from 0."""
    return SparseVector({key - 1: weight for key, weight in weights.items()}, bm25.DIMENSIONS)


def _change_lexemes(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    added: Counter[str],
    removed: Counter[str],
    next_id: int,
) -> tuple[dict[str, int], int]:
    """Bring the document frequencies up to date; returns the id of each added lexeme and the next free id.

    Runs under the lock on the corpus, so that nobody else numbers new lexemes between the statements.
    """
    scope = {"tenant_id": tenant_id}
    change = {lexeme: added[lexeme] - removed[lexeme] for lexeme in sorted(added.keys() | removed.keys())}
    changes = {**scope, "lexemes": list(change), "counts": list(change.values())}
    if removed:
        connection.execute(statement("delete_lexemes"), changes)
    known: dict[str, int] = dict(connection.execute(statement("change_lexemes"), changes).fetchall())
    new = [lexeme for lexeme in change if lexeme in added and lexeme not in known]
    ids = dict(zip(new, range(next_id, next_id + len(new)), strict=True))
    if new:
        counts = [added[lexeme] for lexeme in new]
        values = {**scope, "lexemes": new, "ids": list(ids.values()), "counts": counts}
        connection.execute(statement("insert_lexemes"), values)
    return known | ids, next_id + len(new)


def _document_row(scope: dict[str, Any], document: PreparedDocument, number: int) -> dict[str, Any]:
    return {
        **scope,
        "id": document.id,
        "version_id": document.version_id,
        "source": document.source,
        "title": document.title,
        "media_type": document.media_type,
        "metadata": Jsonb(document.metadata),
        "acl": list(document.readers),
        "number": number,
        "content_hash": document.content_hash,
        "fingerprint": document.fingerprint,
        "bytes": document.bytes,
        "text": document.text,
        "pages": list(document.pages),
        "chunks": len(document.chunks),
    }


def _array_literal(values: Sequence[str]) -> str:
    """Render a text[] as one text: rows of an unnested array cannot be arrays of different lengths."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"


def _chunk_columns(documents: Sequence[PreparedDocument], analysis: _Analysis) -> dict[str, list[Any]]:
    rows = [(document, chunk) for document in documents for chunk in document.chunks]
    columns: dict[str, list[Any]] = {
        "id": [uuid.uuid5(document.version_id, str(chunk.ordinal)) for document, chunk in rows],
        "document_id": [document.id for document, _ in rows],
        "version_id": [document.version_id for document, _ in rows],
        "start_offset": [chunk.start for _, chunk in rows],
        "end_offset": [chunk.end for _, chunk in rows],
        "section": ["\x1f".join(chunk.section) for _, chunk in rows],
        "acl": [_array_literal(document.readers) for document, _ in rows],
        "tsv": analysis.tsvectors,
        "length": analysis.lengths,
    }
    for name in (
        "ordinal", "line_start", "line_end", "page_start", "page_end", "text", "tokens", "splitter", "fallback_reason"
    ):  # fmt: skip
        columns[name] = [getattr(chunk, name) for _, chunk in rows]
    return columns
