"""The ranking by BM25."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.keyword.bm25 import Bm25Ranking, tokens

WORDS = st.lists(st.sampled_from("abcde"), max_size=8).map(" ".join)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT SUM(amount) FROM sales;", ["select", "sum", "amount", "from", "sales"]),
        ("customer_type: VARCHAR(50)", ["customer", "type", "varchar", "50"]),
        ("__total__sales__", ["total", "sales"]),
        ("Straße ＳＡＬＥＳ", ["strasse", "sales"]),
        ("e\u0301te\u0301", ["été"]),
        ("--- *** _", []),
    ],
)
def test_tokens__are_words_without_punctuation_and_identifiers_in_parts(text: str, words: list[str]) -> None:
    assert tokens(text) == words


def test_scores__finds_an_identifier_by_its_words_and_words_by_an_identifier() -> None:
    ranking = Bm25Ranking(["customer_type VARCHAR", "customer of a type", "region"])
    for query in ("customer type", "customer_type", "Customer-Type?"):
        first, second, other = ranking.scores(query)
        assert first > second > other == 0


def test_scores__a_phrase_counts_where_it_stands_in_whole_words() -> None:
    ranking = Bm25Ranking(["Total: sales!", "subtotal sales", "sales total"])
    phrase, within, turned = ranking.scores("total sales")
    assert phrase == pytest.approx(turned + 10)
    assert within < 10


@given(texts=st.lists(WORDS, min_size=1, max_size=8), query=WORDS)
def test_scores__are_the_formula_of_robertson_with_lucenes_idf_and_the_phrase(texts: list[str], query: str) -> None:
    corpus = [text.split() for text in texts]
    average = sum(map(len, corpus)) / len(corpus)
    holding = Counter(word for words in corpus for word in set(words))

    def score(words: list[str]) -> float:
        total = 0.0
        for word in query.split():
            idf = math.log(1 + (len(corpus) - holding[word] + 0.5) / (holding[word] + 0.5))
            frequency = words.count(word)
            if frequency:
                total += idf * frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * len(words) / average))
        parts = query.split() and f" {query} " in f" {' '.join(words)} "
        return total + (10 if parts else 0)

    assert Bm25Ranking(texts).scores(query) == pytest.approx([score(words) for words in corpus])


@given(texts=st.lists(WORDS, min_size=1, max_size=4), query=WORDS)
def test_scores__are_above_nothing_exactly_where_a_word_is_shared(texts: list[str], query: str) -> None:
    """The library's own frequency gives 0 or less for a word of half of the paragraphs."""
    shared = [bool(set(text.split()) & set(query.split())) for text in texts]
    assert [score > 0 for score in Bm25Ranking(texts).scores(query)] == shared


def test_scores__are_nothing_where_no_text_or_no_query_has_a_word() -> None:
    assert Bm25Ranking(["---", "***"]).scores("---") == [0, 0]
    assert Bm25Ranking(["a", "---"]).scores("---") == [0, 0]
