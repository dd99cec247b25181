"""Line breaks of wrapped paragraphs are spaces; those of addresses, lists, tables and code stay."""

import pytest

from kosmos_rag.apps.http.console.document_text import join_wrapped_lines

WRAPPED = """Annual leave

All full-time employees receive twenty-five days of
paid annual leave in each calendar year. The leave
is granted by the head of the department, who
answers within five working days.

The request is made in the portal at least two weeks
before the first day."""

LEAVE = (
    "All full-time employees receive twenty-five days of paid annual leave in each calendar year. The leave is "
    "granted by the head of the department, who answers within five working days."
)


def test_wrapped_lines__are_joined_by_paragraph_at_the_same_length() -> None:
    joined = join_wrapped_lines(WRAPPED)
    assert joined.split("\n\n") == [
        "Annual leave",
        LEAVE,
        "The request is made in the portal at least two weeks before the first day.",
    ]
    assert len(joined) == len(WRAPPED)


@pytest.mark.parametrize(
    "text",
    [
        "Anna Muster\nMain Street 5\n3000 Bern",
        "Plan | Price of a month\nPlan: Basic; Price of a month: 12 euros\nPlan: Team; Price of a month: 40 euros",
        "Plan | Seats | Price of a month in euros\nBasic | 15 | 12 euros and no more\nTeam | 50 | 40 euros",
        "- The first item is as long as a line of prose is\n- The second item is as long as the first item",
        "def answer(question: str, documents: list[str]) -> str:\n    return documents[0] if documents else question",
        "These are the conditions of the contract, in order:\nthe first condition is the longest of all of them",
        "",
    ],
)
def test_other_lines__stay(text: str) -> None:
    assert join_wrapped_lines(text) == text
