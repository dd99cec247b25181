"""Blocks: vectors and postings of the chunks that a search may find, in memory.

A block has layers, which never change. A block that follows a change has the layers of the one before, without the
chunks that are deleted, and a small layer with those that are new. Small layers are merged.
"""

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.retrieval.postings import Posting, SegmentScores, best_offsets
from kosmos_rag.retrieval.snapshot import CollectionStats

_MARGIN = 1e-5
"""Score below that of the last candidate up to which products are computed again, in the order of the server."""
_LANES = 8
"""Single-precision numbers of a register of 256 bits."""
_ROWS = 512
"""Vectors that are converted at once: they stay in the cache of the processor."""
_EXPONENT = np.float32(2.0**112)
"""Ratio of a number in half precision to the single-precision number with the same exponent bits."""
_SIGN_AND_NUMBER = np.int32(-0x70000001)
_BATCH = 5_000
_ID_BYTES = 16
_UUID_BYTES = 150
"""Memory of an id in Python, with its entry in a dictionary."""

NUMBERS: Iterator[int] = itertools.count()
"""Numbers of parts and blocks of the process."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CollectionRows:
    """Neighbouring rows of a part: the chunks of one collection, with their postings by lexeme."""

    first: int
    """The first row."""
    chunks: Posting
    """Sequence numbers, ascending, and lengths."""
    lexeme_ids: NDArray[np.int64]
    """Ascending."""
    starts: NDArray[np.intp]
    """Where the postings of each lexeme begin, and where the last ones end."""
    offsets: NDArray[np.int32]
    """Ascending for each lexeme; 0 is the first row."""
    frequencies: NDArray[np.uint8]

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self.lexeme_ids, self.starts, self.offsets, self.frequencies)
        return self.chunks.bytes + sum(array.nbytes for array in arrays)

    def find(self, lexeme_id: int) -> Posting:
        """Return the posting of a lexeme, which may be empty."""
        at = int(np.searchsorted(self.lexeme_ids, lexeme_id))
        exists = at < len(self.lexeme_ids) and self.lexeme_ids[at] == lexeme_id
        start, end = (self.starts[at], self.starts[at + 1]) if exists else (0, 0)
        return Posting(offsets=self.offsets[start:end], frequencies=self.frequencies[start:end])

    def find_sequences(self, sequences: NDArray[np.int32]) -> NDArray[np.intp]:
        """Return the rows of the part that have these sequence numbers."""
        stored = self.chunks.offsets
        at = np.searchsorted(stored, sequences)
        inside = at < len(stored)
        rows: NDArray[np.intp] = self.first + at[inside][stored[at[inside]] == sequences[inside]]
        return rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Chunks with their vectors and postings."""

    ids: NDArray[np.uint8]
    """The 16 bytes of each chunk id."""
    vectors: NDArray[np.float16] | None
    """Normalised, as the server stores them; None for searches without an embedding."""
    without_vector: NDArray[np.intp]
    """Rows of chunks that have no vector in the space."""
    collections: Mapping[str, CollectionRows]
    number: int = field(default_factory=NUMBERS.__next__)
    """Identifies the part in the cache of passages."""
    _uuids: dict[int, UUID] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Approximate memory of the part."""
        vectors = 0 if self.vectors is None else self.vectors.nbytes
        rows = sum(rows.bytes for rows in self.collections.values())
        return vectors + rows + self.ids.nbytes + _UUID_BYTES * len(self._uuids)

    def chunk_id(self, row: int) -> UUID:
        """Return the chunk id of a row. Those that were asked for are kept."""
        chunk_id = self._uuids.get(row)
        if chunk_id is None:
            chunk_id = self._uuids[row] = UUID(bytes=self.ids[row].tobytes())
        return chunk_id


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Layer:
    """A part of a block, without the chunks that are deleted."""

    part: Part
    deleted: NDArray[np.bool_] | None = None
    """Rows that are deleted; None for none."""

    @property
    def rows(self) -> int:
        """Chunks of the layer."""
        return len(self.part.ids) - (0 if self.deleted is None else int(np.count_nonzero(self.deleted)))

    def without(self, sequences: Mapping[str, NDArray[np.int32]]) -> "Layer":
        """Return the layer without chunks, by collection and sequence number."""
        deleted_rows = [
            rows.find_sequences(sequences[name]) for name, rows in self.part.collections.items() if name in sequences
        ]
        if not sum(map(len, deleted_rows)):
            return self
        deleted = np.zeros(len(self.part.ids), dtype=np.bool_) if self.deleted is None else self.deleted.copy()
        deleted[np.concatenate(deleted_rows)] = True
        return Layer(part=self.part, deleted=deleted)

    def inner_products(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the inner products of all rows.

        Minus infinity for deleted rows. The additions are in any order.

        Args:
            query: Numbers in half precision.
        """
        vectors = self.part.vectors
        assert vectors is not None, "the block is of searches by an embedding"
        scores = np.empty(len(vectors), dtype=np.float32)
        # NumPy converts half precision by a function call for each number. The bits of a number, shifted to the places
        # of single precision, are those of the number divided by 2^112, which the query makes up for.
        scaled = query * _EXPONENT
        words, buffer = vectors.view(np.int16), np.empty((_ROWS, vectors.shape[1]), dtype=np.int32)
        for start in range(0, len(vectors), _ROWS):
            converted = buffer[: min(_ROWS, len(vectors) - start)]
            np.copyto(converted, words[start : start + _ROWS])
            np.left_shift(converted, 13, out=converted)
            np.bitwise_and(converted, _SIGN_AND_NUMBER, out=converted)
            # In this thread: a product by BLAS wakes threads that wait for the next one at full load.
            np.einsum("ij,j->i", converted.view(np.float32), scaled, out=scores[start : start + _ROWS])
        scores[self.part.without_vector] = -np.inf
        if self.deleted is not None:
            scores[self.deleted] = -np.inf
        return scores


def inner_products(vectors: NDArray[np.floating], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return inner products, added in the order of pgvector on x86-64.

    It adds the products of eight dimensions at a time, and halves the eight sums. The product of two half-precision
    numbers is exact in single precision, so the results are those of the server to the last bit.

    Args:
        vectors: Rows of numbers in half precision.
        query: Numbers in half precision.
    """
    products = vectors.astype(np.float32) * query
    lane_end = len(query) // _LANES * _LANES
    sums = np.add.reduce(products[:, :lane_end].reshape(len(products), -1, _LANES), axis=1)
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    total: NDArray[np.float32] = sums[:, 0]
    for dimension in range(lane_end, len(query)):
        total = total + products[:, dimension]
    return total


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """The last change of a collection that a block has followed."""

    epoch: int
    """Its number; another history may repeat it."""
    state: UUID
    """Its identity."""


Row = tuple[Part, int, float]
"""Part, row and score of a chunk."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """What the retrievers of a search score in memory."""

    space_id: UUID
    """Of the vectors."""
    layers: tuple[Layer, ...]
    changes: Mapping[str, Change]
    """Of each collection that may answer, also of those without readable chunks."""
    lineage: int = field(default_factory=NUMBERS.__next__)
    """The same for a block and those that follow it."""
    following: threading.Lock = field(default_factory=threading.Lock)
    """Held while a block is made that follows this one."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the block."""
        return sum(layer.part.bytes for layer in self.layers)

    def nearest(self, vector: NDArray[np.floating], count: int) -> list[Row]:
        """Return the chunks with the largest inner products.

        They are in any order, and those equal to the last are included.

        Args:
            vector: Embedding of the query; it is rounded as the server rounds it.
            count: Chunks to return.
        """
        query = vector.astype(np.float16).astype(np.float32)
        approximate = [layer.inner_products(query) for layer in self.layers]
        at_least = _reached([scores for scores in approximate if len(scores)], count) - _MARGIN
        nearest: list[tuple[Part, NDArray[np.intp], NDArray[np.float32]]] = []
        for layer, scores in zip(self.layers, approximate, strict=True):
            rows = np.flatnonzero((scores >= at_least) & (scores > -np.inf))
            assert layer.part.vectors is not None
            # Many chunks may be equal to the last.
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH]
                nearest.append((layer.part, batch, inner_products(layer.part.vectors[batch], query)))
        least = _reached([exact for *_, exact in nearest], count)
        return [
            (part, row, score)
            for part, rows, exact in nearest
            for row, score in zip(rows[exact >= least].tolist(), exact[exact >= least].tolist(), strict=True)
        ]


def _reached(scores: Sequence[NDArray[np.float32]], count: int) -> float:
    """Return the largest score that `count` of these reach; minus infinity if there are fewer."""
    if not scores:
        return -np.inf
    flat = scores[0] if len(scores) == 1 else np.concatenate(scores)
    return float(np.partition(flat, -count)[-count]) if count < len(flat) else -np.inf


def score_postings(block: Block, collections: Sequence[CollectionStats], count: int) -> tuple[list[Row], int]:
    """Return the chunks with the largest scores by BM25, and how many postings were read.

    Possible ties with the last are included, in any order.

    Args:
        collections: Statistics of the collections, with the weights of the terms.
        count: Chunks to return.
    """
    segments, owners = [], []
    for stats in collections:
        for layer in block.layers:
            rows = layer.part.collections.get(stats.collection)
            if rows is None or not stats.weights:
                continue
            terms = ((weight, rows.find(lexeme_id)) for lexeme_id, weight in stats.weights.items())
            segment = SegmentScores.from_postings(stats.collection, rows.chunks, stats.average, terms)
            if segment.terms:
                if layer.deleted is not None:
                    segment.scores[layer.deleted[rows.first : rows.first + len(segment.scores)]] = 0
                segments.append(segment)
                owners.append((layer.part, rows.first))
    best: list[Row] = []
    if segments:
        numbers, offsets = best_offsets(segments, count)
        for number, (part, first) in enumerate(owners):
            of_this = offsets[numbers == number]
            exact = segments[number].exact(of_this).tolist()
            best += [(part, first + offset, score) for offset, score in zip(of_this.tolist(), exact, strict=True)]
    return best, sum(segment.read for segment in segments)
