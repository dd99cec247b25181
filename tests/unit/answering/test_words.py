"""Words in one form, and their weights."""

import pytest

from kosmos_rag.answering.words import coverage, inverse_document_frequencies, stem, stems


@pytest.mark.parametrize(
    "words",
    ["calculate calculated calculation calculating", "refund refunds refunded", "retry retries", "cancelled canceled"],
)
def test_stem__is_one_for_the_forms_of_a_word(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


def test_stem__leaves_short_words_and_numbers() -> None:
    assert [stem(word) for word in ("is", "bus", "2025", "class")] == ["is", "bus", "2025", "class"]


def test_stems__leave_out_words_that_name_nothing_and_open_identifiers() -> None:
    assert stems("What is the `ended_at` of silver.refunds?") == ["end", "silver", "refund"]


def test_inverse_document_frequencies__is_higher_for_what_fewer_passages_have() -> None:
    pool = [frozenset("ab"), frozenset("a"), frozenset("a")]
    weights = inverse_document_frequencies(["a", "b", "c"], pool)
    assert weights["c"] > weights["b"] > weights["a"] > 0


def test_coverage__is_a_share_of_the_weights() -> None:
    assert coverage({"a": 1.0, "b": 3.0}, ["b", "b", "x"]) == 0.75
    assert coverage({}, ["a"]) == 0.0
