"""Blocks: vectors and postings of the chunks that a search may find, in memory.

A block has layers, which never change. A block that follows a change has the layers of the one before, without the
chunks that are deleted, and a small layer with those that are new. Small layers are merged.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.retrieval.postings import Posting, SegmentScores, best_offsets, nth_score, reached_score
from kosmos_rag.retrieval.snapshot import CollectionStats

multiply: Callable[..., Any] | None
try:
    import simsimd

    multiply = simsimd.cdist
except ImportError:  # Of the extra `simd`. NumPy takes about four times as long.
    multiply = None

_MARGIN = 1e-5
"""Bound of what the roundings of an inner product of two normalised vectors add up to, in any order."""
_LANES = 8
"""Single-precision numbers of a register of 256 bits."""
_REGISTER = np.dtype((np.void, 4 * _LANES))
_ROWS = 256
"""Codes that are converted at once: they leave most of the processor's cache to all else that a search uses."""
_LEVELS = 127
"""Largest code of a number."""
_EXPONENT = np.float32(2.0**112)
"""Ratio of a number in half precision to the single-precision number with the same exponent bits."""
_SIGN_AND_NUMBER = np.int32(-0x70000001)
_BATCH = 5_000
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

    def find(self, weights: Mapping[int, float]) -> list[tuple[float, Posting]]:
        """Return weight and posting of those lexemes that the rows have.

        Args:
            weights: By id, ascending.
        """
        ids = np.fromiter(weights, dtype=np.int64, count=len(weights))
        positions = np.searchsorted(self.lexeme_ids, ids)
        terms = []
        for lexeme_id, weight, at in zip(weights, weights.values(), positions.tolist(), strict=True):
            if at < len(self.lexeme_ids) and self.lexeme_ids[at] == lexeme_id:
                start, end = self.starts[at], self.starts[at + 1]
                terms.append(
                    (weight, Posting(offsets=self.offsets[start:end], frequencies=self.frequencies[start:end]))
                )
        return terms

    def find_sequences(self, sequences: NDArray[np.int32]) -> NDArray[np.intp]:
        """Return the rows of the part that have these sequence numbers."""
        stored = self.chunks.offsets
        at = np.searchsorted(stored, sequences)
        inside = at < len(stored)
        rows: NDArray[np.intp] = self.first + at[inside][stored[at[inside]] == sequences[inside]]
        return rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Vectors:
    """Vectors, with codes of eight bits a number to find the nearest by."""

    exact: NDArray[np.float16]
    """Normalised, as the server stores them."""
    codes: NDArray[np.int8]
    steps: NDArray[np.float32]
    """What a code of one means in each vector."""
    lengths: NDArray[np.float32]
    """Lengths of the vectors of the codes."""
    errors: NDArray[np.float32]
    """Distance of each vector from that of its codes."""

    @classmethod
    def encode(cls, exact: NDArray[np.float16]) -> "Vectors":
        """Return vectors with their codes."""
        codes = np.empty(exact.shape, dtype=np.int8)
        steps, lengths, errors = np.empty((3, len(exact)), dtype=np.float32)
        for start in range(0, len(exact), _BATCH):
            batch = slice(start, start + _BATCH)
            numbers = exact[batch].astype(np.float32)
            largest = np.abs(numbers).max(axis=1, initial=0)
            steps[batch] = of_batch = np.where(largest > 0, largest, 1) / np.float32(_LEVELS)
            codes[batch] = rounded = np.rint(numbers / of_batch[:, None])
            coded = rounded * of_batch[:, None]
            lengths[batch], errors[batch] = np.linalg.norm(coded, axis=1), np.linalg.norm(numbers - coded, axis=1)
        return cls(exact=exact, codes=codes, steps=steps, lengths=lengths, errors=errors)

    @property
    def bytes(self) -> int:
        """Memory of the arrays."""
        arrays = (self.exact, self.codes, self.steps, self.lengths, self.errors)
        return sum(array.nbytes for array in arrays)

    def bound_products(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return about the inner products with a query, and the largest errors of them.

        Source of the errors: the inequality of Cauchy and Schwarz.
        """
        errors = np.float32(np.linalg.norm(query)) * self.errors + np.float32(_MARGIN)
        if multiply is None or not len(self.codes):
            return self._multiply(query), errors
        # As `encode` does it for thousands.
        step = np.float32(np.abs(query).max(initial=0) or 1) / np.float32(_LEVELS)
        codes = np.rint(query / step)
        products = np.asarray(multiply(self.codes, codes.astype(np.int8)[None], "dot"), dtype=np.float32)[:, 0]
        return products * (self.steps * step), errors + np.float32(np.linalg.norm(query - codes * step)) * self.lengths

    def _multiply(self, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the inner products of the vectors of the codes."""
        products = np.empty(len(self.codes), dtype=np.float32)
        buffer = np.empty((_ROWS, self.codes.shape[1]), dtype=np.float32)
        for start in range(0, len(self.codes), _ROWS):
            numbers = buffer[: min(_ROWS, len(self.codes) - start)]
            np.copyto(numbers, self.codes[start : start + _ROWS])
            # In this thread: a product by BLAS wakes threads that wait for the next one at full load.
            np.einsum("ij,j->i", numbers, query, out=products[start : start + _ROWS])
        products *= self.steps
        return products


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Chunks with their vectors and postings."""

    ids: NDArray[np.uint8]
    """The 16 bytes of each chunk id."""
    vectors: Vectors | None
    """None for searches without an embedding."""
    without_vector: NDArray[np.intp]
    """Rows of chunks that have no vector in the space."""
    collections: Mapping[str, CollectionRows]
    number: int = field(default_factory=NUMBERS.__next__)
    """Identifies the part in the cache of passages."""
    _uuids: dict[int, UUID] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Approximate memory of the part."""
        vectors = 0 if self.vectors is None else self.vectors.bytes
        rows = sum(rows.bytes for rows in self.collections.values())
        return vectors + rows + self.ids.nbytes + _UUID_BYTES * len(self._uuids)

    def chunk_ids(self, rows: Sequence[int]) -> list[UUID]:
        """Return the chunk ids of rows. Those that were asked for are kept."""
        uuids = self._uuids
        for row in rows:
            if row not in uuids:
                uuids[row] = UUID(bytes=self.ids[row].tobytes())
        return [uuids[row] for row in rows]


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A part of a block, without the chunks that are deleted."""

    part: Part
    deleted: NDArray[np.bool_] | None = None
    """Rows that are deleted; None for none."""

    @cached_property
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

    def bound_products(self, query: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return bounds of the inner products of all rows, lower and upper ones.

        Minus infinity for rows that are deleted or have no vector.

        Args:
            query: Numbers in half precision.
        """
        vectors = self.part.vectors
        assert vectors is not None, "the block is of searches by an embedding"
        products, errors = vectors.bound_products(query)
        products[self.part.without_vector] = -np.inf
        if self.deleted is not None:
            products[self.deleted] = -np.inf
        return products - errors, products + errors


def inner_products(vectors: NDArray[np.floating], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return inner products, added in the order of pgvector on x86-64.

    It adds the products of eight dimensions at a time, and halves the eight sums. The product of two half-precision
    numbers is exact in single precision, so the results are those of the server to the last bit.

    Args:
        vectors: Rows of numbers in half precision.
        query: Numbers in half precision.
    """
    # NumPy converts half precision by a function call for each number. The bits of a number, shifted to the places of
    # single precision, are those of the number divided by 2^112, which the query makes up for.
    words = vectors.astype(np.float16, copy=False).view(np.int16).astype(np.int32)
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, _SIGN_AND_NUMBER, out=words)
    products = words.view(np.float32)
    products *= query * _EXPONENT
    lane_end = len(query) // _LANES * _LANES
    # The first axis is added in order, whole planes at a time. Eight numbers move as one item.
    planes = np.ascontiguousarray(np.ascontiguousarray(products[:, :lane_end]).view(_REGISTER).T)
    sums = np.add.reduce(planes.view(np.float32), axis=0).reshape(-1, _LANES)
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


ScoredRows = tuple[Part, list[int], list[float]]
"""Rows of a part, and their scores."""


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

    def nearest(self, vector: NDArray[np.floating], count: int) -> list[ScoredRows]:
        """Return the chunks with the largest inner products; none for a vector of another length.

        They are in any order, and those equal to the last are included.

        Args:
            vector: Embedding of the query; it is rounded as the server rounds it.
            count: Chunks to return.
        """
        stored = [layer.part.vectors for layer in self.layers if layer.part.vectors is not None]
        if any(vectors.exact.shape[1] != len(vector) for vectors in stored):
            return []
        query = vector.astype(np.float16).astype(np.float32)
        bounds = [layer.bound_products(query) for layer in self.layers]
        at_least = reached_score(_join([lower for lower, _ in bounds]), count)
        nearest: list[tuple[Part, NDArray[np.intp], NDArray[np.float32]]] = []
        for layer, (_, upper) in zip(self.layers, bounds, strict=True):
            rows = np.flatnonzero((upper >= at_least) & (upper > -np.inf))
            assert layer.part.vectors is not None
            # Many chunks may be equal to the last.
            for start in range(0, len(rows), _BATCH):
                batch = rows[start : start + _BATCH]
                nearest.append((layer.part, batch, inner_products(layer.part.vectors.exact[batch], query)))
        least = nth_score(_join([exact for *_, exact in nearest]), count)
        reaching = [(part, exact >= least, rows, exact) for part, rows, exact in nearest]
        return [(part, rows[mask].tolist(), exact[mask].tolist()) for part, mask, rows, exact in reaching]


def _join(arrays: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype=np.float32), *arrays])


def score_postings(block: Block, collections: Sequence[CollectionStats], count: int) -> tuple[list[ScoredRows], int]:
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
            terms = rows.find(stats.weights)
            segment = SegmentScores.from_postings(stats.collection, rows.chunks, stats.average, terms)
            if segment.terms:
                if layer.deleted is not None:
                    segment.scores[layer.deleted[rows.first : rows.first + len(segment.scores)]] = 0
                segments.append(segment)
                owners.append((layer.part, rows.first))
    best: list[ScoredRows] = []
    if segments:
        numbers, offsets = best_offsets(segments, count)
        for number, (part, first) in enumerate(owners):
            of_this = offsets[numbers == number]
            best.append((part, (first + of_this).tolist(), segments[number].exact(of_this).tolist()))
    return best, sum(len(segment.postings.offsets) for segment in segments)
