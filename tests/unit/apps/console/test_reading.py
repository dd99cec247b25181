"""Lines of a source: numbers, the cited ones, and the marked words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.apps.http.console.source_view import CONTEXT_LINES, PAGE_LINES, build_source_view
from tests.document_lines import lines_of

TEXT = "# Leave\n\nEmployees get 20 days.\nNobody gets more.\n"


def test_reading__marks_the_very_words_and_cites_their_lines() -> None:
    start = TEXT.index("20 days")
    shown = build_source_view(lines_of(TEXT), passage=(start - 14, start + 8), marks=[(start, start + 7)])
    (cited,) = [line for line in shown.lines if line.cited]
    assert cited.number == 3
    assert [(piece.text, piece.marked) for piece in cited.pieces] == [
        ("Employees get ", False),
        ("20 days", True),
        (".", False),
    ]


def test_reading__counts_from_where_the_lines_begin() -> None:
    shown = build_source_view(
        lines_of("later\nlines", start=1000, line_start=50, total=400), passage=None, marks=[(1006, 1011)]
    )
    assert [line.number for line in shown.lines] == [50, 51]
    assert [piece.text for line in shown.lines for piece in line.pieces if piece.marked] == ["lines"]
    assert (shown.before, shown.after) == (1, 52 + CONTEXT_LINES)


def test_reading__cuts_what_is_too_long_but_shows_the_passage() -> None:
    text = "x" * 200_000
    passage = (150_000, 150_100)
    shown = build_source_view(lines_of(text), passage=passage, marks=[passage])
    assert shown.cut
    (line,) = shown.lines
    assert (line.cut_before, line.cut_after) == (True, False)
    assert sum(len(piece.text) for piece in line.pieces if piece.marked) == 100


@pytest.mark.parametrize("passage", [(0, 10**9 - 1), (9_000_000, 9_000_100), (4_000_000, 8_000_000), None])
def test_reading__is_as_long_as_a_page_wherever_an_address_points(passage: Span | None) -> None:
    text = "before\n" * 20 + "x" * 10_000_000 + "\nafter" * 20
    shown = build_source_view(lines_of(text), passage=passage, marks=[passage] if passage else [])
    assert sum(len(piece.text) for line in shown.lines for piece in line.pieces) <= 120_000
    assert shown.cut
    assert len(shown.lines) == 41
    if passage:
        assert any(piece.marked for line in shown.lines for piece in line.pieces)


@given(st.text(alphabet="ab\n", max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4))
def test_reading__loses_no_character_whatever_is_marked(text: str, marks: list[tuple[int, int]]) -> None:
    shown = build_source_view(lines_of(text), passage=None, marks=marks)
    assert "\n".join("".join(piece.text for piece in line.pieces) for line in shown.lines) == text
    assert len(shown.lines) <= PAGE_LINES
    for place in range(len(text)):
        if text[place] != "\n":
            line = shown.lines[text.count("\n", 0, place)]
            at = text.rfind("\n", 0, place) + 1
            for piece in line.pieces:
                if at <= place < at + len(piece.text):
                    assert piece.marked == any(start <= place < end for start, end in marks)
                at += len(piece.text)
