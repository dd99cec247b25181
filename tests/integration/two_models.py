"""Two models without weights whose scores tell them apart, and which of them answered."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kosmos_rag import SourceDocument
from kosmos_rag.core.types import SearchResult
from kosmos_rag.models.testing.hashing import HashingEmbedder

_TOLERANCE = 1e-3
"""Vectors are stored in half precision."""


class OtherEmbedder(HashingEmbedder):
    """Another model: any two texts are more alike to it, so that a score tells whose it is."""

    def embed_query(self, question: str) -> NDArray[np.float32]:
        return super().embed_query(f"other {question}")


OLD, NEW = HashingEmbedder(dimensions=384), OtherEmbedder(dimensions=768)


def document(number: int, **more: Any) -> SourceDocument:
    """A document of one chunk, found by its text alone."""
    text = f"churn of account{number} in region{number % 7}"
    return SourceDocument(source=f"d{number}", data=text.encode(), **more)


def find_model(result: SearchResult) -> str:
    """Return the one model that the scores of all hits are by; fails where there is none, or they are mixed."""
    scored = [hit for hit in result.hits if hit.dense_score is not None]
    fitting = [
        embedder.name
        for embedder in (OLD, NEW)
        if all(
            abs(_cosine(embedder, result.question, hit.text) - (hit.dense_score or 0.0)) < _TOLERANCE for hit in scored
        )
    ]
    assert len(fitting) == 1, (result.question, fitting, [(hit.text, hit.dense_score) for hit in scored])
    return fitting[0]


def _cosine(embedder: HashingEmbedder, question: str, text: str) -> float:
    return float(embedder.embed_query(question) @ embedder.embed_query(text))
