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
        return self._max_bytes // _SHARE // (vector + ID_BYTES + (_POSTINGS_BYTES if query.lexical else 0))

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
