"""Questions that cannot be asked are refused with a reason; the rest is made fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Filter
from kosmos_rag.retrieval.query import Query, QueryRequest, parse_operators, parse_query
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import tenant


def _parse(question: str = "what", k: object = 5, max_chars: int = 100, filter: Filter | None = None) -> Query:  # noqa: A002
    reader = AuditContext(tenant=tenant("acme"), principals=("everyone",), subject=None, collection=None)
    request = QueryRequest(text=question, k=k, filter=filter)  # type: ignore[arg-type]
    return parse_query(request, reader, max_chars=max_chars)


def _ask(question: str = "what", k: object = 5, max_chars: int = 100, filter: Filter | None = None) -> str:  # noqa: A002
    return _parse(question, k, max_chars, filter).text


@pytest.mark.parametrize("question", ["", "   ", "\n\t\x00", "\ud800"])
def test_question__that_is_blank_is_refused(question: str) -> None:
    with pytest.raises(RequestError, match="the question is empty"):
        _ask(question)


def test_question__that_is_too_long_is_refused_with_its_length() -> None:
    with pytest.raises(RequestError, match=r"has 101 characters and rag\.retrieval\.max_question_chars allows 100"):
        _ask("x" * 101)


@pytest.mark.parametrize("k", [0, -1, 1001, 2.5, "5", True])
def test_k__out_of_range_is_refused(k: object) -> None:
    with pytest.raises(RequestError, match="ask for 1 to 1000 hits"):
        _ask(k=k)


def test_filter__that_is_malformed_is_refused() -> None:
    with pytest.raises(RequestError, match=r"filter at where\['x'\] names no field"):
        _ask(filter=Filter(where={"x": 1}))


def test_question__is_parsed_and_kept_as_it_was_asked() -> None:
    parsed = _parse('how is\t"churn rate" -gross')
    assert parsed.text == 'how is "churn rate" -gross'
    assert parsed.parsed == parse_operators('how is "churn rate" -gross')
    assert parsed.filter == Filter()


def test_k__that_is_none_is_left_to_the_settings() -> None:
    assert _parse(k=None).k is None


def test_scope__binds_tenant_collection_and_the_compiled_filter() -> None:
    scope = _parse(filter=Filter(where={"title": "Churn"})).scope
    assert (scope["tenant_id"], scope["collection"]) == (tenant("acme").id, None)
    assert (scope["filtered"], scope["condition"]) == (True, '($."title" == $v0)')


def test_question__that_only_excludes_is_refused() -> None:
    with pytest.raises(RequestError, match="'-car -\"big cat\"' has only excluded terms; add words to search for"):
        _ask('-car -"big cat"')


@pytest.mark.parametrize("question", ['""', '-"" “ ”'])
def test_question__of_empty_quotes_is_refused(question: str) -> None:
    with pytest.raises(RequestError, match="the question is empty"):
        _ask(question)


def test_question__with_too_many_operators_is_refused() -> None:
    names = [f"{operator}a{index}" for index in range(16) for operator in "+-"]
    assert _ask(" ".join(names), max_chars=200)
    with pytest.raises(RequestError, match="has 33 phrases, required and excluded terms; use at most 32"):
        _ask(" ".join([*names, '"x y"']), max_chars=200)


def test_question__has_the_words_of_a_document_that_it_was_copied_from() -> None:
    assert _ask("Kündi\u00adgungs\u2060frist\ufeff?\u200e") == "Kündigungsfrist?"


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
