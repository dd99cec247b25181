"""The classic ranking: words, phrase, SQL keywords."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.keyword.classic import ClassicRanking
from kosmos_rag.retrieval.keyword.context import KeywordContext

WORDS = ("select", "SUM", "sum(amount)", "sales", "Sales:", "by", "region", "total", "summary", "orders", "where", "x")
PHRASES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)


def _score(query: str, text: str) -> float:
    [score] = ClassicRanking([text]).scores(query)
    return score


@pytest.mark.parametrize(
    ("query", "text", "score"),
    [
        ("sales region", "the sales of a region", 2),
        ("sales sales", "sales and sales", 1),  # words are counted once
        ("Sales REGION", "sALES in a Region", 2),
        ("sales region", "the sales: of a region.", 0),  # white space alone separates words
        ("total sales", "all total sales here", 2 + 10),
        ("total sales", "Subtotal sales", 1 + 10),  # a phrase may begin within a word
        ("total sales", "sales total", 2),
        ("sum it", "SUM(amount)", 2),
        ("sum it", "a summary", 2),  # a keyword may stand within a word
        ("select sum of it", "SELECT SUM(amount)", 1 + 2 + 2),
        ("select it", "sum", 0),  # in both, or it does not count
        ("select sum count avg group where order", "order where group avg count sum select", 7 + 7 * 2),
        ("join it", "a join", 1),  # no keyword of these
        ("nothing", "else", 0),
    ],
)
def test_scores__are_those_of_the_documented_table(query: str, text: str, score: float) -> None:
    assert _score(query, text) == score


def test_search__leaves_out_what_scores_nothing_and_keeps_the_order_of_equals() -> None:
    context = KeywordContext.from_text("alpha\n\nnothing\n\nbeta alpha\n\ngamma alpha\n\nalpha beta", ranking="classic")
    result = context.search("beta or alpha", k=4)
    assert [(match.text, match.score) for match in result] == [
        ("beta alpha", 2),
        ("alpha beta", 2),
        ("alpha", 1),
        ("gamma alpha", 1),
    ]


def _as_specified(documents: list[str], query: str, k: int) -> list[str]:
    """The search as its specification writes it, line by line."""
    query_lower = query.lower()
    query_words = set(query_lower.split())
    scored_docs = []
    for doc in documents:
        doc_lower = doc.lower()
        doc_words = set(doc_lower.split())
        matches = len(query_words & doc_words)
        if query_lower in doc_lower:
            matches += 10
        for term in ["select", "sum", "count", "avg", "group", "where", "order"]:
            if term in query_lower and term in doc_lower:
                matches += 2
        if matches > 0:
            scored_docs.append((matches, doc))
    scored_docs.sort(key=lambda x: x[0], reverse=True)
    return [doc for _, doc in scored_docs[:k]]


@given(documents=st.lists(PHRASES, min_size=1, max_size=12), query=PHRASES, k=st.integers(1, 13))
def test_search__is_the_one_specified(documents: list[str], query: str, k: int) -> None:
    context = KeywordContext.from_text("\n\n".join(documents), ranking="classic")
    assert [match.text for match in context.search(query, k)] == _as_specified(documents, query, k)
