"""Vectors of questions, kept for when they are asked again."""

import threading

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from kosmos_rag.ports import Embedder


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
