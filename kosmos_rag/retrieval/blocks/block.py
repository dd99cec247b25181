"""Vectors, postings and passages of the chunks that a search may find, in memory."""

import itertools
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.retrieval.byte_cache import ByteCache
from kosmos_rag.retrieval.postings import Posting

MARGIN = 1e-5
"""Score below that of the last candidate up to which products are computed again, in the order of the server."""
ID_BYTES = 100
"""Memory of an id in Python."""
_LANES = 8
"""Single-precision numbers of a register of 256 bits."""
_BATCH = 5_000
_PASSAGE_BYTES = 2_500
"""Memory of a passage without its text, about."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorBlock:
    """Vectors that the same readers see at one state of the collections."""

    chunk_ids: Sequence[UUID]
    vectors: NDArray[np.float32]
    """Normalised, a row for each chunk."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the block."""
        return self.vectors.nbytes + ID_BYTES * len(self.chunk_ids)

    def find(self, chunk_ids: Sequence[UUID]) -> dict[UUID, NDArray[np.float32]]:
        """Return the vectors of those chunks that have one."""
        numbers = {chunk_id.int for chunk_id in chunk_ids}
        return {chunk_id: self.vectors[row] for row, chunk_id in enumerate(self.chunk_ids) if chunk_id.int in numbers}

    def nearest(self, vector: NDArray[np.floating], count: int) -> list[tuple[UUID, float]]:
        """Return the chunks with the largest inner products, with these.

        They are in any order, and those equal to the last are included.

        Args:
            vector: Embedding of the query; it is rounded as the server rounds it.
            count: Chunks to return.
        """
        query = vector.astype(np.float16).astype(np.float32)
        # In this thread: a product by BLAS wakes threads that wait for the next one at full load, milliseconds long.
        scores = np.einsum("ij,j->i", self.vectors, query)
        rows = np.arange(len(scores))
        if count < len(scores):
            rows = np.flatnonzero(scores >= np.partition(scores, -count)[-count] - MARGIN)
        # Many chunks may be equal to the last.
        for start in range(0, len(rows), _BATCH):
            batch = rows[start : start + _BATCH]
            scores[batch] = inner_products(self.vectors[batch], query)
        exact = scores[rows]
        if count < len(rows):
            best = exact >= np.partition(exact, -count)[-count]
            rows, exact = rows[best], exact[best]
        ids = [self.chunk_ids[index] for index in rows.tolist()]
        return list(zip(ids, exact.tolist(), strict=True))


def inner_products(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return inner products, added in the order of pgvector on x86-64.

    It adds the products of eight dimensions at a time, and halves the eight sums. The product of two half-precision
    numbers is exact in single precision, so the results are those of the server to the last bit.

    Args:
        vectors: Rows of numbers in half precision.
        query: Numbers in half precision.
    """
    products = vectors * query
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
class CollectionPostings:
    """Postings by lexeme: those of one lexeme follow each other."""

    chunk_ids: Sequence[UUID]
    """By offset."""
    chunks: Posting
    """Sequence numbers and lengths by offset."""
    lexeme_ids: NDArray[np.int64]
    """Ascending."""
    starts: NDArray[np.intp]
    """Where the postings of each lexeme begin, and where the last ones end."""
    offsets: NDArray[np.int32]
    """Ascending for each lexeme."""
    frequencies: NDArray[np.uint8]

    @property
    def bytes(self) -> int:
        """Approximate memory, without the ids."""
        arrays = (self.lexeme_ids, self.starts, self.offsets, self.frequencies)
        return self.chunks.bytes + sum(array.nbytes for array in arrays)

    def find(self, lexeme_id: int) -> Posting:
        """Return the posting of a lexeme, which may be empty."""
        at = int(np.searchsorted(self.lexeme_ids, lexeme_id))
        exists = at < len(self.lexeme_ids) and self.lexeme_ids[at] == lexeme_id
        start, end = (self.starts[at], self.starts[at + 1]) if exists else (0, 0)
        return Posting(offsets=self.offsets[start:end], frequencies=self.frequencies[start:end])


class PassageCache:
    """LRU cache of passages with a limit in bytes. Thread-safe.

    A passage is returned to readers of the same principals only: row-level security has shown it to them at this state.
    """

    def __init__(self, max_bytes: int) -> None:
        self._rows: ByteCache[tuple[Hashable, int], dict[str, Any]] = ByteCache(max_bytes, _row_bytes)

    def find(self, reader: Hashable, chunk_ids: Iterable[UUID]) -> dict[int, dict[str, Any]]:
        """Return the fields of those passages that are cached, by chunk id.

        Args:
            reader: State and principals.
            chunk_ids: The passages.
        """
        rows = self._rows.get([(reader, chunk_id.int) for chunk_id in chunk_ids])
        return {number: _copy_row(row) for (_, number), row in rows.items()}

    def put(self, reader: Hashable, rows: Mapping[int, dict[str, Any]]) -> None:
        """Add passages and evict the least recently used.

        Args:
            reader: State and principals.
            rows: Fields of passages by chunk id.
        """
        self._rows.put({(reader, number): _copy_row(row) for number, row in rows.items()})


def _copy_row(row: dict[str, Any]) -> dict[str, Any]:
    """Copy the fields of a passage.

    A caller may change the metadata of its hits.
    """
    return {**row, "metadata": deepcopy(row["metadata"])} if row["metadata"] else {**row, "metadata": {}}


def _row_bytes(row: Mapping[str, Any]) -> int:
    """Return the approximate memory of a passage."""
    return _PASSAGE_BYTES + sys.getsizeof(row["text"]) + 2 * len(repr(row["metadata"]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """What the retrievers of a search score in memory."""

    vectors: VectorBlock | None
    """None for searches without an embedding."""
    postings: Mapping[str, CollectionPostings] | None
    """By collection. None for searches without words."""
    passages: PassageCache = field(default_factory=lambda: PassageCache(0))
    """Of all blocks."""
    number: int = field(default_factory=itertools.count().__next__)
    """Identifies the block in the cache of passages."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the block."""
        vectors = 0 if self.vectors is None else self.vectors.bytes
        return vectors + sum(postings.bytes for postings in (self.postings or {}).values())

    def find_passages(self, principals: Sequence[str], chunk_ids: Iterable[UUID]) -> dict[int, dict[str, Any]]:
        """Return the fields of cached passages, by chunk id.

        Readers of these principals have read them at this state.
        """
        return self.passages.find((self.number, frozenset(principals)), chunk_ids)

    def put_passages(self, principals: Sequence[str], rows: Mapping[int, dict[str, Any]]) -> None:
        """Cache the fields of passages, by chunk id.

        They are for readers of these principals.
        """
        self.passages.put((self.number, frozenset(principals)), rows)
