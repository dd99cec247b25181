"""Headings of text without markup, told by how they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.parsing.headings import find_plain_headings

HANDBOOK = """LEAVE POLICY

All full-time employees receive 20 days of paid annual leave per year.

1. Purpose
This policy says who may take leave, and when.

1.1 Who It Applies To

It applies to all staff.

Annual Leave Entitlement

Leave is accrued monthly.
It is taken in whole days.

CARRY-OVER AND PAYMENT
Five days at most.
"""


def list_headings(text: str) -> list[tuple[int, str]]:
    return [(heading.level, heading.title) for heading in find_plain_headings(text)]


def test_find_plain_headings__capitals_numbers_and_title_case() -> None:
    headings = find_plain_headings(HANDBOOK)
    assert [(heading.level, heading.title) for heading in headings] == [
        (1, "LEAVE POLICY"),
        (2, "1. Purpose"),
        (3, "1.1 Who It Applies To"),
        (2, "Annual Leave Entitlement"),
        (1, "CARRY-OVER AND PAYMENT"),
    ]
    for heading in headings:
        assert HANDBOOK[heading.start :].startswith(heading.title)


@pytest.mark.parametrize(
    "line",
    [
        "Leave is accrued monthly.",
        "It applies to all staff",
        "1. Fill in the form.",
        "20 days of paid leave",
        "Please Note:",
        "Can I Carry Leave Over?",
        "42",
        "- - -",
        "A",
        "WORD " * 30,
    ],
)
def test_find_plain_headings__not_of_sentences_and_noise(line: str) -> None:
    assert list_headings(f"{line}\n\nText follows here.") == []


def test_find_plain_headings__not_of_numbered_steps() -> None:
    assert list_headings("Steps of the procedure follow.\n\n1. Open Portal\n2. Press Button\n3. Wait\n") == []


def test_find_plain_headings__not_within_a_paragraph() -> None:
    assert list_headings("The name of the office is\nNorth Tower\nand it is large.") == []


def test_find_plain_headings__of_two_in_a_row() -> None:
    assert list_headings("SECURITY\nAccess Control\n\nBadges are worn.") == [(1, "SECURITY"), (2, "Access Control")]


@given(st.text(alphabet="AB ab1.\n", max_size=60))
def test_find_plain_headings__are_lines_of_the_text_in_order(text: str) -> None:
    headings = find_plain_headings(text)
    assert [heading.start for heading in headings] == sorted({heading.start for heading in headings})
    assert all(text[heading.start :].startswith(heading.title) for heading in headings)
