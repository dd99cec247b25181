"""Vectors, postings and passages of tenants, in memory.

A block has what readers of the same access control lists see, at one state of the collections and under one filter.
Only a search of that state, these lists and that filter uses it. All of it is read under row-level security.
"""

import itertools
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from cachetools import LRUCache
from numpy.typing import NDArray

from kosmos_rag.retrieval.byte_cache import ByteCache
from kosmos_rag.retrieval.collection_postings import CollectionPostings, read_postings
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot, load_snapshot
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

MISSES = 20
"""Searches of one state before its vectors are loaded. To load a vector costs about as much as to scan it 25 times."""
MISSES_OF_FILTER = 100
"""The same under a filter: each chunk of the tenant is looked up and tested."""
MARGIN = 1e-5
"""Score below that of the last candidate up to which products are computed again, in the order of the server."""
_LANES = 8
"""Single-precision numbers of a register of 256 bits."""
_SHARE = 2
"""A block may take the limit of the cache divided by this."""
_BATCH = 5_000
_ID_BYTES = 100
"""Memory of an id in Python."""
_POSTINGS_BYTES = 400
"""Memory of the postings of a chunk, about: five bytes a term."""
_PASSAGE_BYTES = 2_500
"""Memory of a passage without its text, about."""
_PASSAGES_SHARE = 8
"""Passages may take the limit of the cache divided by this, on top of it."""
_STATES = 1_000
"""States whose misses are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorBlock:
    """Vectors that the same readers see at one state of the collections."""

    chunk_ids: Sequence[UUID]
    vectors: NDArray[np.float32]
    """Normalised, a row for each chunk."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the block."""
        return self.vectors.nbytes + _ID_BYTES * len(self.chunk_ids)

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
    """By collection. None for searches without words, and where the tenant is too large to read all postings."""
    passages: PassageCache = field(default_factory=lambda: PassageCache(0))
    """Of all blocks."""
    number: int = field(default_factory=itertools.count().__next__)
    """Identifies the block in the cache of passages."""

    @property
    def bytes(self) -> int:
        """Approximate memory of the block."""
        vectors = 0 if self.vectors is None else self.vectors.bytes
        return vectors + sum(postings.bytes for postings in (self.postings or {}).values())

    def covers(self, query: RetrieverQuery) -> bool:
        """Return whether the block has what all retrievers of a search need."""
        return self.postings is not None or not query.lexical

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


class BlockCache:
    """LRU cache of blocks with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Hashable, Block] = OrderedDict()
        self._missed: LRUCache[Hashable, int] = LRUCache(_STATES)
        self.readers: LRUCache[Hashable, Hashable] = LRUCache(_STATES)
        """Key of the block that answered the last search of a reader, by what the search asked for."""
        self.passages = PassageCache(max_bytes // _PASSAGES_SHARE)
        self.hits = self.misses = 0

    def find(self, query: RetrieverQuery, snapshot: Snapshot) -> Block | None:
        """Return the block of a search, if it is cached.

        None for a search that cannot use one.

        Args:
            query: Without a required term, which the block does not know.
            snapshot: State of the tenant.
        """
        if not self._fits(query, snapshot):
            return None
        key = request, *_ = state_key(query, snapshot)
        reader = (request, frozenset(query.principals))
        with self._lock:
            block = self._blocks.get(key)
            if block is None:
                # A reader who had a block searches once more, in a transaction: that one counts.
                if self.readers.pop(reader, None) is None:
                    self.misses += 1
                    self._missed[key] = self._missed.get(key, 0) + 1
                return None
            self._blocks.move_to_end(key)
            self.readers[reader] = key
            self.hits += 1
            return block

    def is_warm(self, query: RetrieverQuery) -> bool:
        """Return whether the block of the reader's last search is cached.

        The state may have changed since.
        """
        reader = (request_key(query), frozenset(query.principals))
        with self._lock:
            return self.readers.get(reader) in self._blocks

    def is_due(self, query: RetrieverQuery, snapshot: Snapshot) -> bool:
        """Return whether to load the block of a search now.

        True once for each state.

        Args:
            query: Of a search that found no block.
            snapshot: State of the tenant.
        """
        if not self._fits(query, snapshot):
            return False
        key = state_key(query, snapshot)
        with self._lock:
            due = MISSES_OF_FILTER if query.scope["filtered"] else MISSES
            if self._missed.get(key) != due or key in self._blocks:
                return False
            self._missed[key] = due + 1
            return True

    def put(self, key: Hashable, block: Block) -> None:
        """Add a block and evict the least recently used.

        A block above its share of the limit is not cached.
        """
        with self._lock:
            if key in self._blocks or block.bytes > self._max_bytes // _SHARE:
                return
            self._blocks[key] = block
            self._bytes += block.bytes
            while self._bytes > self._max_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self._bytes -= dropped.bytes

    def most_rows(self, query: RetrieverQuery) -> int:
        """Return the chunks of a block for a search at most."""
        vector = 0 if query.vector is None else 4 * len(query.vector)
        return self._max_bytes // _SHARE // (vector + _ID_BYTES + (_POSTINGS_BYTES if query.lexical else 0))

    def _fits(self, query: RetrieverQuery, snapshot: Snapshot) -> bool:
        if snapshot.required or snapshot.space_id is None:
            return False
        most = self.most_rows(query)
        # How many chunks pass a filter shows when they are loaded.
        return most > 0 if query.scope["filtered"] else snapshot.chunks <= most


def request_key(query: RetrieverQuery) -> Hashable:
    """Return tenant, collection, retrievers and filter of a search.

    Args:
        query: The search.
    """
    scope = query.scope
    key = (scope["tenant_id"], scope["collection"], query.vector is not None, query.lexical)
    if not scope["filtered"]:
        return key
    condition = scope["condition"]
    # A filter on the acl sees only the principals that the reader has.
    principals = frozenset(query.principals) if condition is not None and '"acl"' in condition else None
    return (
        *key,
        tuple(scope["sources"]),
        condition,
        json.dumps(scope["condition_values"].obj, sort_keys=True),
        principals,
    )


def state_key(query: RetrieverQuery, snapshot: Snapshot) -> tuple[Hashable, ...]:
    """Return what determines the vectors that a search may find.

    The first part is what the search asks for.

    Args:
        query: The search.
        snapshot: State of the tenant.
    """
    states = tuple([(stats.collection, stats.epoch, stats.visible) for stats in snapshot.collections])
    return request_key(query), snapshot.space_id, states


def load_block(pool: ConnectionPool, query: RetrieverQuery, cache: BlockCache) -> None:
    """Load and cache what the reader of a search sees.

    Args:
        pool: Connections of background work.
        query: The search.
        cache: Where the block goes.

    Raises DatabaseError.
    """
    most = cache.most_rows(query)
    with pool.transaction(query.scope["tenant_id"], query.principals) as connection:
        snapshot = load_snapshot(connection, query)
        if snapshot.space_id is None:
            return
        vectors = postings = None
        if query.vector is not None:
            vectors = _read_vectors(connection, query, snapshot, query.vector, most + 1)
            if len(vectors.chunk_ids) > most:
                return
        # Postings are read of hidden chunks too, and left out here.
        if query.lexical and snapshot.total_chunks_unfiltered <= most:
            postings = read_postings(connection, query.scope, snapshot)
    cache.put(state_key(query, snapshot), Block(vectors=vectors, postings=postings, passages=cache.passages))


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
