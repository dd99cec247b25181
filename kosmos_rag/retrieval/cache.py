"""Caches of results and of query embeddings, and a cache with a limit in bytes."""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from copy import deepcopy
from datetime import date
from typing import Generic, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Expansion, SearchResult
from kosmos_rag.retrieval.query import Query
from kosmos_rag.retrieval.snapshot import Snapshot

K = TypeVar("K")
V = TypeVar("V")


class ResultCache:
    """LRU cache of results. Thread-safe.

    Results are never stale: a key contains the states of collections and indexes, which each query reads under
    row-level security. Settings and models belong to the process.
    """

    def __init__(self, *, size: int) -> None:
        """Args: size: Most results; 0 disables the cache."""
        self._lock = threading.Lock()
        self._entries: LRUCache[Hashable, SearchResult] = LRUCache(maxsize=size)
        self.enabled = size > 0
        self.hits = self.misses = 0

    def get(self, key: Hashable) -> SearchResult | None:
        """Return a copy of the cached result, or None."""
        with self._lock:
            result = self._entries.get(key)
            self.hits += result is not None
            self.misses += result is None
        return deepcopy(result)

    def put(self, key: Hashable, result: SearchResult) -> None:
        """Cache a result.

        A degraded one is not cached: the next may be complete.
        """
        if result.degraded_stages:
            return
        with self._lock:
            # Copied in and out: a caller may change the mappings of its result.
            self._entries[key] = deepcopy(result)


def result_key(
    query: Query,
    k: int,
    expansion: Expansion,
    snapshot: Snapshot,
    *,
    settings_hash: str | None = None,
    today: date | None = None,
    explain: bool = True,
) -> Hashable:
    """Return everything that determines a result except settings and models.

    Settings and models of the process are the same for all its queries.

    Args:
        k: Hits requested, with the default resolved.
        expansion: What the query was expanded to.
        snapshot: State of the tenant.
        settings_hash: Of the preset or experiment; None for the settings of the process.
        today: Date for signals on the age of documents; None without signals.
        explain: Whether the reader may see plans. Segments do not change hits, only plans.
    """
    index = snapshot.vector_index
    return (
        query.tenant.id,
        frozenset(query.principals),
        query.collection,
        query.text,
        query.options,
        query.retrievers,
        query.parsed,
        k,
        tuple(query.filter.sources),
        json.dumps(query.filter.where, sort_keys=True, default=lambda value: [type(value).__name__, repr(value)]),
        query.scope["condition_values"].obj.get("today"),  # on which approved documents have to be valid
        expansion,
        settings_hash,
        today,
        snapshot.space_id,
        index and (index.id, index.probes, index.ef_search),
        explain,
        tuple(
            (
                stats.collection,
                stats.state,
                repr(stats.overlay),
                tuple(sorted(stats.known_items.items())),
                stats.segments if explain else (),
            )
            for stats in snapshot.collections
        ),
    )


class QueryEmbeddingCache:
    """LRU cache of the query embeddings of one model. Thread-safe."""

    def __init__(self, embedder: Embedder, *, size: int) -> None:
        self._embedder = embedder
        self._lock = threading.Lock()
        self._vectors: LRUCache[tuple[str, str | None], NDArray[np.float32]] = LRUCache(maxsize=size)
        self._pending: dict[tuple[str, str | None], Future[NDArray[np.float32]]] = {}
        self.hits = self.misses = 0

    def get(self, text: str, passage: str | None) -> NDArray[np.float32]:
        """Return the embedding of a query, or its mean with that of a hypothetical answer.

        Concurrent equal queries wait for the one that embeds, and fail with it: one after the other they would wait
        for a model that hangs. Raises ModelError.
        """
        key = text, passage
        with self._lock:
            if (vector := self._vectors.get(key)) is not None:
                self.hits += 1
                return vector
            future = self._pending.get(key)
            embeds = future is None
            if future is None:
                future = self._pending[key] = Future()
            self.hits += not embeds
            self.misses += embeds
        if embeds:
            self._resolve(key, future)
        return future.result()

    def _resolve(self, key: tuple[str, str | None], future: Future[NDArray[np.float32]]) -> None:
        try:
            vector = self._embed(*key)
        except BaseException as error:
            with self._lock:
                del self._pending[key]
            interrupted = ModelError("the embedding of the question was interrupted; ask again")
            future.set_exception(error if isinstance(error, Exception) else interrupted)
            raise
        with self._lock:
            del self._pending[key]
            with suppress(ValueError):  # of size 0
                self._vectors[key] = vector
        future.set_result(vector)

    def _embed(self, text: str, passage: str | None) -> NDArray[np.float32]:
        """Embed a query; with a hypothetical answer, return the normalised mean of both.

        Source: Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance Labels" (2022), section
        3.2.
        """
        vector = self._embedder.embed_query(text)
        if passage is not None:
            mean = vector + self._embedder.embed([passage])[0]
            length = np.linalg.norm(mean)
            # Two opposite vectors have no mean direction.
            vector = mean / length if length > 0 else vector
        vector.setflags(write=False)  # shared by all callers
        return vector


class ByteCache(Generic[K, V]):
    """LRU cache with a limit in bytes. Thread-safe."""

    def __init__(self, max_bytes: int, measure: Callable[[V], int]) -> None:
        """Create an empty cache.

        Args:
            max_bytes: Limit.
            measure: Returns the approximate memory of an entry.
        """
        self._max_bytes = max_bytes
        self._measure = measure
        self._bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, V] = OrderedDict()
        self.hits = self.misses = 0

    def get(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the entries of those keys that are cached."""
        entries = {}
        with self._lock:
            for key in keys:
                if (entry := self._entries.get(key)) is not None:
                    self._entries.move_to_end(key)
                    entries[key] = entry
                    self.hits += 1
                else:
                    self.misses += 1
        return entries

    def put(self, entries: Mapping[K, V]) -> None:
        """Add entries and evict the least recently used.

        An entry above the limit is not cached.
        """
        with self._lock:
            for key, entry in entries.items():
                size = self._measure(entry)
                if key in self._entries or size > self._max_bytes:
                    continue
                self._entries[key] = entry
                self._bytes += size
            while self._bytes > self._max_bytes:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= self._measure(dropped)

    @property
    def bytes(self) -> int:
        """Approximate memory in use."""
        return self._bytes
