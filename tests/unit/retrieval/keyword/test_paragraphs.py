"""A text as its paragraphs."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.retrieval.keyword.paragraphs import split_paragraphs

LINES = st.lists(st.sampled_from(["", " ", "\t", "a", "  b ", "c d", "\u3000", "e\x0c", "\xa0"]), max_size=30)


def _texts(text: str) -> list[str]:
    return [paragraph.text for paragraph in split_paragraphs(text)]


def test_split_paragraphs__cuts_at_blank_lines_and_trims() -> None:
    assert _texts("\n\n  one\ntwo  \n\nthree\n\n\n\nfour\n") == ["one\ntwo", "three", "four"]


def test_split_paragraphs__gives_nothing_for_a_blank_text() -> None:
    assert _texts("") == _texts(" \n\t\n\r\n ") == []


@pytest.mark.parametrize("blank", ["\n\n", "\n \t\n", "\r\n\r\n", "\r\n  \r\n", "\r\r", "\n\xa0\n", "\n\n\n \n\n"])
def test_split_paragraphs__takes_any_white_space_and_line_end_for_a_blank_line(blank: str) -> None:
    assert _texts(f"one{blank}two") == ["one", "two"]


def test_split_paragraphs__keeps_a_line_end_that_stands_alone() -> None:
    assert _texts("one\r\ntwo\rthree\nfour") == ["one\ntwo\nthree\nfour"]


def test_split_paragraphs__tells_lines_and_source() -> None:
    [first, second] = split_paragraphs("\r\none\r\ntwo\r\n\r\n \r\nthree", "docs.txt")
    assert (first.line_start, first.line_end, first.source) == (2, 3, "docs.txt")
    assert (second.line_start, second.line_end, second.source) == (6, 6, "docs.txt")


@given(LINES)
def test_split_paragraphs__each_is_its_lines_and_between_them_is_white_space(lines: list[str]) -> None:
    paragraphs = list(split_paragraphs("\n".join(lines)))
    assert all(p.text == "\n".join(lines[p.line_start - 1 : p.line_end]).strip() and p.text for p in paragraphs)
    assert all(before.line_end + 1 < after.line_start for before, after in pairwise(paragraphs))
    inside = {number for p in paragraphs for number in range(p.line_start, p.line_end + 1)}
    assert inside == {number for number, line in enumerate(lines, start=1) if line.strip()}
