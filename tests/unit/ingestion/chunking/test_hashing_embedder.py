"""The embedder that the tests of this folder stand on."""

import numpy as np
import pytest

from kosmos_rag.models.testing.hashing import HashingEmbedder


def test_embed__gives_unit_vectors_that_are_nearer_for_shared_words() -> None:
    near, far, question = HashingEmbedder().embed(["churn is lost customers", "rain falls on hills", "what is churn"])
    assert np.linalg.norm([near, far, question], axis=1) == pytest.approx(1)
    assert question @ near > question @ far


@pytest.mark.parametrize("text", ["", " \n", "?!"])
def test_embed__of_a_text_without_words(text: str) -> None:
    assert HashingEmbedder(dimensions=3).embed([text]).tolist() == [[1, 0, 0]]


def test_embed__of_no_texts() -> None:
    assert HashingEmbedder(dimensions=3).embed([]).shape == (0, 3)


def test_embed__ignores_what_is_past_max_tokens() -> None:
    embedder = HashingEmbedder(max_tokens=3)
    assert (embedder.embed_query("one two three four") == embedder.embed_query("one two three")).all()


def test_tokenizer__cuts_long_words_and_places_every_token() -> None:
    tokenizer = HashingEmbedder().tokenizer
    text = "Retrievals, étude"
    assert [text[start:end] for start, end in tokenizer.offsets(text)] == ["Retrie", "vals", ",", "étude"]
    assert tokenizer.count([text, ""]) == [4, 0]
