"""Scorers of evidence: they compare text units with a question by a model."""

import hashlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from kosmos_rag.core.errors import ModelError, reader_message
from kosmos_rag.core.protocols import Embedder, Reranker, Vectors
from kosmos_rag.core.telemetry import usage

# Loss for each passage before its own: retrieval has seen more of a passage than one unit.
RANK_LOSS = 0.05
# Score of a unit that answers as often as not, and the steepness around it (docs/benchmarks/tuning-log.md).
EVEN_SCORE = 0.88
STEEPNESS = 3.0
# Units that are compared by meaning, those with most words of the question: none of nine sets loses by it
# (docs/benchmarks/tuning-log.md).
MAX_COMPARED = 16
# Units that the embedder compares together: the first ones may all have the words of a question and none of its
# meaning, and then say nothing of the others (docs/benchmarks/tuning-log.md).
_COMPARED_TOGETHER = 8
# A unit that scores less than this share of the best one adds nothing to it.
MIN_RELATIVE_SCORE = 0.85
_CACHED_BYTES = 16 * 1024 * 1024
"""Of the vectors of units: ten thousand of 384 dimensions."""


Similarities = list[NDArray[np.float32]]
"""For each question its similarity to each text."""
RerankerRun = Callable[[str, Callable[[], Similarities]], Similarities]
"""Runs calls of a reranker for a question, with a span, a slot and a deadline. Raises ModelError."""


class BatchSize(Protocol):
    """How many units a call has, learned from the time that calls take. Thread-safe."""

    passages: int

    def learn(self, passages: int, milliseconds: float) -> None:
        """Choose the next size by the time of a batch."""
        ...


class EvidenceScorer(Protocol):
    """A model that scores text units as evidence for a question. Thread-safe."""

    def compare(
        self, questions: Sequence[str], texts: Sequence[str], shares: Sequence[Sequence[float]]
    ) -> list[NDArray[np.float32]]:
        """Return for each question its similarity to each text. Raises ModelError.

        Args:
            questions: The questions, or the parts of one.
            texts: Units after the titles of their sections, at least one; those of the first passage come first.
            shares: For each question the share of its words in each text, 0 to 1.
        """
        ...

    def build_parts(self, similarity: float, words: float, index: int) -> dict[str, float]:
        """Return the parts of a unit's score by name; the score is their sum.

        Args:
            similarity: What `compare` returned for it.
            words: Share of the question's words in the unit and the title of its section, 0 to 1.
            index: Number of its passage, from 1.
        """
        ...

    def confidence(self, score: float) -> float:
        """Return the probability that evidence whose best unit has this score answers the question."""
        ...


class EmbeddingScorer:
    """Scores a unit by cosine similarity, shared words and the rank of its passage.

    Vectors of units are cached: questions share their passages, and embedding them takes most of the time of an answer.
    """

    def __init__(
        self, embedder: Embedder, *, embed_question: Callable[[str], NDArray[np.float32]] | None = None
    ) -> None:
        """Prepare an empty cache.

        Args:
            embedder: Embeds the units.
            embed_question: Returns the vector that the search had; None embeds each question again.
        """
        self._embedder = embedder
        self._embed_question = embed_question or embedder.embed_query
        self._vectors: LRUCache[bytes, NDArray[np.float32]] = LRUCache(_CACHED_BYTES, getsizeof=lambda row: row.nbytes)
        self._lock = threading.Lock()

    def compare(
        self, questions: Sequence[str], texts: Sequence[str], shares: Sequence[Sequence[float]]
    ) -> list[NDArray[np.float32]]:
        """Return the cosine similarities.

        Units are compared in the order of their words. It is 0 for texts that no answer would quote: even with the
        highest similarity so far they would be too far below the best one. Each text is embedded once.

        Args: see `EvidenceScorer.compare`.
        """
        return [
            self._compare(self._embed_question(question), texts, np.asarray(row))
            for question, row in zip(questions, shares, strict=True)
        ]

    def _compare(
        self, question: NDArray[np.float32], texts: Sequence[str], shares: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        similarities = np.zeros(len(texts), dtype=np.float32)
        places = _choose_compared(shares)
        highest = best = 0.0
        while places.size:
            compared, places = places[:_COMPARED_TOGETHER], places[_COMPARED_TOGETHER:]
            similarities[compared] = cosines(self._embed([texts[place] for place in compared]), question)
            highest = max(highest, similarities[compared].max())
            best = max(best, (shares[compared] + similarities[compared]).max())
            places = places[shares[places] + highest >= MIN_RELATIVE_SCORE * best]
        return similarities

    def _embed(self, texts: Sequence[str]) -> Vectors:
        keys = {text: hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts}
        with self._lock:
            rows = {text: row for text, key in keys.items() if (row := self._vectors.get(key)) is not None}
        if missing := [text for text in keys if text not in rows]:
            # Copies: a row of the batch would keep the whole batch.
            embedded = {text: row.copy() for text, row in zip(missing, self._embedder.embed(missing), strict=True)}
            with self._lock:
                self._vectors.update((keys[text], row) for text, row in embedded.items())
            rows |= embedded
        return np.stack([rows[text] for text in texts])

    def build_parts(self, similarity: float, words: float, index: int) -> dict[str, float]:
        """Return `meaning`, `words` and `rank`. Args: see `EvidenceScorer.build_parts`."""
        return {"meaning": max(0.0, similarity), "words": words, "rank": RANK_LOSS * (1 - index)}

    def confidence(self, score: float) -> float:
        """Return the logistic function of the score around `EVEN_SCORE`."""
        return 1 / (1 + math.exp(-STEEPNESS * (score - EVEN_SCORE)))


class RerankingScorer:
    """Scores a unit by a reranker, whose relevance is a probability already."""

    def __init__(self, reranker: Reranker, batch_size: BatchSize, run: RerankerRun | None = None) -> None:
        """Prepare the scorer.

        Args:
            reranker: Reads question and unit together.
            batch_size: Units of one call; not that of passages, which are longer.
            run: Bounds the time of the calls; None calls the reranker in this thread until it ends.
        """
        self._reranker = reranker
        self._batch_size = batch_size
        self._run = run

    def compare(
        self,
        questions: Sequence[str],
        texts: Sequence[str],
        shares: Sequence[Sequence[float]],
    ) -> list[NDArray[np.float32]]:
        """Return the relevance of each text, 0 to 1. Raises ModelError, also past the deadline.

        It is 0 for texts that are not among those with most words of the question; of equal shares the first passages
        count. Texts of similar length share a call, so that little is padded.

        Args: see `EvidenceScorer.compare`.
        """
        # A call past its deadline continues in its thread: no batch follows the running one.
        stopped = threading.Event()

        def score_all() -> Similarities:
            return [
                self._score_units(question, texts, row, stopped)
                for question, row in zip(questions, shares, strict=True)
            ]

        try:
            return score_all() if self._run is None else self._run(questions[0], score_all)
        finally:
            stopped.set()

    def _score_units(
        self, question: str, texts: Sequence[str], shares: Sequence[float], stopped: threading.Event
    ) -> NDArray[np.float32]:
        order = sorted(map(int, _choose_compared(shares)), key=lambda at: -len(texts[at]))
        scores = np.zeros(len(texts), dtype=np.float32)
        while order and not stopped.is_set():
            size = self._batch_size.passages  # read once: other threads change it
            places, order = order[:size], order[size:]
            began = time.monotonic()
            scores[places] = self._score(question, [texts[at] for at in places])
            self._batch_size.learn(len(places), (time.monotonic() - began) * 1000)
        return scores

    def build_parts(self, similarity: float, words: float, index: int) -> dict[str, float]:  # noqa: ARG002
        """Return `relevance` alone: the model has read the words, and has ordered the passages.

        Args: see `EvidenceScorer.build_parts`.
        """
        return {"relevance": similarity}

    def confidence(self, score: float) -> float:
        """Return the score."""
        return score

    def _score(self, question: str, texts: list[str]) -> NDArray[np.float32]:
        try:
            scores = np.asarray(self._reranker.score(question, texts), dtype=np.float32)
        except ModelError:
            raise
        except Exception as error:  # a reranker of the caller may raise anything
            raise ModelError(f"the reranker failed: {reader_message(error)}") from error
        if scores.shape != (len(texts),) or not np.isfinite(scores).all():
            raise ModelError("the reranker did not give one finite score for each unit")
        usage.record(usage.Quantity.RERANKED_PASSAGES, len(texts), self._reranker.name)
        return scores


def _choose_compared(shares: Sequence[float] | NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the places of the units with most words of a question."""
    # Sorting is stable: of equal shares the first passages count.
    return np.argsort(-np.asarray(shares), kind="stable")[:MAX_COMPARED]


def cosines(vectors: Vectors, vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosine similarity of each row to a vector.

    The result is 0 where a norm is 0.
    """
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(vector)
    return (vectors @ vector / np.where(lengths > 0, lengths, 1)).astype(np.float32)
