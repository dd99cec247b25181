"""Weights of a question: shares worked out by hand."""

import uuid

import pytest

from kosmos_rag.core.types import KnownItems
from kosmos_rag.retrieval.fusion import (
    CandidateList,
    adapt_weights,
    find_known_items,
    odds_factor,
    rank_candidates,
    words_decide,
)

IDENTIFIER = "what is error XJ-4471-B about"
EVEN = {"dense": 0.5, "dense 2": 0.5, "lexical": 0.5, "lexical 2": 0.5}


def _lists(coverage: float, *, terms: int = 1) -> dict[str, CandidateList]:
    candidates = [(uuid.UUID(int=1), coverage)] if coverage else []
    dense = rank_candidates([(uuid.UUID(int=1), 1.0)], limit=2, plan="exact scan", read={}, reason=None)
    lexical = rank_candidates(candidates, limit=2, plan="segments", read={}, reason=None, terms=terms, total_weight=1.0)
    return {"dense": dense, "dense 2": dense, "lexical": lexical, "lexical 2": lexical}


@pytest.mark.parametrize(
    ("coverage", "terms", "share"),
    [
        (0.0, 5, 0.0),  # no chunk contains a term
        (0.4, 6, 0.4394),  # a paraphrase: .78 to one
        (0.6, 9, 0.5902),  # a long question
        (1.3, 4, 0.6753),  # words of the text
        (2.5, 100, 0.9),  # the largest share
    ],
)
def test_adapt_weights__follows_coverage_and_terms(coverage: float, terms: int, share: float) -> None:
    adapted = adapt_weights(_lists(coverage, terms=terms), EVEN, by_words=False)
    expected = {"dense": 1 - share, "dense 2": 1 - share, "lexical": share, "lexical 2": share}
    assert adapted == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("coverage", "terms", "question", "decided"),
    [
        (0.8, 4, IDENTIFIER, True),
        (0.8, 1, "churn", True),
        (0.7, 4, IDENTIFIER, False),
        (0.7, 1, "churn", False),
        (0.8, 4, "monthly churn of accounts", False),
    ],
)
def test_words_decide__for_a_covered_name(coverage: float, terms: int, question: str, decided: bool) -> None:
    lists = _lists(coverage, terms=terms)
    assert words_decide(lists, question) is decided
    adapted = adapt_weights(lists, EVEN, by_words=decided)
    assert (adapted["lexical"] == pytest.approx(0.9)) is decided


def test_adapt_weights__begins_with_the_weights_of_the_settings() -> None:
    """.3 to .7 are odds of .43; a coverage of .625 of four terms has the evidence 1."""
    weights = {"dense": 0.7, "dense 2": 0.7, "lexical": 0.3, "lexical 2": 0.3}
    assert adapt_weights(_lists(0.625, terms=4), weights, by_words=False) == pytest.approx(weights)
    doubled = adapt_weights(_lists(1.25, terms=4), weights, by_words=False)
    assert doubled["lexical"] / doubled["dense"] == pytest.approx(2 * 0.3 / 0.7)


def test_adapt_weights__keeps_a_larger_share_of_the_settings() -> None:
    weights = {"dense": 0.05, "lexical": 0.95}
    adapted = adapt_weights(_lists(2.0, terms=4), weights, by_words=True)
    assert adapted == pytest.approx(weights)


def test_adapt_weights__of_one_retriever_changes_nothing() -> None:
    lists = {name: entry for name, entry in _lists(1.0).items() if name.startswith("dense")}
    assert adapt_weights(lists, {"dense": 0.5, "dense 2": 0.5}, by_words=True) == {"dense": 0.5, "dense 2": 0.5}
    assert not words_decide(lists, IDENTIFIER)


@pytest.mark.parametrize(
    ("dense", "lexical", "factor"),
    [
        (0.41, 1.0, 9.0),  # a model that does not know the language: sixty misses to one
        (0.67, 0.96, (34 / 5) / 4),
        (0.9, 0.97, 1.0),  # 11 misses to 4: words copied from the text
        (0.8, 0.8, 1.0),
        (0.9, 0.7, 11 / 31),  # words fail
        (1.0, 0.0, 1 / 9),
    ],
)
def test_odds_factor__follows_the_misses(dense: float, lexical: float, factor: float) -> None:
    assert odds_factor(KnownItems(questions=100, dense=dense, lexical=lexical)) == pytest.approx(factor)


def test_odds_factor__of_few_questions_is_about_one() -> None:
    assert odds_factor(KnownItems(questions=3, dense=0.0, lexical=1.0)) == 1.0


def test_adapt_weights__multiplies_the_odds_by_the_known_items() -> None:
    items = KnownItems(questions=100, dense=0.67, lexical=0.96)
    adapted = adapt_weights(_lists(0.625, terms=4), EVEN, by_words=False, known_items=items)
    assert adapted["lexical"] / adapted["dense"] == pytest.approx(34 / 5 / 4)


def test_find_known_items__chooses_the_language_of_the_question() -> None:
    english, german = (KnownItems(questions=10, dense=dense, lexical=0.9) for dense in (0.9, 0.3))
    unspaced = KnownItems(questions=20, dense=0.0, lexical=1.0)
    collections = [{"english": english, "german": german}, {"unspaced": unspaced}]
    assert find_known_items(collections, "what is the policy of the team") == english
    assert find_known_items(collections, "wie ist das geregelt") == german
    assert find_known_items(collections, "发票如何保存") == unspaced
    assert find_known_items(collections, "parental leave") == KnownItems(questions=40, dense=0.3, lexical=0.95)
    assert find_known_items([{}, {}], "what is it") is None
