"""Results kept for when the same reader asks the same of documents that have not changed."""

import json
import threading
from collections.abc import Hashable
from copy import deepcopy
from dataclasses import replace

from cachetools import LRUCache

from kosmos_rag.records import Expansion, Retrieval
from kosmos_rag.retrieval.corpus import Snapshot
from kosmos_rag.retrieval.search import Search


class Results:
    """Least recently used results, up to a number. Thread-safe.

    What is kept is never stale: the snapshot that a key is made of is read with each question, under row-level
    security, and says which documents and which indexes there are. Settings and models belong to the process.
    """

    def __init__(self, *, kept: int) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[Hashable, Retrieval] = LRUCache(maxsize=kept)

    def find(self, key: Hashable) -> Retrieval | None:
        """Return what is kept under a key."""
        with self._lock:
            result = self._kept.get(key)
        return None if result is None else _unshared(result)

    def keep(self, key: Hashable, result: Retrieval) -> None:
        """Keep a result, except one without a stage that it should have had: the next may have it."""
        if result.skipped or not self._kept.maxsize:
            return
        with self._lock:
            self._kept[key] = _unshared(result)


def _unshared(result: Retrieval) -> Retrieval:
    """Return the result with metadata of its own: a caller may change what it gets."""
    return replace(result, hits=tuple(replace(hit, metadata=deepcopy(hit.metadata)) for hit in result.hits))


def key_of(search: Search, expansion: Expansion, snapshot: Snapshot) -> Hashable:
    """Return all that a result follows from, beside the settings and the models of the process."""
    request, index = search.request, snapshot.vector_index
    return (
        search.tenant.id,
        frozenset(search.principals),
        search.collection,
        request.question,
        request.k,
        tuple(request.filter.sources),
        json.dumps(request.filter.where, sort_keys=True, default=repr),
        expansion,
        snapshot.space_id,
        index and (index.id, index.probes, index.ef_search),
        tuple((corpus.collection, corpus.epoch, corpus.segments) for corpus in snapshot.corpora),
    )
