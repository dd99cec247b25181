"""Load blocks under row-level security."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.blocks.block import Block, CollectionPostings, VectorBlock
from kosmos_rag.retrieval.blocks.cache import BlockCache, state_key
from kosmos_rag.retrieval.postings import Posting, PostingsCache
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import CollectionStats, Snapshot
from kosmos_rag.retrieval.views.database import DatabaseSession
from kosmos_rag.storage.binary import MAX_FREQUENCY, array, sparse_entries, unpack_frequencies, unpack_numbers
from kosmos_rag.storage.lexical_statistics import parse_tsvectors
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

_BATCH = 5_000
_PACKED_SPEED = 8
"""How many packed postings are read in the time that those of one chunk take from its lexemes, about."""


def load_block(pool: ConnectionPool, query: RetrieverQuery, reader: Hashable, cache: BlockCache) -> None:
    """Load and cache what the reader of a search sees.

    Args:
        pool: Connections of background work.
        query: The search.
        reader: `reader_key` of the search.
        cache: Where the block goes.

    Raises DatabaseError.
    """
    most = cache.most_rows(query)
    tenant_id = query.scope["tenant_id"]
    with pool.transaction(tenant_id, query.principals) as connection:
        session = DatabaseSession(
            connection=connection,
            tenant_id=tenant_id,
            postings=PostingsCache(0),
            close_terms=None,
            timer=StageTimer(),
        )
        snapshot = session.snapshot(query)
        if snapshot.space_id is None:
            return
        vectors = postings = None
        if query.vector is not None:
            vectors = _read_vectors(connection, query, snapshot, query.vector, most + 1)
            if len(vectors.chunk_ids) > most:
                return
        if query.lexical:
            visible = _read_sequences(connection, query.scope, snapshot, most + 1)
            if sum(map(len, visible.values())) > most:
                return
            postings = _read_postings(connection, query.scope, snapshot, visible, packed_limit=most)
    cache.put(reader, state_key(query, snapshot), Block(vectors=vectors, postings=postings, passages=cache.passages))


def _read_vectors(
    connection: psycopg.Connection,
    query: RetrieverQuery,
    snapshot: Snapshot,
    vector: NDArray[np.float32],
    limit: int,
) -> VectorBlock:
    chunk_ids: list[UUID] = []
    parts: list[NDArray[np.float32]] = [np.empty((0, len(vector)), dtype=np.float32)]
    cursor = connection.cursor(binary=True)
    cursor.execute(statement("visible_vectors"), {**query.scope, "space_id": snapshot.space_id, "limit": limit})
    while rows := cursor.fetchmany(_BATCH):
        chunk_ids += [chunk_id for chunk_id, _ in rows]
        # `halfvec_send` writes the dimensions and a reserved word first, two bytes each.
        packed = np.frombuffer(b"".join([packed_vector for _, packed_vector in rows]), dtype=">f2")
        parts.append(packed.reshape(len(rows), -1)[:, 2:].astype(np.float32))
    return VectorBlock(chunk_ids=chunk_ids, vectors=np.concatenate(parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entries:
    """Term frequencies of chunks: parallel arrays."""

    lexeme_ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    """Negative for a chunk that is not seen."""
    frequencies: NDArray[np.uint8]


_Visible: TypeAlias = dict[str, list[tuple[int, UUID]]]
"""Sequence numbers and ids of chunks, by collection."""


def _read_sequences(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, limit: int
) -> _Visible:
    visible: _Visible = {stats.collection: [] for stats in snapshot.collections}
    cursor = connection.cursor(binary=True).execute(statement("visible_sequences"), {**scope, "limit": limit})
    while rows := cursor.fetchmany(_BATCH):
        for collection, sequence, chunk_id in rows:
            visible[collection].append((sequence, chunk_id))
    return visible


def _read_postings(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, visible: _Visible, packed_limit: int
) -> dict[str, CollectionPostings]:
    """Read the postings of visible chunks.

    Packed postings are those of hidden chunks too, which are left out here. Few chunks of many have theirs from their
    own lexemes.
    """
    total = snapshot.total_chunks_unfiltered
    packed = total <= packed_limit and sum(map(len, visible.values())) * _PACKED_SPEED >= total
    postings = {}
    for stats in snapshot.collections:
        chunks = sorted(visible[stats.collection])
        sequences = np.array([sequence for sequence, _ in chunks], dtype=np.int32)
        lengths = np.zeros(len(chunks), dtype=np.int32)
        read = _read_packed if packed else _read_lexemes
        entries = read(connection, {**scope, "collection": stats.collection}, stats, sequences, lengths)
        ids = [chunk_id for _, chunk_id in chunks]
        postings[stats.collection] = _build(ids, Posting(offsets=sequences, frequencies=lengths), entries)
    return postings


def _read_lexemes(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    _stats: CollectionStats,
    sequences: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> list[_Entries]:
    """Return the postings of chunks from their lexemes, and set their lengths."""
    entries = []
    for start in range(0, len(sequences), _BATCH):
        bound = array(connection, "int4", sequences[start : start + _BATCH])
        cursor = connection.cursor(binary=True)
        rows = cursor.execute(statement("lexemes_of_chunks"), {**scope, "sequences": bound}).fetchall()
        analysis = parse_tsvectors([tsvector for _, tsvector in rows])
        vocabulary = array(connection, "text", analysis.vocabulary)
        ids: dict[str, int] = dict(cursor.execute(statement("lexeme_ids"), {**scope, "lexemes": vocabulary}).fetchall())
        offsets = np.searchsorted(sequences, np.array([sequence for sequence, _ in rows], dtype=np.int32))
        lengths[offsets] = analysis.lengths
        lexeme_ids = np.array([ids[lexeme] for lexeme in analysis.vocabulary], dtype=np.int64)
        frequencies = np.minimum(analysis.frequencies, MAX_FREQUENCY).astype(np.uint8)
        entries.append(
            _Entries(lexeme_ids=lexeme_ids[analysis.lexemes], offsets=offsets[analysis.rows], frequencies=frequencies)
        )
    return entries


def _read_packed(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    stats: CollectionStats,
    sequences: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> list[_Entries]:
    """Return packed postings and the terms of unsegmented chunks, and set the lengths of the chunks."""
    values = {**scope, "ids": [segment.id for segment in stats.segments]}
    offsets_of_segment: dict[UUID, NDArray[np.int64]] = {}
    cursor = connection.cursor(binary=True).execute(statement("chunks_of_segments"), values)
    for index_id, packed_sequences, packed_lengths in cursor.fetchall():
        offsets_of_segment[index_id] = offsets = _offsets(sequences, unpack_numbers(packed_sequences))
        lengths[offsets[offsets >= 0]] = unpack_numbers(packed_lengths)[offsets >= 0]
    entries = []
    cursor = connection.cursor(binary=True).execute(statement("postings_of_segments"), values)
    while rows := cursor.fetchmany(_BATCH):
        entries.append(_unpack(rows, offsets_of_segment))
    cursor = connection.cursor(binary=True).execute(statement("unsegmented_terms"), values)
    while rows := cursor.fetchmany(_BATCH):
        offsets = _offsets(sequences, np.array([row[0] for row in rows]))
        of_row = np.array([row[1] for row in rows], dtype=np.int32)
        lengths[offsets[offsets >= 0]] = of_row[offsets >= 0]
        entries.append(_recover(rows, offsets))
    return entries


def _offsets(sequences: NDArray[np.int32], of_chunks: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the offset of each chunk among the visible ones.

    -1 for a hidden or deleted chunk.
    """
    if not len(sequences):
        return np.full(len(of_chunks), -1)
    at = np.minimum(np.searchsorted(sequences, of_chunks), len(sequences) - 1)
    return np.where(sequences[at] == of_chunks, at, -1)


def _unpack(rows: Sequence[tuple[Any, ...]], offsets_of_segment: Mapping[UUID, NDArray[np.int64]]) -> _Entries:
    """Return the postings of rows with lexeme, segment, offsets and frequencies."""
    counts = [len(row[3]) for row in rows]
    offsets = [offsets_of_segment[row[1]][unpack_numbers(row[2])] for row in rows]
    return _Entries(
        lexeme_ids=np.repeat(np.array([row[0] for row in rows], dtype=np.int64), counts),
        offsets=np.concatenate(offsets),
        frequencies=unpack_frequencies(b"".join([row[3] for row in rows])),
    )


def _recover(rows: Sequence[tuple[Any, ...]], offsets: NDArray[np.int64]) -> _Entries:
    """Return the term frequencies of unsegmented chunks, from their stored weights."""
    stored = sparse_entries([row[3] for row in rows])
    lengths = np.array([row[1] for row in rows], dtype=np.float64)
    pivots = np.array([row[2] for row in rows], dtype=np.float64)
    norms = bm25.norms(lengths, pivots, bm25.STORED_B)[stored.rows]
    frequencies = np.minimum(bm25.frequencies(stored.values, norms), MAX_FREQUENCY)
    return _Entries(
        lexeme_ids=stored.lexeme_ids, offsets=offsets[stored.rows], frequencies=frequencies.astype(np.uint8)
    )


def _build(chunk_ids: Sequence[UUID], chunks: Posting, entries: Iterable[_Entries]) -> CollectionPostings:
    none = _Entries(
        lexeme_ids=np.empty(0, dtype=np.int64),
        offsets=np.empty(0, dtype=np.int64),
        frequencies=np.empty(0, dtype=np.uint8),
    )
    parts = [none, *entries]
    offsets = np.concatenate([part.offsets for part in parts])
    is_visible = offsets >= 0
    offsets = offsets[is_visible]
    lexeme_ids = np.concatenate([part.lexeme_ids for part in parts])[is_visible]
    order = np.argsort(lexeme_ids * len(chunk_ids) + offsets, kind="stable")
    distinct, starts = np.unique(lexeme_ids[order], return_index=True)
    return CollectionPostings(
        chunk_ids=chunk_ids,
        chunks=chunks,
        lexeme_ids=distinct,
        starts=np.append(starts, len(order)),
        offsets=offsets[order].astype(np.int32),
        frequencies=np.concatenate([part.frequencies for part in parts])[is_visible][order],
    )
