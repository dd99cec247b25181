"""Packed postings: fetched once, cached within a memory limit, scored here.

Segments are immutable, so cached postings are never stale. Which segments belong to a collection is read with each
query, under row-level security, before a cached one is used.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.cache import ByteCache
from kosmos_rag.storage.binary import unpack_numbers
from kosmos_rag.storage.sql import statement

Key = tuple[uuid.UUID, int]
"""Segment and lexeme; lexeme 0 means the chunks of the segment."""

CHUNKS = 0
MAX_FREQUENCY = 255
"""Positions that a tsvector keeps of one lexeme, and so the largest term frequency."""
MARGIN = 1e-5
"""Upper bound of the relative error of scores in single precision."""
_GROUPS = 16
"""Groups of scores for each wanted one. Hardly two of the best are then in one group."""
_ENTRY_BYTES = 300
"""Memory of an entry without its arrays."""


def pack_frequencies(frequencies: NDArray[np.number]) -> bytes:
    """Return term frequencies as one byte each."""
    packed: bytes = np.minimum(frequencies, MAX_FREQUENCY).astype(np.uint8).tobytes()
    return packed


def unpack_frequencies(packed: bytes) -> NDArray[np.uint8]:
    """Return what `pack_frequencies` packed, as a view of the bytes."""
    return np.frombuffer(packed, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Posting:
    """The chunks of a segment that contain a term, or all chunks."""

    offsets: NDArray[np.int32]
    """Offsets within the segment, ascending. Of CHUNKS: sequence numbers by offset."""
    frequencies: NDArray[np.uint8] | NDArray[np.int32]
    """Term frequency of each chunk. Of CHUNKS: lengths by offset."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the entry."""
        return self.offsets.nbytes + self.frequencies.nbytes + _ENTRY_BYTES


_NONE = Posting(offsets=np.empty(0, dtype=np.int32), frequencies=np.empty(0, dtype=np.uint8))


def nth_score(scores: NDArray[np.floating], count: int) -> float:
    """Return the largest score that `count` of these reach; minus infinity if there are fewer."""
    return float(np.partition(scores, -count)[-count]) if count < len(scores) else -np.inf


def reached_score(scores: NDArray[np.floating], count: int) -> float:
    """Return a score that `count` of these reach, hardly less than `nth_score`.

    Of many scores it compares the largest one of each group: a partition of all takes several times as long.
    """
    groups = _GROUPS * count
    rows = len(scores) // groups
    return nth_score(scores[: rows * groups].reshape(rows, groups).max(axis=0) if rows > 1 else scores, count)


class PostingsCache(ByteCache[Key, Posting]):
    """LRU cache of postings with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes, lambda posting: posting.bytes)


class PostingsRequest:
    """Request of the postings of one segment.

    Missing ones are queried when it is created; `fetch` waits for them.
    """

    def __init__(
        self,
        connection: psycopg.Connection,
        tenant_id: uuid.UUID,
        index_id: uuid.UUID,
        lexeme_ids: Iterable[int],
        cache: PostingsCache,
    ) -> None:
        keys: list[Key] = [(index_id, CHUNKS), *((index_id, lexeme_id) for lexeme_id in lexeme_ids)]
        self._index_id = index_id
        self._cache = cache
        self._cached = cache.get(keys)
        self._missing = [key[1] for key in keys if key not in self._cached and key[1] != CHUNKS]
        values = {"tenant_id": tenant_id, "index_id": index_id, "lexeme_ids": self._missing}
        self._postings = self._chunks = None
        if self._missing:
            self._postings = connection.cursor(binary=True).execute(statement("postings"), values)
        if keys[0] not in self._cached:
            self._chunks = connection.cursor(binary=True).execute(statement("segment_chunks"), values)

    def fetch(self) -> dict[int, Posting]:
        """Return the postings by lexeme.

        Terms absent from the segment have an empty posting, which is cached too.
        """
        read = dict.fromkeys(self._missing, _NONE)
        for lexeme_id, offsets, frequencies in self._postings or ():
            read[lexeme_id] = Posting(offsets=unpack_numbers(offsets), frequencies=unpack_frequencies(frequencies))
        for sequences, lengths in self._chunks or ():
            read[CHUNKS] = Posting(offsets=unpack_numbers(sequences), frequencies=unpack_numbers(lengths))
        self._cache.put({(self._index_id, lexeme_id): posting for lexeme_id, posting in read.items()})
        return {key[1]: posting for key, posting in self._cached.items()} | read


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """BM25 scores of the chunks of a segment.

    Approximate, exact on demand.
    """

    collection: str
    chunks: Posting
    """Sequence numbers and lengths by offset."""
    average: float
    """Mean length of the chunks of the collection, in lexemes."""
    terms: tuple[tuple[float, Posting], ...]
    """Inverse document frequency and posting of each term; none is empty."""
    postings: Posting
    """The postings of all terms, one after the other."""
    scores: NDArray[np.float64]
    """By offset."""

    @classmethod
    def from_postings(
        cls, collection: str, chunks: Posting, average: float, terms: Iterable[tuple[float, Posting]]
    ) -> "SegmentScores":
        """Score every chunk that contains a term.

        Args:
            chunks: Sequence numbers and lengths of all chunks of the segment.
            average: Mean length of the collection's chunks, in lexemes.
            terms: Inverse document frequency and posting of each term.
        """
        nonempty = tuple([(idf, posting) for idf, posting in terms if len(posting.offsets)])
        # All terms at once: a question has a dozen, and each call of NumPy costs as much as hundreds of postings.
        postings = Posting(
            offsets=np.concatenate([_NONE.offsets, *(posting.offsets for _, posting in nonempty)]),
            frequencies=np.concatenate([_NONE.frequencies, *(posting.frequencies for _, posting in nonempty)]),
        )
        idfs = np.repeat(
            np.array([idf for idf, _ in nonempty], dtype=np.float32), [len(posting.offsets) for _, posting in nonempty]
        )
        norms = bm25.norms(chunks.frequencies.astype(np.float32), np.float32(average))[postings.offsets]
        weights = bm25.contributions(postings.frequencies.astype(np.float32), norms, idfs)
        scores = np.bincount(postings.offsets, weights=weights, minlength=len(chunks.offsets))
        return cls(
            collection=collection,
            chunks=chunks,
            average=average,
            terms=nonempty,
            postings=postings,
            scores=scores.astype(np.float64, copy=False),
        )

    def restrict(self, sequences: Sequence[int]) -> None:
        """Set the scores of all chunks but these to 0.

        Args:
            sequences: sequence numbers of the chunks that keep their score.
        """
        stored = self.chunks.offsets
        at = np.searchsorted(stored, np.array(sorted(sequences), dtype=np.int32))
        inside = at[at < len(stored)]
        positions = inside[np.isin(stored[inside], sequences)]
        scores = self.scores[positions]
        self.scores[:] = 0
        self.scores[positions] = scores

    def best(self, count: int) -> NDArray[np.intp]:
        """Return offsets of at least the `count` best chunks, unordered.

        All chunks with a term if there are fewer.
        """
        floor = reached_score(self.scores, count) * (1 - 2 * MARGIN)
        return np.flatnonzero(self.scores >= floor) if floor > 0 else np.flatnonzero(self.scores)

    def exact(self, offsets: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the scores of the chunks at `offsets` in double precision.

        Contributions are added in order of size. The order of lexeme ids would depend on documents that the reader may
        not see.
        """
        norms = bm25.norms(self.chunks.frequencies[offsets].astype(np.float64), self.average)
        columns = np.full(len(self.scores), -1, dtype=np.int32)
        columns[offsets] = np.arange(len(offsets))
        column = columns[self.postings.offsets]
        positions = np.flatnonzero(column >= 0)
        column, counts = column[positions], [len(posting.offsets) for _, posting in self.terms]
        term = np.repeat(np.arange(len(counts)), counts)[positions]
        idfs = np.array([idf for idf, _ in self.terms], dtype=np.float64)
        frequencies = self.postings.frequencies[positions].astype(np.float64)
        added = np.zeros((len(counts), len(offsets)))
        added[term, column] = bm25.contributions(frequencies, norms[column], idfs[term])
        added.sort(axis=0)
        total = np.zeros(len(offsets))
        for contributions in added:
            total += contributions
        return total


def best_offsets(segments: list[SegmentScores], count: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return segment number and offset of the best `count` chunks.

    Possible ties are included. Best first.
    """
    offsets = [segment.best(count) for segment in segments]
    segment_numbers = np.repeat(np.arange(len(segments)), [len(entry) for entry in offsets])
    scores = np.concatenate([segment.scores[entry] for segment, entry in zip(segments, offsets, strict=True)])
    flat = np.concatenate(offsets)
    order = np.lexsort((flat, segment_numbers, -scores))
    if len(order) > count:
        last = scores[order[count - 1]]
        order = order[: count + int(np.count_nonzero(scores[order[count:]] >= last * (1 - MARGIN)))]
    return segment_numbers[order], flat[order]
