"""What counts as a word, and which words are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.expansion.words import normalize_words


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("Churn, by Region?", ["churn", "by", "region"]),
        ("e-mail churn_rate customer's", ["e", "mail", "churn", "rate", "customer", "s"]),
        ("STRASSE straße", ["strasse", "strasse"]),
        ("ﬁne Ｋｐｉ cafe\u0301 caf\u00e9", ["fine", "kpi", "caf\u00e9", "caf\u00e9"]),
        ("C++ or C#, not C.", ["c++", "or", "c#", "not", "c"]),
        (".NET and asp.net ... and node.js.", [".net", "and", "asp", "net", "and", "node", "js"]),
        ("A+B a++b C++/C#", ["a", "b", "a", "b", "c++", "c#"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("+ . # - …", []),
    ],
)
def test_words__of_a_text(text: str, result: list[str]) -> None:
    assert normalize_words(text) == result


@given(st.text())
def test_words__hold_no_white_space_and_something_to_read(text: str) -> None:
    for word in normalize_words(text):
        assert word.split() == [word]
        assert word.strip(".+#")


@given(st.text(), st.text())
def test_words__of_texts_side_by_side_are_the_words_of_both(text: str, other: str) -> None:
    assert normalize_words(f"{text}\n{other}") == normalize_words(text) + normalize_words(other)
