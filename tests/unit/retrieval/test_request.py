"""Questions that cannot be asked are refused with a reason; the rest is made fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.errors import RequestError
from kosmos_rag.records import Filter
from kosmos_rag.retrieval.request import request


def _ask(question: str = "what", k: object = 5, **options: object) -> str:
    return request(question, k=k, max_chars=100, filter=options.get("filter")).question  # type: ignore[arg-type]


@pytest.mark.parametrize("question", ["", "   ", "\n\t\x00", "\ud800"])
def test_question__that_is_blank_is_refused(question: str) -> None:
    with pytest.raises(RequestError, match="the question is empty"):
        _ask(question)


def test_question__that_is_too_long_is_refused_with_its_length() -> None:
    with pytest.raises(RequestError, match=r"has 101 characters and rag\.retrieval\.max_question_chars allows 100"):
        _ask("x" * 101)


@pytest.mark.parametrize("k", [0, -1, 1001, 2.5, "5", True, None])
def test_k__out_of_range_is_refused(k: object) -> None:
    with pytest.raises(RequestError, match="ask for 1 to 1000 hits"):
        _ask(k=k)


@pytest.mark.parametrize("value", [object(), [1], {"a": 1}, float("inf")])
def test_filter__of_a_wrong_type_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match="filter on metadata 'x'"):
        _ask(filter=Filter(metadata={"x": value}))


def test_question__keeps_its_words_and_loses_control_characters() -> None:
    assert _ask("how\x00 is\u0085 'churn' calculated?\n") == "how is 'churn' calculated?"


@given(st.text(max_size=80))
def test_question__is_refused_or_fit_for_postgres(question: str) -> None:
    try:
        cleaned = _ask(question)
    except RequestError:
        return
    assert cleaned.strip()
    assert "\x00" not in cleaned
    cleaned.encode()
