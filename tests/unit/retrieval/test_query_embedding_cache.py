"""Query embeddings: computed once, shared, and bounded in number."""

import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.cache import QueryEmbeddingCache
from tests.waiting import eventually


class CountingEmbedder(HashingEmbedder):
    """Counts how often each question was embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def embed_query(self, question: str) -> NDArray[np.float32]:
        with self._lock:
            self.calls[question] += 1
        return super().embed_query(question)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


def test_question__is_embedded_once(embedder: CountingEmbedder) -> None:
    vectors = QueryEmbeddingCache(embedder, size=10)
    first = vectors.get("churn rate", None)
    assert np.array_equal(first, HashingEmbedder().embed_query("churn rate"))
    assert vectors.get("churn rate", None) is first
    vectors.get("Churn rate", None)
    assert embedder.calls == {"churn rate": 1, "Churn rate": 1}


def test_vector__that_is_shared_cannot_be_written(embedder: CountingEmbedder) -> None:
    vector = QueryEmbeddingCache(embedder, size=10).get("churn", None)
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


def test_questions__least_recently_asked_are_dropped(embedder: CountingEmbedder) -> None:
    vectors = QueryEmbeddingCache(embedder, size=2)
    for question in ("a", "b", "a", "c", "a", "b"):
        vectors.get(question, None)
    assert embedder.calls == {"a": 1, "b": 2, "c": 1}


def test_questions__none_are_kept_where_none_shall_be(embedder: CountingEmbedder) -> None:
    vectors = QueryEmbeddingCache(embedder, size=0)
    first, second = vectors.get("a", None), vectors.get("a", None)
    assert embedder.calls == {"a": 2}
    assert np.array_equal(first, second)


def test_questions__from_several_threads_have_one_vector_each(embedder: CountingEmbedder) -> None:
    vectors = QueryEmbeddingCache(embedder, size=100)
    questions = [f"question {number}" for number in range(50)]
    together = threading.Barrier(8)

    def ask(seed: int) -> dict[str, NDArray[np.float32]]:
        mixed = random.Random(seed).sample(questions, len(questions))
        together.wait(timeout=10)
        return {question: vectors.get(question, None) for question in mixed}

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
        before = embedder.calls.copy()
        again = list(pool.map(ask, range(8)))
    assert embedder.calls == before
    for question in questions:
        assert np.array_equal(answers[0][question], HashingEmbedder().embed_query(question))
        assert len({id(answer[question]) for answer in answers + again}) == 1


def test_question__that_cannot_be_embedded_fails_for_all_who_wait_for_it() -> None:
    """One after the other they would wait for a model that hangs."""
    ends, calls = threading.Event(), list[str]()

    class HangingEmbedder(HashingEmbedder):
        def embed_query(self, question: str) -> NDArray[np.float32]:
            calls.append(question)
            ends.wait(timeout=30)
            raise ModelUnavailable("no answer within 5 s")

    vectors = QueryEmbeddingCache(HangingEmbedder(), size=10)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(vectors.get, "churn", None) for _ in range(4)]
        eventually(lambda: vectors.hits + vectors.misses == 4)
        ends.set()
        errors = [future.exception(timeout=30) for future in futures]
    assert (calls, [type(error) for error in errors]) == (["churn"], [ModelUnavailable] * 4)
    with pytest.raises(ModelUnavailable):
        vectors.get("churn", None)
    assert len(calls) == 2


def test_passage__is_meant_with_the_question(embedder: CountingEmbedder) -> None:
    """Two unit vectors at a right angle: their mean, of length one, has 1/√2 of each."""
    vectors = QueryEmbeddingCache(embedder, size=10)
    question, passage = vectors.get("churn", None), HashingEmbedder().embed_query("accounts")
    assert float(question @ passage) == 0
    mean = vectors.get("churn", "accounts")
    assert mean == pytest.approx((question + passage) / np.sqrt(2), abs=1e-6)
    assert mean.dtype == np.float32
    # What was kept is still the question's own.
    assert np.array_equal(vectors.get("churn", None), HashingEmbedder().embed_query("churn"))
    assert embedder.calls["churn"] == 2
