"""Cache of blocks and of passages.

A block has what readers of the same access control lists see, at one state of the collections and under one filter.
Only a search of that state, these lists and that filter uses it. All of it is read under row-level security.
"""

import hashlib
import json
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from itertools import chain
from typing import Any, TypeAlias
from uuid import UUID

from cachetools import LRUCache

from kosmos_rag.core.types import PlaceSpan
from kosmos_rag.retrieval.blocks.block import Block
from kosmos_rag.retrieval.cache import ByteCache
from kosmos_rag.retrieval.query import RetrieverQuery

MISSES = 20
"""Searches of one state before its vectors are loaded. To load a vector costs about as much as to scan it 25 times."""
MISSES_OF_FILTER = 100
"""The same under a filter: each chunk of the tenant is looked up and tested."""
_SHARE = 2
"""A block may take the limit of the cache divided by this."""
_ROW_BYTES = 50
"""Memory of a chunk without its vector and its postings, about."""
_NUMBER_BYTES = 3
"""Memory of a dimension of a vector, with its code."""
_POSTINGS_BYTES = 600
"""Memory of the postings of a chunk, about: five bytes a term."""
_PASSAGE_BYTES = 500
"""Memory of a passage without the values of its fields, about."""
_PASSAGES_SHARE = 8
"""Passages may take the limit of the cache divided by this, on top of it."""
_STATES = 1_000
"""States whose misses are counted."""
StateKey: TypeAlias = tuple[Hashable, UUID | None, Hashable]
"""What a search asks for, the space, and the states of the collections."""


class PassageCache:
    """LRU cache of passages with a limit in bytes. Thread-safe.

    A passage is returned to readers of the same principals only: row-level security has shown it to them. It is kept
    for its part: where the chunk or its document changes, the chunk is in another part. Its row is one tuple: all
    threads wait while the garbage collector visits the objects of thousands of rows.
    """

    def __init__(self, max_bytes: int) -> None:
        self._rows: ByteCache[tuple[bytes, int, int], tuple[Any, ...]] = ByteCache(max_bytes, _row_bytes)

    def find(self, principals: Iterable[str], parts: Mapping[int, int]) -> dict[int, dict[str, Any]]:
        """Return the fields of those passages that are cached, by chunk id.

        Args:
            parts: Number of the part by chunk id.
        """
        reader = _digest(principals)
        rows = self._rows.get([(reader, part, chunk_id) for chunk_id, part in parts.items()])
        return {chunk_id: _unpack(packed) for (*_, chunk_id), packed in rows.items()}

    def put(self, principals: Iterable[str], parts: Mapping[int, int], rows: Mapping[int, dict[str, Any]]) -> None:
        """Add passages and evict the least recently used.

        Args:
            parts: Number of the part by chunk id.
            rows: Fields of passages by chunk id.
        """
        reader = _digest(principals)
        names = tuple([name for name in next(iter(rows.values()), {}) if name != "metadata"])
        self._rows.put({(reader, parts[chunk_id], chunk_id): _pack(names, row) for chunk_id, row in rows.items()})

    @property
    def bytes(self) -> int:
        """Approximate memory in use."""
        return self._rows.bytes


def _digest(principals: Iterable[str]) -> bytes:
    """Return the part of a key for principals.

    The garbage collector visits no bytes.
    """
    return hashlib.sha256(json.dumps(sorted(principals)).encode()).digest()


def _pack(names: tuple[str, ...], row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the metadata, the names of the other fields, and their values.

    The garbage collector stops visiting plain tuples, not those of a class.
    """
    row = {**row, "place_spans": tuple(map(tuple, row["place_spans"]))}
    return _copy(row["metadata"]), names, *[row[name] for name in names]


def _unpack(packed: tuple[Any, ...]) -> dict[str, Any]:
    row = dict(zip(packed[1], packed[2:], strict=True))
    row["metadata"] = _copy(packed[0])
    row["place_spans"] = tuple(map(PlaceSpan._make, row["place_spans"]))
    return row


def _copy(metadata: Any) -> Any:
    """Copy metadata: a caller may change those of its hits."""
    return deepcopy(metadata) if metadata else {}


def _row_bytes(packed: tuple[Any, ...]) -> int:
    """Return the approximate memory of a passage.

    The names of its fields are shared.
    """
    metadata, _, *values = packed
    return _PASSAGE_BYTES + _memory(metadata) + sum(map(_memory, values))


def _memory(value: Any) -> int:
    """Return the memory of a value and of all values in it."""
    if value is None:
        return 0
    inner: Iterable[Any] = ()
    if isinstance(value, dict):
        inner = chain(value, value.values())
    elif isinstance(value, tuple | list):
        inner = value
    return sys.getsizeof(value) + sum(map(_memory, inner))


class BlockCache:
    """LRU cache of blocks with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        """Approximate memory in use."""
        self._lock = threading.Lock()
        self._blocks: OrderedDict[StateKey, Block] = OrderedDict()
        self._sizes: dict[StateKey, int] = {}
        self._lineages: dict[int, StateKey] = {}
        """State of the block of each lineage."""
        self._missed: LRUCache[Hashable, int] = LRUCache(_STATES)
        self._readers: LRUCache[Hashable, tuple[StateKey, int]] = LRUCache(_STATES)
        """State and lineage of the block that answered the last search of a reader."""
        self.passages = PassageCache(max_bytes // _PASSAGES_SHARE)
        self.hits = self.misses = self.followed = 0

    def find(self, reader: Hashable, state: StateKey) -> Block | None:
        """Return the block of a state, if it is cached.

        Args:
            reader: `reader_key` of the search.
            state: `state_key` of the search.
        """
        with self._lock:
            if (block := self._blocks.get(state)) is not None:
                self._blocks.move_to_end(state)
                self._readers[reader] = state, block.lineage
                self.hits += 1
            return block

    def find_last(self, reader: Hashable, state: StateKey) -> tuple[StateKey, Block] | None:
        """Return state and block of the last search of a reader.

        The result is None if the block has followed a change since, or is of another filter: a preset of a collection
        may have one.

        Args:
            reader: `reader_key` of the search.
            state: `state_key` of the search.
        """
        with self._lock:
            last, _ = self._readers.get(reader, (None, 0))
            if last is None or last[0] != state[0] or last not in self._blocks:
                return None
            return last, self._blocks[last]

    def forget(self, reader: Hashable) -> None:
        """Send the next search of a reader to the other views."""
        with self._lock:
            self._readers.pop(reader, None)

    def find_latest(self, reader: Hashable) -> Block | None:
        """Return the block of the reader's last search, or the one that follows it.

        The result is None if it is not cached. The state may have changed since.
        """
        with self._lock:
            _, lineage = self._readers.get(reader, (None, -1))
            state = self._lineages.get(lineage)
            return None if state is None else self._blocks[state]

    def miss(self, reader: Hashable, state: StateKey, *, filtered: bool) -> bool:
        """Count a search that no block answered; return whether to load its block now.

        The result is true once for each state.

        Args:
            reader: `reader_key` of the search.
            state: `state_key` of the search.
            filtered: Whether it has a filter.
        """
        with self._lock:
            self.misses += 1
            if (block := self._blocks.get(state)) is not None:
                self._readers[reader] = state, block.lineage
                return False
            self._missed[state] = missed = self._missed.get(state, 0) + 1
            return missed == (MISSES_OF_FILTER if filtered else MISSES)

    def put(self, reader: Hashable, state: StateKey, block: Block, *, instead_of: StateKey | None = None) -> None:
        """Add the block of a state and evict the least recently used.

        A block above its share of the limit is not cached.

        Args:
            reader: `reader_key` of the search that it was made for.
            state: `state_key` of the search.
            instead_of: State of the block that it follows; None for none.
        """
        with self._lock:
            if instead_of is not None:
                self._remove(instead_of)
            if (cached := self._blocks.get(state)) is not None:
                self._readers[reader] = state, cached.lineage
                return
            if block.bytes > self._max_bytes // _SHARE:
                return
            self._blocks[state] = block
            self._sizes[state] = block.bytes
            self.bytes += block.bytes
            self._lineages[block.lineage] = state
            self._readers[reader] = state, block.lineage
            self.followed += instead_of is not None
            while self.bytes > self._max_bytes:
                self._remove(next(iter(self._blocks)))

    def drop(self, state: StateKey) -> None:
        """Remove the block of a state."""
        with self._lock:
            self._remove(state)

    def _remove(self, state: StateKey) -> None:
        if (block := self._blocks.pop(state, None)) is not None:
            self.bytes -= self._sizes.pop(state)
            del self._lineages[block.lineage]

    def most_rows(self, query: RetrieverQuery) -> int:
        """Return the chunks of a block for a search at most."""
        vector = 0 if query.vector is None else _NUMBER_BYTES * len(query.vector)
        return self._max_bytes // _SHARE // (vector + _ROW_BYTES + (_POSTINGS_BYTES if query.lexical else 0))


def reader_key(query: RetrieverQuery) -> Hashable:
    """Return what a search asks for, and its reader."""
    return request_key(query), frozenset(query.principals)


def request_key(query: RetrieverQuery) -> Hashable:
    """Return tenant, collection, retrievers and filter of a search."""
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


def state_key(query: RetrieverQuery, space_id: UUID | None, states: Mapping[str, str]) -> StateKey:
    """Return what determines the chunks that a search may find, and their vectors.

    The first part is what the search asks for.

    Args:
        space_id: The live space.
        states: State by collection.
    """
    return request_key(query), space_id, frozenset(states.items())
