"""Embedding the texts of a batch: each once, and in pieces whose progress is reported."""

import uuid
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from kosmos_rag.core.protocols import Vectors
from kosmos_rag.ingestion.embedding import TEXTS_PER_CALL, TextVectors
from kosmos_rag.models.embedding.space import describe_space
from kosmos_rag.models.testing.hashing import HashingEmbedder


class _Recorded(HashingEmbedder):
    calls: list[list[str]]

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        return super().embed(texts)


def test_embed_missing__goes_on_in_pieces_of_similar_length() -> None:
    embedder = _Recorded()
    embedder.calls = []
    space = describe_space(uuid.uuid4(), embedder, normalized=True)
    texts = [f"number {'x' * (number * 37 % 101)} {number}" for number in range(2 * TEXTS_PER_CALL + 5)]
    vectors = TextVectors([*texts, texts[0]], [(space, embedder)])
    numbers: list[int] = []
    embedder.calls.clear()
    vectors.embed_missing(numbers.append)
    assert numbers == [TEXTS_PER_CALL, TEXTS_PER_CALL, 5]
    lengths = [[len(text) for text in call] for call in embedder.calls]
    assert [max(item) <= min(other) for item, other in pairwise(lengths)] == [True, True]
    selected = vectors.select(0, len(texts) + 1)[space.id]
    assert np.array_equal(selected, HashingEmbedder().embed([*texts, texts[0]]))
    vectors.embed_missing(numbers.append)
    assert len(numbers) == 3, "nothing is missing"
