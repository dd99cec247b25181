"""Load blocks under row-level security."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.telemetry.tracing import StageTimer
from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.blocks.block import Block, Change, Layer
from kosmos_rag.retrieval.blocks.building import Chunks, Entries, build_part
from kosmos_rag.retrieval.blocks.cache import BlockCache, state_key
from kosmos_rag.retrieval.postings import PostingsCache, pack_frequencies, unpack_frequencies
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import CollectionStats, Snapshot
from kosmos_rag.retrieval.views.database import DatabaseSession
from kosmos_rag.storage.analysis import parse_tsvectors
from kosmos_rag.storage.binary import array, sparse_entries, unpack_numbers
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

_BATCH = 5_000
_PACKED_SPEED = 8
"""How many packed postings are read in the time that those of one chunk take from its lexemes, about."""


def load_block(pool: ConnectionPool, query: RetrieverQuery, reader: Hashable, cache: BlockCache) -> None:
    """Load and cache what the reader of a search sees.

    Args:
        pool: Connections of background work.
        reader: `reader_key` of the search.
        cache: Where the block goes.

    Raises DatabaseError.
    """
    most, tenant_id = cache.most_rows(query), query.scope["tenant_id"]
    with pool.transaction(tenant_id, query.principals) as connection:
        session = DatabaseSession(
            connection=connection,
            tenant_id=tenant_id,
            postings=PostingsCache(0),
            close_terms=None,
            timer=StageTimer(),
        )
        snapshot = session.snapshot(query)
        visible = _read_sequences(connection, query.scope, snapshot, most + 1)
        if snapshot.space_id is None or sum(map(len, visible.values())) > most:
            return
        vectors: dict[int, NDArray[np.float16]] = {}
        if query.vector is not None:
            vectors = _read_vectors(connection, query, snapshot.space_id, most + 1)
        postings = _PostingsReader(connection, query, snapshot, visible, packed_limit=most)
        chunks = {
            stats.collection: collect_chunks(
                sorted(visible[stats.collection]), vectors, query.vector, postings.read(stats)
            )
            for stats in snapshot.collections
        }
        changes = read_changes(connection, query)
    block = Block(space_id=snapshot.space_id, layers=(Layer(part=build_part(chunks)),), changes=changes)
    cache.put(reader, state_key(query, snapshot.space_id, snapshot.states), block)


def read_changes(connection: psycopg.Connection, query: RetrieverQuery) -> dict[str, Change]:
    """Read the last change of each collection that may answer."""
    rows = connection.execute(statement("collection_states"), query.scope).fetchall()
    return {collection: Change(epoch=epoch, state=state) for collection, epoch, state in rows}


def collect_chunks(
    chunks: Sequence[tuple[int, UUID]],
    vectors: Mapping[int, NDArray[np.float16]],
    vector: NDArray[np.float32] | None,
    postings: tuple[NDArray[np.int32], Sequence[Entries]],
) -> Chunks:
    """Return the chunks of a collection, in the form that parts are built of.

    Args:
        chunks: Sequence numbers, ascending, and ids.
        vectors: By number of the chunk id.
        vector: Embedding of the search; None for no vectors.
        postings: Lengths, and entries by offset among the chunks.
    """
    lengths, entries = postings
    has_vector = np.fromiter((chunk_id.int in vectors for _, chunk_id in chunks), dtype=np.bool_, count=len(chunks))
    stacked = None
    if vector is not None:
        nothing = np.zeros(len(vector), dtype=np.float16)
        rows = [vectors.get(chunk_id.int, nothing) for _, chunk_id in chunks]
        stacked = np.stack(rows) if rows else np.empty((0, len(vector)), dtype=np.float16)
    return Chunks(
        sequences=np.array([sequence for sequence, _ in chunks], dtype=np.int32),
        lengths=lengths,
        ids=np.frombuffer(b"".join([chunk_id.bytes for _, chunk_id in chunks]), dtype=np.uint8).reshape(-1, 16),
        vectors=stacked,
        has_vector=has_vector,
        entries=entries,
    )


def unpack_vectors(packed: Sequence[bytes]) -> NDArray[np.float16]:
    """Return vectors from the binary format of `halfvec_send`.

    It has the dimensions and a reserved word first, two bytes each.
    """
    numbers = np.frombuffer(b"".join(packed), dtype=">f2").reshape(len(packed), -1)
    return numbers[:, 2:].astype(np.float16)


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


def _read_vectors(
    connection: psycopg.Connection, query: RetrieverQuery, space_id: UUID, limit: int
) -> dict[int, NDArray[np.float16]]:
    vectors: dict[int, NDArray[np.float16]] = {}
    cursor = connection.cursor(binary=True)
    cursor.execute(statement("visible_vectors"), {**query.scope, "space_id": space_id, "limit": limit})
    while rows := cursor.fetchmany(_BATCH):
        unpacked = unpack_vectors([packed for _, packed in rows])
        vectors |= zip([chunk_id.int for chunk_id, _ in rows], unpacked, strict=True)
    return vectors


class _PostingsReader:
    """Reads the postings of visible chunks.

    Packed postings are those of hidden chunks too, which are left out. Few chunks of many have theirs from their own
    lexemes.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        query: RetrieverQuery,
        snapshot: Snapshot,
        visible: _Visible,
        packed_limit: int,
    ) -> None:
        total = snapshot.total_chunks_unfiltered
        self._connection = connection
        self._query = query
        self._visible = visible
        self._packed = total <= packed_limit and sum(map(len, visible.values())) * _PACKED_SPEED >= total

    def read(self, stats: CollectionStats) -> tuple[NDArray[np.int32], list[Entries]]:
        """Return the lengths of the chunks of a collection, and their postings."""
        sequences = np.array(sorted(sequence for sequence, _ in self._visible[stats.collection]), dtype=np.int32)
        lengths = np.zeros(len(sequences), dtype=np.int32)
        if not self._query.lexical:
            return lengths, []
        scope = {**self._query.scope, "collection": stats.collection}
        if self._packed:
            return lengths, _read_packed(self._connection, scope, stats, sequences, lengths)
        return lengths, _read_lexemes(self._connection, scope, sequences, lengths)


def _read_lexemes(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    sequences: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> list[Entries]:
    """Return the postings of chunks from their lexemes, and set their lengths."""
    entries = []
    for start in range(0, len(sequences), _BATCH):
        bound = array(connection, "int4", sequences[start : start + _BATCH])
        cursor = connection.cursor(binary=True)
        rows = cursor.execute(statement("lexemes_of_chunks"), {**scope, "sequences": bound}).fetchall()
        offsets = np.searchsorted(sequences, np.array([sequence for sequence, _ in rows], dtype=np.int32))
        lengths[offsets], of_rows = count_lexemes(connection, scope, [tsvector for _, tsvector in rows], offsets)
        entries.append(of_rows)
    return entries


def count_lexemes(
    connection: psycopg.Connection, scope: Mapping[str, Any], tsvectors: list[bytes], offsets: NDArray[np.integer]
) -> tuple[NDArray[np.intp], Entries]:
    """Return lengths and postings of chunks.

    Args:
        connection: In a transaction of the reader.
        scope: Bound values, with the collection.
        tsvectors: Of the chunks, in binary form.
        offsets: Of the chunks.
    """
    analysis = parse_tsvectors(tsvectors)
    values = {**scope, "lexemes": array(connection, "text", analysis.vocabulary)}
    ids: dict[str, int] = dict(connection.cursor(binary=True).execute(statement("lexeme_ids"), values).fetchall())
    lexeme_ids = np.array([ids[lexeme] for lexeme in analysis.vocabulary], dtype=np.int64)
    return analysis.lengths, Entries(
        lexeme_ids=lexeme_ids[analysis.lexemes],
        offsets=offsets[analysis.rows].astype(np.int64),
        frequencies=unpack_frequencies(pack_frequencies(analysis.frequencies)),
    )


def _read_packed(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    stats: CollectionStats,
    sequences: NDArray[np.int32],
    lengths: NDArray[np.int32],
) -> list[Entries]:
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


def _unpack(rows: Sequence[tuple[Any, ...]], offsets_of_segment: Mapping[UUID, NDArray[np.int64]]) -> Entries:
    """Return the postings of rows with lexeme, segment, offsets and frequencies."""
    counts = [len(row[3]) for row in rows]
    offsets = [offsets_of_segment[row[1]][unpack_numbers(row[2])] for row in rows]
    return Entries(
        lexeme_ids=np.repeat(np.array([row[0] for row in rows], dtype=np.int64), counts),
        offsets=np.concatenate(offsets),
        frequencies=unpack_frequencies(b"".join([row[3] for row in rows])),
    )


def _recover(rows: Sequence[tuple[Any, ...]], offsets: NDArray[np.int64]) -> Entries:
    """Return the term frequencies of unsegmented chunks, from their stored weights."""
    stored = sparse_entries([row[3] for row in rows])
    lengths = np.array([row[1] for row in rows], dtype=np.float64)
    pivots = np.array([row[2] for row in rows], dtype=np.float64)
    norms = bm25.norms(lengths, pivots, bm25.STORED_B)[stored.rows]
    frequencies = unpack_frequencies(pack_frequencies(bm25.frequencies(stored.values, norms)))
    return Entries(lexeme_ids=stored.lexeme_ids, offsets=offsets[stored.rows], frequencies=frequencies)
