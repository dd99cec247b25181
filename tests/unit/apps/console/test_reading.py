"""Pages of a source: where they begin, how long they are, and what is marked."""

import re

import pytest

from kosmos_rag.apps.http.console.document_text import Marks
from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.apps.http.console.source_view import PAGE_LINES, SourceView, build_source_view, first_line
from kosmos_rag.core.types import DocumentLines, DocumentSection
from tests.document_lines import build_lines

TEXT = "# Leave\n\n## Annual\n\nEmployees get 20 days.\nNobody gets more.\n"
SECTIONS = [DocumentSection(section=("Leave", "Annual"), line_start=3, line_end=6)]


def _view(lines: DocumentLines, passage: Span | None, marks: Marks | None = None) -> SourceView:
    return build_source_view(lines, sections=SECTIONS, passage=passage, marks=marks or Marks())


def _marked(view: SourceView) -> list[str]:
    return re.findall(r"<mark[^>]*>(.*?)</mark>", view.html)


def test_reading__marks_the_very_words_and_names_their_section() -> None:
    start = TEXT.index("20 days")
    output = _view(build_lines(TEXT), (start - 14, start + 8), Marks(exact=[(start, start + 7)]))
    assert _marked(output) == ["20 days"]
    assert output.section == "Annual"
    assert _marked(_view(build_lines(TEXT), (start - 14, start))) == ["Employees get "]


def test_reading__counts_from_where_the_lines_begin() -> None:
    lines = build_lines("later\nlines", start=1000, line_start=300, total=900)
    output = _view(lines, None, Marks(exact=[(1006, 1011)]))
    assert _marked(output) == ["lines"]
    assert output.after == 302
    assert output.before is not None
    # The page before may begin at a section, and must still reach the first line of this one.
    sections = [DocumentSection(section=("A",), line_start=line, line_end=line) for line in range(1, 300)]
    for outline in ([], sections[::60], sections[::7]):
        assert first_line(output.before, outline) + PAGE_LINES >= 300
        assert first_line(output.after, outline) <= 302


@pytest.mark.parametrize("passage", [(0, 10**9 - 1), (9_000_000, 9_000_100), (4_000_000, 8_000_000), None])
def test_reading__is_as_long_as_a_page_wherever_an_address_points(passage: Span | None) -> None:
    text = "before\n" * 20 + "x" * 10_000_000 + "\nafter" * 20
    output = _view(build_lines(text), passage)
    assert len(re.sub(r"<[^>]*>", "", output.html)) <= 60_010
    assert output.cut_after
    assert output.cut_before == (passage is not None and passage[0] > 0)
    if passage:
        assert _marked(output)
