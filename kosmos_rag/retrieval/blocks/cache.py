"""Cache of blocks.

A block has what readers of the same access control lists see, at one state of the collections and under one filter.
Only a search of that state, these lists and that filter uses it. All of it is read under row-level security.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Hashable

from cachetools import LRUCache

from kosmos_rag.retrieval.blocks.block import ID_BYTES, Block, PassageCache
from kosmos_rag.retrieval.query import RetrieverQuery
from kosmos_rag.retrieval.snapshot import Snapshot

MISSES = 20
"""Searches of one state before its vectors are loaded. To load a vector costs about as much as to scan it 25 times."""
MISSES_OF_FILTER = 100
"""The same under a filter: each chunk of the tenant is looked up and tested."""
_SHARE = 2
"""A block may take the limit of the cache divided by this."""
_POSTINGS_BYTES = 400
"""Memory of the postings of a chunk, about: five bytes a term."""
_PASSAGES_SHARE = 8
"""Passages may take the limit of the cache divided by this, on top of it."""
_STATES = 1_000
"""States whose misses are counted."""


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

    def find(self, reader: Hashable, state: Hashable) -> Block | None:
        """Return the block of a state, if it is cached.

        Args:
            reader: `reader_key` of the search.
            state: `state_key` of the search.
        """
        with self._lock:
            block = self._blocks.get(state)
            if block is None:
                self.readers.pop(reader, None)
                return None
            self._blocks.move_to_end(state)
            self.readers[reader] = state
            self.hits += 1
            return block

    def is_warm(self, reader: Hashable) -> bool:
        """Return whether the block of the reader's last search is cached.

        The state may have changed since.
        """
        with self._lock:
            return self.readers.get(reader) in self._blocks

    def miss(self, reader: Hashable, state: Hashable, *, filtered: bool) -> bool:
        """Count a search that no block answered; return whether to load its block now.

        True once for each state.

        Args:
            reader: `reader_key` of the search.
            state: `state_key` of the search.
            filtered: Whether it has a filter.
        """
        with self._lock:
            self.misses += 1
            if state in self._blocks:
                self.readers[reader] = state
                return False
            self._missed[state] = missed = self._missed.get(state, 0) + 1
            return missed == (MISSES_OF_FILTER if filtered else MISSES)

    def put(self, reader: Hashable, state: Hashable, block: Block) -> None:
        """Add the block of a state and evict the least recently used.

        A block above its share of the limit is not cached.

        Args:
            reader: `reader_key` of the search that it was loaded for.
            state: `state_key` of the search.
            block: The block.
        """
        with self._lock:
            if state in self._blocks or block.bytes > self._max_bytes // _SHARE:
                return
            self._blocks[state] = block
            self.readers[reader] = state
            self._bytes += block.bytes
            while self._bytes > self._max_bytes:
                _, dropped = self._blocks.popitem(last=False)
                self._bytes -= dropped.bytes

    def drop(self, state: Hashable) -> None:
        """Remove the block of a state."""
        with self._lock:
            if (dropped := self._blocks.pop(state, None)) is not None:
                self._bytes -= dropped.bytes

    def most_rows(self, query: RetrieverQuery) -> int:
        """Return the chunks of a block for a search at most."""
        vector = 0 if query.vector is None else 4 * len(query.vector)
        return self._max_bytes // _SHARE // (vector + ID_BYTES + (_POSTINGS_BYTES if query.lexical else 0))


def reader_key(query: RetrieverQuery) -> Hashable:
    """Return what a search asks for, and its reader."""
    return request_key(query), frozenset(query.principals)


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
    states = tuple([(stats.collection, stats.state) for stats in snapshot.collections])
    return request_key(query), snapshot.space_id, states
