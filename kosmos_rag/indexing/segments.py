"""Segments of packed postings: the tail is packed into a new one, and small ones are merged into larger.

Every change is one transaction: a reader sees the chunks in the tail or in the segment, and after a crash the corpus is
as it was. Segments lie one after the other by serial, each at least twice as large as the next: so there are few of
them, and a chunk is packed again only about once for each doubling of the corpus (O'Neil et al., "The Log-Structured
Merge-Tree", 1996).
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
from kosmos_rag.indexing import catalog as catalogue
from kosmos_rag.indexing.catalog import READY, SEGMENT, Entry
from kosmos_rag.storage.binary import pack_frequencies, pack_numbers, sparse_entries, unpack_frequencies, unpack_numbers
from kosmos_rag.storage.sql import statement

PIECE_CHUNKS = 32_768
"""Chunks packed at once at most: bounds memory and the length of the transaction."""
_BATCH_ROWS = 4_096
_BATCH_BYTES = 8 * 1024 * 1024

Packed = tuple[int, bytes, bytes]
"""Lexeme id, offsets of the chunks within the segment, frequencies."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chunks:
    """The chunks of a segment, by offset. Offsets are dense, so that what was deleted takes no room after a merge."""

    serials: NDArray[np.integer]
    lengths: NDArray[np.int32]


def pack_tail(connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str, *, covered: int) -> Entry | None:
    """Pack the oldest chunks of the tail into a segment, in the caller's transaction; None where there are none.

    `covered` is the serial up to which segments exist. Publications take turns and serials rise with their commits, so
    whatever is to come has a serial above those that are seen here. Raises IndexLocked.
    """
    scope = {"tenant_id": tenant_id, "collection": collection}
    cursor = connection.cursor(binary=True)
    rows = cursor.execute(statement("unsegmented_batch"), {**scope, "limit": PIECE_CHUNKS}).fetchall()
    if not rows:
        return None
    serials = np.array([row[0] for row in rows])
    lengths = np.array([row[1] for row in rows], dtype=np.float64)
    pivots = np.array([row[2] for row in rows])
    weights = sparse_entries([row[3] for row in rows])
    frequencies = bm25.frequencies(weights.values, bm25.norms(lengths, pivots)[weights.rows])

    last = int(serials[-1]) + 1
    order = np.argsort(weights.lexeme_ids, kind="stable")
    lexeme_ids = weights.lexeme_ids[order]
    bounds = [0, *(np.flatnonzero(np.diff(lexeme_ids)) + 1).tolist(), len(lexeme_ids)] if len(lexeme_ids) else [0]
    held, counted = weights.rows[order], frequencies[order]
    packed = (
        (int(lexeme_ids[start]), pack_numbers(held[start:end]), pack_frequencies(counted[start:end]))
        for start, end in pairwise(bounds)
    )
    entry = _entry(collection, covered, last, len(rows))
    _write(connection, tenant_id, entry, _Chunks(serials=serials, lengths=lengths.astype(np.int32)), packed)
    # A publication deletes rows of the tail in an order of its own: without taking turns the two could wait for each
    # other. Last, so that publications wait for no more than this.
    connection.execute(statement("lock_collection"), scope)
    _require_alone(connection, tenant_id, entry)
    connection.execute(statement("delete_segmented_terms"), {**scope, "last_sequence": last})
    return entry


def mergeable(segments: Sequence[Entry]) -> list[Entry]:
    """Return the segments to merge into one: from the oldest that is less than twice what follows it, to the newest.

    None where each is at least twice as large as the next.
    """
    rows = [entry.rows for entry in segments]
    start = next((at for at, (older, newer) in enumerate(pairwise(rows)) if older < 2 * newer), None)
    if start is None:
        return []
    while start and rows[start - 1] < 2 * sum(rows[start:]):
        start -= 1
    return list(segments[start:])


def merge(connection: psycopg.Connection, tenant_id: uuid.UUID, segments: Sequence[Entry]) -> Entry:
    """Merge neighbouring segments into one without what has been deleted, in the caller's transaction.

    Raises IndexLocked.
    """
    collection, first, last = segments[0].collection, _serials(segments[0]).start, _serials(segments[-1]).stop
    assert collection is not None, "a segment is of a collection"
    scope = {"tenant_id": tenant_id, "collection": collection, "ids": [entry.id for entry in segments]}
    bounds = {"first_sequence": first, "last_sequence": last}
    cursor = connection.cursor(binary=True)
    row = cursor.execute(statement("live_sequences"), {**scope, **bounds}).fetchone()
    assert row is not None, "an aggregate has a row"
    renumbered, chunks = _renumbered(
        cursor.execute(statement("chunks_of_segments"), scope).fetchall(), np.frombuffer(row[0], dtype=">i4")
    )
    entry = _entry(collection, first, last, len(chunks.serials))
    with connection.cursor("kosmos_postings", binary=True) as stream:
        stream.itersize = _BATCH_ROWS
        rows = stream.execute(statement("postings_of_segments"), scope)
        _write(connection, tenant_id, entry, chunks, _merged(rows, renumbered))
    catalogue.delete(connection, tenant_id, segments)
    _require_alone(connection, tenant_id, entry)
    return entry


def _serials(segment: Entry) -> range:
    """Return the serials that a segment covers."""
    assert segment.first_sequence is not None, "a segment has a first serial"
    assert segment.last_sequence is not None, "a segment has a last serial"
    return range(segment.first_sequence, segment.last_sequence)


def _require_alone(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: Entry) -> None:
    """Raise IndexLocked where another transaction has packed or merged these chunks in the meantime.

    The lock of a maintenance ends with its session, and its last transaction may end a moment later.
    """
    mine = _serials(segment)
    for other in catalogue.entries(connection, tenant_id):
        if other.collection != segment.collection or other.id == segment.id:
            continue
        theirs = _serials(other)
        if theirs.start < mine.stop and mine.start < theirs.stop:
            raise IndexLocked(
                f"segments of collection {segment.collection} have been changed by another process; try again later"
            )


def _renumbered(
    segments: Iterable[tuple[uuid.UUID, bytes, bytes]], live: NDArray[np.integer]
) -> tuple[dict[uuid.UUID, NDArray[np.int32]], _Chunks]:
    """Return the new offset of each chunk by segment and old offset, -1 where it is gone, and the chunks that stay."""
    renumbered = {}
    serials: list[NDArray[np.int32]] = []
    lengths: list[NDArray[np.int32]] = []
    start = 0
    for index_id, packed_serials, packed_lengths in segments:
        held = unpack_numbers(packed_serials)
        kept = np.isin(held, live)
        renumbered[index_id] = np.where(kept, start + np.cumsum(kept) - 1, -1).astype(np.int32)
        serials.append(held[kept])
        lengths.append(unpack_numbers(packed_lengths)[kept])
        start += len(serials[-1])
    return renumbered, _Chunks(serials=np.concatenate(serials), lengths=np.concatenate(lengths))


def _merged(
    rows: Iterable[tuple[int, uuid.UUID, bytes, bytes]], renumbered: dict[uuid.UUID, NDArray[np.int32]]
) -> Iterator[Packed]:
    """Join the postings of each lexeme; `rows` come by lexeme, and within one in the order of the segments."""
    for lexeme_id, parts in groupby(rows, key=itemgetter(0)):
        held = list(parts)
        offsets = np.concatenate([renumbered[part[1]][unpack_numbers(part[2])] for part in held])
        frequencies = unpack_frequencies(b"".join(part[3] for part in held))
        kept = offsets >= 0
        if kept.any():
            yield lexeme_id, pack_numbers(offsets[kept]), pack_frequencies(frequencies[kept])


def _entry(collection: str, first: int, last: int, rows: int) -> Entry:
    return Entry(
        id=uuid.uuid4(),
        kind=SEGMENT,
        state=READY,
        rows=rows,
        collection=collection,
        first_sequence=first,
        last_sequence=last,
    )


def _write(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    entry: Entry,
    chunks: _Chunks,
    postings: Iterable[Packed],
) -> None:
    scope = {"tenant_id": tenant_id, "id": entry.id}
    catalogue.insert(connection, tenant_id, entry)
    packed = {"sequences": pack_numbers(chunks.serials), "lengths": pack_numbers(chunks.lengths)}
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
