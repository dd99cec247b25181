"""Vectors of a tenant in the memory of the process, scored there.

A block has the vectors that readers of the same access control lists see, at one state of the collections and under
one filter. Only a search of that state, these lists and that filter uses it, and the candidates are read again under
row-level security.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import psycopg
from cachetools import LRUCache
from numpy.typing import NDArray

from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot, load_snapshot
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

LEAST_CHUNKS = 1_000
"""The server scans fewer about as fast."""
MISSES = 20
"""Searches of one state before its vectors are loaded. To load a vector costs about as much as to scan it 25 times."""
MISSES_OF_FILTER = 100
"""The same under a filter: each chunk of the tenant is looked up and tested."""
MARGIN = 1e-5
"""Score below that of the last candidate up to which the server decides: its scores differ in the last digits, and
equal ones are in the order of their ids."""
_MOST_TIES = 10
"""Factor on the candidates that the server decides between at most."""
_SHARE = 2
"""A block may take the limit of the cache divided by this."""
_BATCH = 5_000
_ID_BYTES = 100
"""Memory of an id in Python."""
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

    def nearest(self, vector: NDArray[np.floating], count: int) -> list[UUID]:
        """Return the chunks with the largest inner products, in any order.

        Those about equal to the last are included.

        Args:
            vector: Embedding of the query, rounded as the server rounds it.
            count: Chunks to return.
        """
        # In this thread: a product by BLAS wakes threads that wait for the next one at full load, milliseconds long.
        scores = np.einsum("ij,j->i", self.vectors, vector.astype(np.float16).astype(np.float32))
        if count >= len(scores):
            return list(self.chunk_ids)
        last = np.partition(scores, -count)[-count]
        found = np.flatnonzero(scores >= last - MARGIN)
        if len(found) > _MOST_TIES * count:
            found = found[np.argpartition(scores[found], -count)[-_MOST_TIES * count :]]
        return [self.chunk_ids[index] for index in found.tolist()]


class VectorCache:
    """LRU cache of blocks with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._blocks: OrderedDict[Hashable, VectorBlock] = OrderedDict()
        self._missed: LRUCache[Hashable, int] = LRUCache(_STATES)
        self.hits = self.misses = 0

    def find(self, query: RetrieverQuery, snapshot: Snapshot) -> VectorBlock | None:
        """Return the block of a search, if it is cached.

        None for a search that cannot use one.

        Args:
            query: Without a required term, which the block does not know.
            snapshot: State of the tenant, of at least `LEAST_CHUNKS`.
        """
        if not self._fits(query, snapshot):
            return None
        key = state_key(query, snapshot)
        with self._lock:
            block = self._blocks.get(key)
            if block is None:
                self.misses += 1
                self._missed[key] = self._missed.get(key, 0) + 1
                return None
            self._blocks.move_to_end(key)
            self.hits += 1
            return block

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

    def put(self, key: Hashable, block: VectorBlock) -> None:
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

    def most_rows(self, dimensions: int) -> int:
        """Return the vectors of a block at most."""
        return self._max_bytes // _SHARE // (4 * dimensions + _ID_BYTES)

    def _fits(self, query: RetrieverQuery, snapshot: Snapshot) -> bool:
        if query.vector is None or snapshot.required or snapshot.space_id is None:
            return False
        most = self.most_rows(len(query.vector))
        # How many chunks pass a filter shows when they are loaded.
        return most > 0 if query.scope["filtered"] else snapshot.chunks <= most


def state_key(query: RetrieverQuery, snapshot: Snapshot) -> Hashable:
    """Return what determines the vectors that a search may find.

    Args:
        query: The search.
        snapshot: State of the tenant.
    """
    scope = query.scope
    states = tuple((stats.collection, stats.epoch, stats.visible) for stats in snapshot.collections)
    if not scope["filtered"]:
        return scope["tenant_id"], scope["collection"], snapshot.space_id, states
    condition = scope["condition"]
    # A filter on the acl sees only the principals that the reader has.
    principals = frozenset(query.principals) if condition is not None and '"acl"' in condition else None
    conditions = (tuple(scope["sources"]), condition, json.dumps(scope["condition_values"].obj, sort_keys=True))
    return scope["tenant_id"], scope["collection"], snapshot.space_id, states, conditions, principals


def load_block(pool: ConnectionPool, query: RetrieverQuery, cache: VectorCache) -> None:
    """Load and cache the vectors that the reader of a search sees.

    Args:
        pool: Connections of background work.
        query: The search.
        cache: Where the block goes.

    Raises DatabaseError.
    """
    assert query.vector is not None, "it fits"
    most = cache.most_rows(len(query.vector))
    with pool.transaction(query.scope["tenant_id"], query.principals) as connection:
        snapshot = load_snapshot(connection, query)
        if snapshot.space_id is None:
            return
        block = _read_block(connection, query, snapshot, most + 1)
    if len(block.chunk_ids) <= most:
        cache.put(state_key(query, snapshot), block)


def _read_block(connection: psycopg.Connection, query: RetrieverQuery, snapshot: Snapshot, limit: int) -> VectorBlock:
    assert query.vector is not None, "it fits"
    chunk_ids: list[UUID] = []
    parts: list[NDArray[np.float32]] = [np.empty((0, len(query.vector)), dtype=np.float32)]
    cursor = connection.cursor(binary=True)
    cursor.execute(statement("visible_vectors"), {**query.scope, "space_id": snapshot.space_id, "limit": limit})
    while rows := cursor.fetchmany(_BATCH):
        chunk_ids += [chunk_id for chunk_id, _ in rows]
        # `halfvec_send` writes the dimensions and a reserved word first, two bytes each.
        packed = np.frombuffer(b"".join([vector for _, vector in rows]), dtype=">f2")
        parts.append(packed.reshape(len(rows), -1)[:, 2:].astype(np.float32))
    return VectorBlock(chunk_ids=chunk_ids, vectors=np.concatenate(parts))
