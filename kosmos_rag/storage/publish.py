"""Publish documents in batches.

One transaction writes a batch with its vectors and lexical statistics.
"""

import builtins
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.errors import EmbeddingSpaceChanged, SourceError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.text import bm25
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED, Chunk, EventType, LineBox, Note
from kosmos_rag.storage import lexical_statistics
from kosmos_rag.storage.analysis import Analysis, TextAnalyser
from kosmos_rag.storage.binary import Array, array, array_literal, batches, pack_numbers
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.filter_terms import replace_filter_terms
from kosmos_rag.storage.lexical_statistics import Acl, CollectionStatistics, RemovedCounts
from kosmos_rag.storage.permissions import NOBODY
from kosmos_rag.storage.pool import flush
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedDocument:
    """A parsed, chunked and embedded document, ready to publish."""

    id: uuid.UUID
    version_id: uuid.UUID
    source: str
    title: str
    media_type: str
    language: str
    """Text search configuration of the document."""
    metadata: dict[str, Any]
    acl: tuple[str, ...]
    """A permission feed that names the document decides instead; (PERMISSION_FEED,) grants nothing until one does."""
    content_hash: str
    fingerprint: str
    bytes: int
    text: str
    pages: tuple[int, ...]
    chunks: Sequence[Chunk]
    embedded: Sequence[str]
    """Embedded text of each chunk: title, section and text."""
    analysed: Sequence[str]
    """Text of each chunk whose words are indexed; repetitions are the weights of its fields."""
    vectors: Mapping[uuid.UUID, Vectors]
    """Vectors of the chunks by embedding space; all documents of a batch have the same spaces."""
    readers: tuple[str, ...] | None = None
    """Principals that the source named with the data; None if it names none."""
    languages: Sequence[str] = ()
    """Text search configuration of each chunk; empty where each has that of the document."""
    boxes: Sequence[LineBox] = ()
    """Places of the lines on their pages."""
    original: builtins.bytes | None = None
    """The file; None where it is not stored."""
    notes: Sequence[Note] = ()
    source_etag: str | None = None
    """The entity tag that the source gave: an equal one means unchanged content."""
    file_id: uuid.UUID | None = None
    """Id that the whole file has as a document, for a part of one: a permission feed that names the file decides.

    A part and another document with its name do not replace each other.
    """


def text_hash(text: str) -> uuid.UUID:
    """Return the MD5 of an embedded text.

    Equal texts have equal vectors in a space.
    """
    return uuid.UUID(bytes=_text_digest(text))


def _text_digest(text: str) -> bytes:
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


def chunk_id(version_id: uuid.UUID, chunk_index: int) -> bytes:
    """Return the bytes of `uuid.uuid5` of a version and an index."""
    digest = bytearray(hashlib.sha1(b"%b%d" % (version_id.bytes, chunk_index), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50  # version 5
    digest[8] = digest[8] & 0x3F | 0x80  # the variant of RFC 9562
    return bytes(digest)


def load_vectors(
    connection: psycopg.Connection, tenant_id: uuid.UUID, space_id: uuid.UUID, hashes: Collection[uuid.UUID]
) -> dict[uuid.UUID, NDArray[np.float32]]:
    """Return stored vectors by text hash, in stored precision.

    Args:
        connection: connection with the tenant set.
        hashes: `text_hash` of each text.
    """
    values = {"tenant_id": tenant_id, "space_id": space_id, "hashes": array(connection, "uuid", list(hashes))}
    rows = connection.cursor(binary=True).execute(statement("vectors_of_texts"), values).fetchall()
    # `halfvec_send` writes the dimensions and a reserved word first, two bytes each.
    return {key: np.frombuffer(vector, dtype=">f2", offset=4).astype(np.float32) for key, vector in rows}


def publish(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    documents: Sequence[PreparedDocument],
    *,
    collection: str,
    now: datetime,
    events: EventBuffer,
) -> set[uuid.UUID]:
    """Publish a batch in the caller's transaction.

    Returns the ids of documents that had an earlier version. Readers see the previous versions until the caller's
    transaction commits. Vectors are written for the spaces that the tenant still has; the backfill of a newer space
    writes its vectors.

    Args:
        connection: connection of the worker role, with the tenant set.
        documents: the batch, at least one document.

    Raises:
        EmbeddingSpaceChanged: the documents have no vectors of the live space, or the tenant was erased meanwhile.
        SourceError: code `duplicate`; a part of a file has the name of another document.
    """
    scope = {"tenant_id": tenant_id, "collection": collection, "now": now}
    space_ids = documents[0].vectors.keys()
    texts = [text for document in documents for text in document.analysed]
    languages = [
        language
        for document in documents
        for language in document.languages or [document.language] * len(document.analysed)
    ]
    # In a pipeline the client continues while the server works, and waits where it reads a result.
    with connection.pipeline():
        analyser = TextAnalyser(connection, texts, languages)
        chunks = _encode(connection, _chunk_columns(documents), _CHUNK_TYPES)
        embeddings = {key: _encode(connection, _vectors(documents, key), _VECTOR_TYPES) for key in space_ids}
        ids = [document.id for document in documents]
        former = connection.execute(statement("versions_of_documents"), {**scope, "document_ids": ids})
        analyser.receive()
        # Where versions are replaced the server has nothing to do under the lock until all texts are parsed.
        analysis = analyser.read() if former.fetchone() else None
        # The lock comes last: other writers of the collection wait from here to the commit. The server works on what is
        # sent first while the client computes what is sent next.
        locked = _lock(connection, scope, documents)
        statistics, removed, acls = locked.statistics, locked.removed, locked.acls
        if locked.live_space_id not in space_ids:
            raise EmbeddingSpaceChanged("another embedding space has become live meanwhile; embed the documents again")
        if not removed.version_ids:
            _write_documents(connection, scope, documents, locked)
            flush(connection)
        analysis = analysis or analyser.read()
        chunk_acls = [acls[document.id] for document in documents for _ in document.analysed]
        added = lexical_statistics.count_by_acl(analysis, chunk_acls, languages)
        lexeme_ids = lexical_statistics.update_statistics(connection, scope, statistics, added, removed)
        if removed.version_ids:
            # After their chunks are recorded as changed; before the new version, which may have the id of a former one.
            connection.execute(statement("delete_unsegmented_terms"), {**scope, "version_ids": removed.version_ids})
            connection.execute(statement("delete_versions"), {**scope, "version_ids": removed.version_ids})
            _write_documents(connection, scope, documents, locked)
        literals = {acl: array_literal(acl) for acl in acls.values()}
        sequences = list(range(statistics.next_sequence, statistics.next_sequence + len(texts)))
        columns: dict[str, list[Any]] = {
            "tsv": analysis.tsvectors,
            "length": analysis.lengths.tolist(),
            "sequence": sequences,
            "acl": [literals[acl] for acl in chunk_acls],
        }
        chunks = _merge(chunks, _encode(connection, columns, _LOCKED_TYPES))
        for values in chunks:
            connection.execute(statement("insert_chunks"), {**scope, **values})
        for space_id in locked.space_ids & space_ids:
            for values in _merge(chunks, embeddings[space_id]):
                connection.execute(statement("insert_embeddings"), {**scope, "space_id": space_id, **values})
        flush(connection)
        pivot = _pivot(statistics, analysis, removed)
        terms = {"terms": lexical_statistics.compute_saturated_terms(analysis, lexeme_ids, pivot)}
        for values in _merge(chunks, _encode(connection, terms, _TERM_TYPES)):
            connection.execute(statement("insert_unsegmented_terms"), {**scope, "pivot": pivot, **values})
        published = [
            {"document_id": document.id, "source": document.source, "version": locked.numbers[document.id] + 1}
            for document in documents
        ]
        events.add(collection, EventType.PUBLISHED, published)
    return set(locked.numbers)


@dataclass(frozen=True, kw_only=True, slots=True)
class _LockedState:
    """What a publication reads under its locks."""

    statistics: CollectionStatistics
    space_ids: set[uuid.UUID]
    """Spaces whose vectors may be written."""
    live_space_id: uuid.UUID | None
    removed: RemovedCounts
    """What the earlier versions of the documents contributed."""
    numbers: Counter[uuid.UUID]
    """Number of the earlier version by document."""
    acls: dict[uuid.UUID, Acl]
    """The acl of each document: that of a permission feed that names it, else its own."""


def _lock(connection: psycopg.Connection, scope: dict[str, Any], documents: Sequence[PreparedDocument]) -> _LockedState:
    """Lock the collection and its spaces, and read their state.

    The statements run in this order: a cutover holds the locks on the spaces until it commits, and a permission feed
    writes under the lock on the collection.
    """
    values = {**scope, "document_ids": [document.id for document in documents]}
    file_ids = [document.file_id for document in documents if document.file_id is not None]
    keys = {**scope, "document_ids": [*values["document_ids"], *file_ids]}
    statistics = lexical_statistics.send_lock(connection, scope)
    spaces = connection.execute(statement("lock_spaces"), scope)
    live = connection.execute(statement("live_space_id"), scope)
    versions = connection.execute(statement("versions_of_documents"), values)
    permissions = connection.execute(statement("permissions_of_documents"), keys)
    connection.execute(statement("discard_plans"))
    locked = lexical_statistics.read_lock(statistics)
    if locked is None:
        # The caller has created the collection, and waited for the erasure here.
        raise EmbeddingSpaceChanged("the tenant was erased meanwhile; embed the documents again")
    space_ids = {space_id for (space_id,) in spaces.fetchall()}
    (live_space_id,) = live.fetchone() or (None,)
    previous = versions.fetchall()
    _require_own_names(documents, {document_id: file_id for _, document_id, _, file_id in previous})
    feed_acls = {key: tuple(acl) for key, acl in permissions.fetchall()}
    version_ids = [version_id for version_id, *_ in previous]
    return _LockedState(
        statistics=locked,
        space_ids=space_ids,
        live_space_id=live_space_id,
        removed=lexical_statistics.count_removed(connection, scope["tenant_id"], version_ids),
        numbers=Counter({document_id: number for _, document_id, number, _ in previous}),
        acls={document.id: _decide_acl(document, feed_acls) for document in documents},
    )


def _require_own_names(
    documents: Sequence[PreparedDocument], stored_files: Mapping[uuid.UUID, uuid.UUID | None]
) -> None:
    """Raise SourceError where a part and another document would replace each other."""
    for document in documents:
        if stored_files.get(document.id, document.file_id) != document.file_id:
            message = (
                f"{document.source} has the name of a part of another file; rename it"
                if document.file_id is None
                else f"a document that is no part of the file has the name {document.source}; rename that document"
            )
            raise SourceError("duplicate", message)


def _write_documents(
    connection: psycopg.Connection, scope: dict[str, Any], documents: Sequence[PreparedDocument], locked: _LockedState
) -> None:
    """Write the rows of documents and of their new versions."""
    columns = _document_columns(documents, locked.numbers, locked.acls)
    arrays = _encode(connection, columns, _DOCUMENT_TYPES)
    for rows in _merge(arrays, list(batches({name: columns[name] for name in _NULLABLE}))):
        connection.execute(statement("upsert_documents"), {**scope, **rows})
        connection.execute(statement("insert_versions"), {**scope, **rows})
    replace_filter_terms(connection, scope["tenant_id"], [document.id for document in documents])


def _decide_acl(document: PreparedDocument, feed_acls: Mapping[uuid.UUID, Acl]) -> Acl:
    """Return the acl of a document.

    It is the entry of its file in a feed, else its own entry, else its own acl. The entry may be older than the data:
    of its principals those remain that the source named with the data.
    """
    own_acl = NOBODY if document.acl == (PERMISSION_FEED,) else document.acl
    acl = feed_acls.get(document.id, own_acl)
    acl = acl if document.file_id is None else feed_acls.get(document.file_id, acl)
    if document.readers is None or EVERYONE in document.readers:
        return acl
    return tuple(principal for principal in acl if principal in document.readers)


def _pivot(
    statistics: CollectionStatistics,
    added: Analysis,
    removed: RemovedCounts,
) -> float:
    chunks = statistics.chunks - removed.chunks + len(added.tsvectors)
    return bm25.pivot(statistics.length - removed.length + int(added.lengths.sum()), chunks)


def _encode(
    connection: psycopg.Connection, columns: dict[str, list[Any]], types: Mapping[str, str]
) -> list[dict[str, Array]]:
    """Return columns as binary arrays, one batch for each statement."""
    selected = {name: columns[name] for name in types}
    return [{name: array(connection, types[name], rows[name]) for name in types} for rows in batches(selected)]


def _merge(batches: Sequence[dict[str, Any]], more: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join the columns of each batch."""
    return [{**columns, **additions} for columns, additions in zip(batches, more, strict=True)]


def _vectors(documents: Sequence[PreparedDocument], space_id: uuid.UUID) -> dict[str, list[Any]]:
    return {"embedding": [vector for document in documents for vector in document.vectors[space_id]]}


def remove_documents(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    document_ids: Sequence[uuid.UUID],
    *,
    collection: str,
    events: EventBuffer,
) -> int:
    """Remove documents with all their rows.

    In the caller's transaction. Returns the number of documents.

    Args:
        connection: connection of the worker role, with the tenant set.
        document_ids: documents to remove; missing ones are ignored.
    """
    scope = {"tenant_id": tenant_id, "collection": collection, "document_ids": list(document_ids)}
    statistics = lexical_statistics.lock_collection(connection, scope)
    if statistics is None:
        return 0
    versions = connection.execute(statement("versions_of_documents"), scope).fetchall()
    removed = lexical_statistics.count_removed(connection, tenant_id, [version_id for version_id, *_ in versions])
    lexical_statistics.update_statistics(connection, scope, statistics, {}, removed)
    connection.execute(statement("delete_unsegmented_terms"), {**scope, "version_ids": removed.version_ids})
    deleted = connection.execute(statement("delete_documents"), scope).fetchall()
    events.add(collection, EventType.REMOVED, [{"document_id": key} for (key,) in deleted])
    return len(deleted)


def _document_columns(
    documents: Sequence[PreparedDocument], numbers: Counter[uuid.UUID], acls: Mapping[uuid.UUID, Acl]
) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "notes": [[asdict(note) for note in document.notes] for document in documents],
        "acl": [array_literal(acls[document.id]) for document in documents],
        "pages": [array_literal([str(page) for page in document.pages]) for document in documents],
        "chunks": [len(document.chunks) for document in documents],
        "number": [numbers[document.id] + 1 for document in documents],
        "boxes": [pack_numbers(np.array(document.boxes, dtype=np.int32)) for document in documents],
    }
    for name in (
        "id", "version_id", "source", "title", "media_type", "language", "metadata", "content_hash", "fingerprint",
        "bytes", "text", *_NULLABLE,
    ):  # fmt: skip
        columns[name] = [getattr(document, name) for document in documents]
    return columns


_DOCUMENT_TYPES = {
    **dict.fromkeys(("id", "version_id"), "uuid"),
    **dict.fromkeys(("source", "title", "media_type", "language", "content_hash", "fingerprint", "text"), "text"),
    **dict.fromkeys(("acl", "pages"), "text"),
    **dict.fromkeys(("metadata", "notes"), "jsonb"),
    **dict.fromkeys(("number", "chunks"), "int4"),
    "bytes": "int8",
    "boxes": "bytea",
}
"""Columns of a document and of its version, but for those that may be null."""
_NULLABLE = ("source_etag", "original", "file_id")

_CHUNK_TYPES = {
    **dict.fromkeys(("id", "document_id", "version_id", "text_hash"), "uuid"),
    **dict.fromkeys(("chunk_index", "start_offset", "end_offset", "line_start", "line_end", "page_start"), "int4"),
    **dict.fromkeys(("page_end", "tokens", "parent_start", "parent_end"), "int4"),
    **dict.fromkeys(("section", "text", "chunker", "fallback_reason", "table_context", "place_spans"), "text"),
}
"""Columns of a chunk. Binary arrays hold no nulls: page 0, an empty reason and end 0 mean null."""

_LOCKED_TYPES = {"tsv": "tsvector", "length": "int4", "sequence": "int4", "acl": "text"}
"""Columns of a chunk that are known under the lock only."""
_TERM_TYPES = {"terms": "sparsevec"}
_VECTOR_TYPES = {"embedding": "halfvec"}


def _place_spans(chunk: Chunk) -> str:
    """Return the places of a chunk as JSON.

    Each is a list without the nulls at its end.
    """
    if not chunk.place_spans:
        return "[]"
    lists = [list(span) for span in chunk.place_spans]
    for values in lists:
        while values[-1] is None:
            values.pop()
    return json.dumps(lists, ensure_ascii=False)


def _chunk_columns(documents: Sequence[PreparedDocument]) -> dict[str, list[Any]]:
    rows = [(document, chunk) for document in documents for chunk in document.chunks]
    columns: dict[str, list[Any]] = {
        "id": [chunk_id(document.version_id, chunk.chunk_index) for document, chunk in rows],
        "document_id": [document.id for document, _ in rows],
        "version_id": [document.version_id for document, _ in rows],
        "chunk_index": [chunk.chunk_index for _, chunk in rows],
        "chunker": [chunk.chunker for _, chunk in rows],
        "start_offset": [chunk.start for _, chunk in rows],
        "end_offset": [chunk.end for _, chunk in rows],
        "page_start": [chunk.page_start or 0 for _, chunk in rows],
        "page_end": [chunk.page_end or 0 for _, chunk in rows],
        "section": ["\x1f".join(chunk.section) for _, chunk in rows],
        "table_context": ["\x1f".join(chunk.table_context) for _, chunk in rows],
        "place_spans": [_place_spans(chunk) for _, chunk in rows],
        "fallback_reason": [chunk.fallback_reason or "" for _, chunk in rows],
        "parent_start": [chunk.parent_span[0] if chunk.parent_span else 0 for _, chunk in rows],
        "parent_end": [chunk.parent_span[1] if chunk.parent_span else 0 for _, chunk in rows],
        "text_hash": [_text_digest(text) for document in documents for text in document.embedded],
    }
    for name in ("line_start", "line_end", "text", "tokens"):
        columns[name] = [getattr(chunk, name) for _, chunk in rows]
    return columns
