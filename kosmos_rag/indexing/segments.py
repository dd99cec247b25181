"""Segments of packed postings.

Unsegmented chunks are packed into a new segment, and small segments are merged into larger ones.

Every change is one transaction: a query sees each chunk either unsegmented or in one segment, and a crash changes
nothing. Segments follow each other by sequence number, each at least twice as large as the next: so there are few, and
a chunk is packed again about once for each doubling of the collection (O'Neil et al., "The Log-Structured Merge-Tree",
1996).
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.errors import IndexLocked
from kosmos_rag.core.text import bm25
from kosmos_rag.indexing.catalog import READY, SEGMENT, IndexRecord, delete_indexes, insert_index, list_indexes
from kosmos_rag.retrieval.postings import pack_frequencies, unpack_frequencies
from kosmos_rag.storage.binary import pack_numbers, sparse_entries, unpack_numbers
from kosmos_rag.storage.sql import statement

PACK_BATCH_CHUNKS = 32_768
"""Maximum number of chunks packed at once: bounds memory and the length of the transaction."""
_BATCH_ROWS = 4_096
_BATCH_BYTES = 8 * 1024 * 1024

Packed = tuple[int, bytes, bytes]
"""Lexeme id, offsets of the chunks within the segment, frequencies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunks:
    """The chunks of a segment, by offset.

    Offsets are dense: a merge leaves no room for deleted chunks.
    """

    sequences: NDArray[np.integer]
    lengths: NDArray[np.int32]


def pack_unsegmented(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, *, first_sequence: int
) -> IndexRecord | None:
    """Pack the oldest unsegmented chunks into a segment, in the caller's transaction.

    The result is None if there are none. Publications are serialised and sequence numbers rise with their commits, so
    that later chunks have higher ones.

    Args:
        connection: A connection in a transaction of the tenant.
        first_sequence: The first sequence number after the existing segments.

    Raises IndexLocked.
    """
    scope = {"tenant_id": tenant_id, "collection": collection}
    cursor = connection.cursor(binary=True)
    rows = cursor.execute(statement("unsegmented_batch"), {**scope, "limit": PACK_BATCH_CHUNKS}).fetchall()
    if not rows:
        return None
    sequences = np.array([row[0] for row in rows])
    lengths = np.array([row[1] for row in rows], dtype=np.float64)
    pivots = np.array([row[2] for row in rows])
    weights = sparse_entries([row[3] for row in rows])
    frequencies = bm25.frequencies(weights.values, bm25.norms(lengths, pivots, bm25.STORED_B)[weights.rows])

    last = int(sequences[-1]) + 1
    order = np.argsort(weights.lexeme_ids, kind="stable")
    lexeme_ids = weights.lexeme_ids[order]
    bounds = [0, *(np.flatnonzero(np.diff(lexeme_ids)) + 1).tolist(), len(lexeme_ids)] if len(lexeme_ids) else [0]
    offsets, counts = weights.rows[order], frequencies[order]
    packed = (
        (int(lexeme_ids[start]), pack_numbers(offsets[start:end]), pack_frequencies(counts[start:end]))
        for start, end in pairwise(bounds)
    )
    segment = _segment(collection, first_sequence, last, len(rows))
    _insert_segment(
        connection, tenant_id, segment, _Chunks(sequences=sequences, lengths=lengths.astype(np.int32)), packed
    )
    # A publication deletes unsegmented rows in another order: without the lock the two could deadlock. The lock is
    # taken last, so that publications wait for the deletion only.
    connection.execute(statement("lock_collection"), scope)
    _require_no_overlap(connection, tenant_id, segment)
    connection.execute(statement("delete_segmented_terms"), {**scope, "last_sequence": last})
    return segment


def mergeable(segments: Sequence[IndexRecord]) -> list[IndexRecord]:
    """Return the segments to merge into one.

    From the oldest that is less than twice its successors, to the newest.

    The result is empty if each is at least twice as large as the next.
    """
    rows = [segment.rows for segment in segments]
    start = next((at for at, (older, newer) in enumerate(pairwise(rows)) if older < 2 * newer), None)
    if start is None:
        return []
    while start and rows[start - 1] < 2 * sum(rows[start:]):
        start -= 1
    return list(segments[start:])


def merge_segments(
    connection: psycopg.Connection, tenant_id: uuid.UUID, segments: Sequence[IndexRecord]
) -> IndexRecord:
    """Merge neighbouring segments into one without deleted chunks.

    In the caller's transaction.

    Raises IndexLocked.

    Args:
        connection: Within a transaction of the tenant.
        segments: Neighbours, in order.
    """
    collection, first, last = segments[0].collection, _sequences(segments[0]).start, _sequences(segments[-1]).stop
    assert collection is not None, "a segment is of a collection"
    scope = {"tenant_id": tenant_id, "collection": collection, "ids": [segment.id for segment in segments]}
    bounds = {"first_sequence": first, "last_sequence": last}
    cursor = connection.cursor(binary=True)
    row = cursor.execute(statement("live_sequences"), {**scope, **bounds}).fetchone()
    assert row is not None, "an aggregate has a row"
    new_offsets, chunks = _renumber(
        cursor.execute(statement("chunks_of_segments"), scope).fetchall(), np.frombuffer(row[0], dtype=">i4")
    )
    merged = _segment(collection, first, last, len(chunks.sequences))
    with connection.cursor("kosmos_postings", binary=True) as stream:
        stream.itersize = _BATCH_ROWS
        rows = stream.execute(statement("postings_of_segments"), scope)
        _insert_segment(connection, tenant_id, merged, chunks, _merge_postings(rows, new_offsets))
    delete_indexes(connection, tenant_id, segments)
    _require_no_overlap(connection, tenant_id, merged)
    return merged


def _sequences(segment: IndexRecord) -> range:
    """Return the sequence numbers that a segment covers."""
    assert segment.first_sequence is not None, "a segment has a first sequence number"
    assert segment.last_sequence is not None, "a segment has a last sequence number"
    return range(segment.first_sequence, segment.last_sequence)


def _require_no_overlap(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: IndexRecord) -> None:
    """Raise IndexLocked if another transaction changed these chunks.

    By packing or merging them in the meantime.

    The lock of a maintenance ends with a lost connection, and its last transaction may end a moment later.
    """
    sequences = _sequences(segment)
    for other in list_indexes(connection, tenant_id):
        if other.collection != segment.collection or other.id == segment.id:
            continue
        other_sequences = _sequences(other)
        if other_sequences.start < sequences.stop and sequences.start < other_sequences.stop:
            raise IndexLocked(
                f"segments of collection {segment.collection} have been changed by another process; try again later"
            )


def _renumber(
    segments: Iterable[tuple[uuid.UUID, bytes, bytes]], live: NDArray[np.integer]
) -> tuple[dict[uuid.UUID, NDArray[np.int32]], _Chunks]:
    """Return the new offsets, and the live chunks.

    Offsets by segment and old offset, -1 for deleted chunks.
    """
    new_offsets = {}
    sequences: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int32]] = []
    start = 0
    for index_id, packed_sequences, packed_lengths in segments:
        segment_sequences = unpack_numbers(packed_sequences)
        is_live = np.isin(segment_sequences, live)
        new_offsets[index_id] = np.where(is_live, start + np.cumsum(is_live) - 1, -1).astype(np.int32)
        sequences.append(segment_sequences[is_live])
        lengths.append(unpack_numbers(packed_lengths)[is_live])
        start += len(sequences[-1])
    return new_offsets, _Chunks(sequences=np.concatenate(sequences), lengths=np.concatenate(lengths))


def _merge_postings(
    rows: Iterable[tuple[int, uuid.UUID, bytes, bytes]], new_offsets: dict[uuid.UUID, NDArray[np.int32]]
) -> Iterator[Packed]:
    """Join the postings of each lexeme.

    `rows` are ordered by lexeme, then by segment.
    """
    for lexeme_id, group in groupby(rows, key=itemgetter(0)):
        postings = list(group)
        offsets = np.concatenate([new_offsets[posting[1]][unpack_numbers(posting[2])] for posting in postings])
        frequencies = unpack_frequencies(b"".join(posting[3] for posting in postings))
        is_live = offsets >= 0
        if is_live.any():
            yield lexeme_id, pack_numbers(offsets[is_live]), pack_frequencies(frequencies[is_live])


def _segment(collection: str, first: int, last: int, rows: int) -> IndexRecord:
    return IndexRecord(
        id=uuid.uuid4(),
        kind=SEGMENT,
        state=READY,
        rows=rows,
        collection=collection,
        first_sequence=first,
        last_sequence=last,
    )


def _insert_segment(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    segment: IndexRecord,
    chunks: _Chunks,
    postings: Iterable[Packed],
) -> None:
    scope = {"tenant_id": tenant_id, "id": segment.id}
    insert_index(connection, tenant_id, segment)
    packed = {"sequences": pack_numbers(chunks.sequences), "lengths": pack_numbers(chunks.lengths)}
    connection.execute(statement("insert_segment"), {**scope, **packed})
    for batch in _batches(postings):
        columns = dict(zip(("lexeme_ids", "offsets", "frequencies"), map(list, zip(*batch, strict=True)), strict=True))
        connection.execute(statement("insert_postings"), {**scope, **columns})


def _batches(postings: Iterable[Packed]) -> Iterator[list[Packed]]:
    batch: list[Packed] = []
    size = 0
    for posting in postings:
        batch.append(posting)
        size += len(posting[1]) + len(posting[2])
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
