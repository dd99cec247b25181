"""Questions that are made of texts."""

import random

import pytest

from kosmos_rag.indexing.known_items import make_question

SENTENCE = "The quarterly report names every supplier of the northern warehouse."


def test_make_question__keeps_half_of_the_words_of_one_sentence_in_order() -> None:
    first, second = "alpha beta gamma delta epsilon zeta eta theta", "one two three four five six"
    for seed in range(20):
        question = make_question(f"{first}. {second}.", random.Random(seed))
        assert question is not None
        words = question.split()
        sentence = (first if words[0] in first else second).split()
        assert len(words) == len(sentence) // 2
        assert words == [word for word in sentence if word in words]


def test_make_question__of_a_script_without_spaces_has_pieces_of_it() -> None:
    text = "黑豹队的防守在联赛中排名第六。"
    question = make_question(text, random.Random(1))
    assert question is not None
    assert all(piece in text for piece in question.split())


@pytest.mark.parametrize("text", ["", "Two words", "# Heading", "a. b. c."])
def test_make_question__of_a_text_without_a_sentence_is_none(text: str) -> None:
    assert make_question(text, random.Random(1)) is None


def test_make_question__is_the_same_for_the_same_chunk() -> None:
    assert make_question(SENTENCE, random.Random(7)) == make_question(SENTENCE, random.Random(7))
