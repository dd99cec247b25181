"""What became of a quote in another version of its document."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.answering.citation_check import quote_status
from kosmos_rag.core.errors import RequestError
from tests.unit.answering.passages import passage

QUOTE = "Churn is lost accounts."
CITATION = passage(QUOTE, start=10).citation


def test_quote_status__unchanged() -> None:
    status = quote_status(CITATION, QUOTE, "0123456789" + QUOTE)
    assert (status.state, status.start, status.end, status.copies) == ("unchanged", 10, 10 + len(QUOTE), 1)


def test_quote_status__moved() -> None:
    status = quote_status(CITATION, QUOTE, "new words before it\n" + QUOTE)
    assert (status.state, status.start) == ("moved", 20)


def test_quote_status__gone() -> None:
    status = quote_status(CITATION, QUOTE, "Churn is lost money.")
    assert (status.state, status.start, status.end, status.copies) == ("gone", None, None, 0)


def test_quote_status__of_copies_is_the_nearest() -> None:
    status = quote_status(CITATION, QUOTE, QUOTE + QUOTE + "x" * 100 + QUOTE)
    assert (status.state, status.start, status.copies) == ("moved", 0, 3)


def test_quote_status__refuses_another_quote() -> None:
    with pytest.raises(RequestError, match=r"is not the one that \[1\] cites"):
        quote_status(CITATION, QUOTE + " ", QUOTE)


@given(before=st.text(max_size=50), after=st.text(max_size=50))
def test_quote_status__finds_it_wherever_it_is(before: str, after: str) -> None:
    text = before + QUOTE + after
    status = quote_status(CITATION, QUOTE, text)
    assert status.start is not None
    assert text[status.start : status.end] == QUOTE
