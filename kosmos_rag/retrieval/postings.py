"""Packed postings in the process: read once, kept within bounded memory, scored without the database.

Segments are immutable, so what is kept of them is never stale. That a segment is part of the corpus at all is read
with each question, under row-level security, before anything kept of it is used.
"""

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import psycopg
from numpy.typing import NDArray

from kosmos_rag.core.text import bm25
from kosmos_rag.storage.binary import unpack_frequencies, unpack_numbers
from kosmos_rag.storage.sql import statement

Key = tuple[uuid.UUID, int]
"""A segment and a lexeme; lexeme 0 is the segment's chunks themselves."""

CHUNKS = 0
MARGIN = 1e-5
"""Relative error of scores in single precision, generously."""
_ENTRY_BYTES = 300
"""What an entry costs beside its numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Posting:
    """The chunks of a segment that hold a term, or all of them."""

    offsets: NDArray[np.int32]
    """Within the segment, ascending. Of CHUNKS: the serials by offset."""
    frequencies: NDArray[np.uint8] | NDArray[np.int32]
    """How often each holds the term. Of CHUNKS: the lengths by offset."""

    @property
    def bytes(self) -> int:
        """Memory that the entry takes, about."""
        return self.offsets.nbytes + self.frequencies.nbytes + _ENTRY_BYTES


_NONE = Posting(offsets=np.empty(0, dtype=np.int32), frequencies=np.empty(0, dtype=np.uint8))


class PostingsCache:
    """Least recently used postings, up to a number of bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[Key, Posting] = OrderedDict()
        self.hits = self.misses = 0

    def take(self, keys: Iterable[Key]) -> dict[Key, Posting]:
        """Return those of the keys that are kept."""
        found = {}
        with self._lock:
            for key in keys:
                if (entry := self._entries.get(key)) is not None:
                    self._entries.move_to_end(key)
                    found[key] = entry
                    self.hits += 1
                else:
                    self.misses += 1
        return found

    def keep(self, entries: Mapping[Key, Posting]) -> None:
        """Keep these, and drop the least recently used where they do not fit. What is larger than all is not kept."""
        with self._lock:
            for key, entry in entries.items():
                if key in self._entries or entry.bytes > self._max_bytes:
                    continue
                self._entries[key] = entry
                self._bytes += entry.bytes
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.bytes

    @property
    def bytes(self) -> int:
        """Memory in use, about."""
        return self._bytes


class PostingsRequest:
    """Postings of one segment on their way: what the cache has not is asked of the database, without waiting for it."""

    def __init__(
        self,
        connection: psycopg.Connection,
        tenant_id: uuid.UUID,
        index_id: uuid.UUID,
        lexeme_ids: Iterable[int],
        cache: PostingsCache,
    ) -> None:
        wanted: list[Key] = [(index_id, CHUNKS), *((index_id, lexeme_id) for lexeme_id in lexeme_ids)]
        self._index_id = index_id
        self._cache = cache
        self._found = cache.take(wanted)
        self._missing = [key[1] for key in wanted if key not in self._found and key[1] != CHUNKS]
        values = {"tenant_id": tenant_id, "index_id": index_id, "lexeme_ids": self._missing}
        self._postings = self._chunks = None
        if self._missing:
            self._postings = connection.cursor(binary=True).execute(statement("postings"), values)
        if wanted[0] not in self._found:
            self._chunks = connection.cursor(binary=True).execute(statement("segment_chunks"), values)

    def fetch(self) -> dict[int, Posting]:
        """Wait for the answer, by lexeme. A term that the segment has not has an empty posting, kept as well."""
        read = dict.fromkeys(self._missing, _NONE)
        for lexeme_id, offsets, frequencies in self._postings or ():
            read[lexeme_id] = Posting(offsets=unpack_numbers(offsets), frequencies=unpack_frequencies(frequencies))
        for serials, lengths in self._chunks or ():
            read[CHUNKS] = Posting(offsets=unpack_numbers(serials), frequencies=unpack_numbers(lengths))
        self._cache.keep({(self._index_id, lexeme_id): posting for lexeme_id, posting in read.items()})
        return {key[1]: posting for key, posting in self._found.items()} | read


@dataclass(frozen=True, kw_only=True)
class SegmentScores:
    """BM25 of all chunks of a segment for one question: first nearly, in single precision, then exactly on demand."""

    collection: str
    chunks: Posting
    """Serials and lengths by offset."""
    average: float
    """Mean length of the chunks of the corpus, in lexemes."""
    terms: tuple[tuple[float, Posting], ...]
    """Inverse document frequency and posting of each term, by lexeme id ascending; none is empty."""
    scores: NDArray[np.float32]
    """By offset."""

    @classmethod
    def of(
        cls, collection: str, chunks: Posting, average: float, terms: Iterable[tuple[float, Posting]]
    ) -> "SegmentScores":
        """Score every chunk that holds a term."""
        scores = np.zeros(len(chunks.offsets), dtype=np.float32)
        held = tuple((idf, posting) for idf, posting in terms if len(posting.offsets))
        for idf, posting in held:
            at = posting.offsets.astype(np.intp)
            norms = bm25.norms(chunks.frequencies[at].astype(np.float32), np.float32(average))
            # A chunk stands once in a posting, so the sum may be taken in place.
            scores[at] += bm25.contributions(posting.frequencies.astype(np.float32), norms, np.float32(idf))
        return cls(collection=collection, chunks=chunks, average=average, terms=held, scores=scores)

    def keep(self, serials: Sequence[int]) -> None:
        """Leave out all chunks but those with these serials: no others are in reach."""
        held = self.chunks.offsets
        at = np.searchsorted(held, np.array(sorted(serials), dtype=np.int32))
        inside = at[at < len(held)]
        kept = inside[np.isin(held[inside], serials)]
        scores = self.scores[kept]
        self.scores[:] = 0
        self.scores[kept] = scores

    @property
    def read(self) -> int:
        """How many postings were read."""
        return sum(len(posting.offsets) for _, posting in self.terms)

    def best(self, count: int) -> NDArray[np.intp]:
        """Return offsets of at least the `count` best chunks, or of all that hold a term; in no order."""
        floor = self._floor(count) * (1 - 2 * MARGIN)
        return np.flatnonzero(self.scores >= floor) if floor > 0 else np.flatnonzero(self.scores)

    def _floor(self, count: int) -> float:
        """Return a score that `count` chunks reach, from those that hold the rarest terms; 0 where so many do not."""
        gathered: list[NDArray[np.int32]] = []
        enough = 0
        for posting in sorted((posting for _, posting in self.terms), key=lambda posting: len(posting.offsets)):
            gathered.append(posting.offsets)
            enough += len(posting.offsets)
            if enough < 4 * count:
                continue
            values = self.scores[np.unique(np.concatenate(gathered))]
            if len(values) >= count:
                return float(np.partition(values, len(values) - count)[len(values) - count])
        return 0.0

    def exact(self, offsets: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the scores of the chunks at `offsets` in double precision.

        Contributions are added in the order of their size: that of ids depends on documents that a reader may not read.
        """
        norms = bm25.norms(self.chunks.frequencies[offsets].astype(np.float64), self.average)
        added = np.zeros((len(self.terms), len(offsets)))
        for row, (idf, posting) in enumerate(self.terms):
            at = np.searchsorted(posting.offsets, offsets)
            at[at == len(posting.offsets)] = 0
            frequencies = np.where(posting.offsets[at] == offsets, posting.frequencies[at], 0).astype(np.float64)
            added[row] = bm25.contributions(frequencies, norms, idf)
        added.sort(axis=0)
        total = np.zeros(len(offsets))
        for contributions in added:
            total += contributions
        return total
