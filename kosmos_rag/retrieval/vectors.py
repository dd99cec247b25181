"""Vectors of questions, kept for when they are asked again."""

import threading
from collections.abc import Callable

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from kosmos_rag.ports import Embedder


class QuestionVectors:
    """Vectors by one embedder, which is one embedding space; the least recently used are dropped. Thread-safe."""

    def __init__(self, embedder: Embedder, *, kept: int) -> None:
        self._embedder = embedder
        keep = cached(LRUCache(maxsize=kept), lock=threading.Lock())
        self._of_question: Callable[[str], NDArray[np.float32]] = keep(self._embedded)

    def of(self, question: str, passage: str | None) -> NDArray[np.float32]:
        """Return the question's vector; with a passage that could answer it, the mean of both, of length one.

        Source of the mean: Gao, Ma, Lin and Callan, "Precise Zero-Shot Dense Retrieval without Relevance Labels"
        (2022), section 3.2.
        """
        vector = self._of_question(question)
        if passage is None:
            return vector
        mean: NDArray[np.float32] = vector + self._embedder.embed([passage])[0]
        mean /= np.linalg.norm(mean)
        return mean

    def _embedded(self, question: str) -> NDArray[np.float32]:
        vector = self._embedder.embed_query(question)
        vector.setflags(write=False)  # all who ask share it
        return vector
