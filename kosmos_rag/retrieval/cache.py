"""Results kept for when the same reader asks the same of documents that have not changed."""

import json
import threading
from collections.abc import Hashable
from copy import deepcopy
from datetime import date

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Expansion, SearchResult
from kosmos_rag.retrieval.search import Search
from kosmos_rag.retrieval.snapshot import Snapshot


class Results:
    """Least recently used results, up to a number. Thread-safe.

    What is kept is never stale: the snapshot that a key is made of is read with each question, under row-level
    security, and says which documents and which indexes there are. Settings and models belong to the process.
    """

    def __init__(self, *, kept: int) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[Hashable, SearchResult] = LRUCache(maxsize=kept)
        self.hits = self.misses = 0

    @property
    def enabled(self) -> bool:
        """Whether any result is kept."""
        return self._kept.maxsize > 0

    def find(self, key: Hashable) -> SearchResult | None:
        """Return what is kept under a key."""
        with self._lock:
            result = self._kept.get(key)
            self.hits += result is not None
            self.misses += result is None
        return deepcopy(result)

    def keep(self, key: Hashable, result: SearchResult) -> None:
        """Keep a result, except one without a stage that it should have had: the next may have it."""
        if result.degraded_stages:
            return
        with self._lock:
            # Copied here and there: a caller may change the mappings of what it gets.
            self._kept[key] = deepcopy(result)


def key_of(
    search: Search,
    expansion: Expansion,
    snapshot: Snapshot,
    *,
    version: str | None = None,
    today: date | None = None,
    told: bool = True,
) -> Hashable:
    """Return all that a result follows from, beside the settings and the models of the process.

    `version` is that of the collection's preset, `today` is for signals that go by the age of documents. Segments all
    answer alike, and belong to the key where the result tells of them.
    """
    request, index = search.request, snapshot.vector_index
    return (
        search.tenant.id,
        frozenset(search.principals),
        search.collection,
        request.question,
        request.k,
        tuple(request.filter.sources),
        json.dumps(request.filter.where, sort_keys=True, default=lambda value: [type(value).__name__, repr(value)]),
        expansion,
        version,
        today,
        snapshot.space_id,
        index and (index.id, index.probes, index.ef_search),
        told,
        tuple((corpus.collection, corpus.epoch, corpus.segments if told else ()) for corpus in snapshot.corpora),
    )


class QuestionVectors:
    """Vectors by one embedder, which is one embedding space; the least recently used are dropped. Thread-safe."""

    def __init__(self, embedder: Embedder, *, kept: int) -> None:
        self._embedder = embedder
        # With a condition, threads that ask the same at once wait for the one that embeds.
        self._kept = cached(LRUCache(maxsize=kept), condition=threading.Condition(), info=True)(self._embedded)

    def of(self, question: str, passage: str | None) -> NDArray[np.float32]:
        """Return the question's vector; with a passage that could answer it, the mean of both, of length one.

        Source of the mean: Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance Labels"
        (2022), section 3.2.
        """
        vector: NDArray[np.float32] = self._kept(question, passage)
        return vector

    @property
    def hits(self) -> int:
        """How often a vector was there."""
        return int(self._kept.cache_info().hits)

    @property
    def misses(self) -> int:
        """How often one was made."""
        return int(self._kept.cache_info().misses)

    def _embedded(self, question: str, passage: str | None) -> NDArray[np.float32]:
        vector = self._embedder.embed_query(question)
        if passage is not None:
            mean = vector + self._embedder.embed([passage])[0]
            length = np.linalg.norm(mean)
            # Two opposite vectors have no mean direction.
            vector = mean / length if length > 0 else vector
        vector.setflags(write=False)  # all who ask share it
        return vector
