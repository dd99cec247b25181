"""Places that a person finds: cells, paragraphs, anchors, attachments."""

from io import BytesIO
from itertools import pairwise

import docx
import openpyxl
import pytest

from kosmos_rag.core.types import PlaceSpan, SourceDocument
from kosmos_rag.core.types.places import cell_range, find_place
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.compose import Composition
from kosmos_rag.parsing.limits import UNLIMITED
from kosmos_rag.parsing.tables.sheets import Sheet


def places(source: str, data: bytes) -> dict[str, str]:
    """Return the places in words or the anchor, by the first line of their text."""
    parsed = parse(SourceDocument(source=source, data=data))
    spans = parsed.places
    assert all(before.end <= after.start for before, after in pairwise(spans))
    assert all(0 <= span.start < span.end <= len(parsed.text) for span in spans)
    return {
        parsed.text[span.start : span.end].split("\n")[0]: span.place.words or f"#{span.place.anchor}" for span in spans
    }


def test_xlsx__cells_are_those_of_the_file_where_rows_and_columns_are_hidden() -> None:
    workbook = openpyxl.Workbook()
    sheet = workbook.active
    sheet.title = "Sales"
    for row in (["Region", "Unit", "Sum"], ["North", "t", 1], ["South", "t", 2], ["West", "t", 3]):
        sheet.append(["", *row])
    sheet["B9"] = "Reviewed in May"
    sheet.row_dimensions[3].hidden = True
    sheet.column_dimensions["C"].hidden = True
    saved = BytesIO()
    workbook.save(saved)
    assert places("a.xlsx", saved.getvalue()) == {
        "Sales": "sheet Sales",
        "Region | Sum": "sheet Sales, cells B1:D1",
        "Region: North; Sum: 1": "sheet Sales, cells B2:D2",
        "Region: West; Sum: 3": "sheet Sales, cells B4:D4",
        "Reviewed in May": "sheet Sales, cells B9",
    }


def test_csv__cells() -> None:
    assert places("a.csv", b"Region,Sum\nNorth,1\n,2\n") == {
        "Region | Sum": "cells A1:B1",
        "Region: North; Sum: 1": "cells A2:B2",
        "Sum: 2": "cells B3",
    }


def test_docx__paragraphs_are_counted_from_their_heading() -> None:
    document = docx.Document()
    document.add_heading("Scope", 1)
    for text in ("One.", "", "Two."):
        document.add_paragraph(text)
    document.add_table(2, 2).cell(0, 0).text = "cell"
    document.add_heading("Terms", 1)
    document.add_paragraph("Three.")
    saved = BytesIO()
    document.save(saved)
    assert places("a.docx", saved.getvalue()) == {
        "One.": "paragraph 1",
        "Two.": "paragraph 2",
        "Three.": "paragraph 1",
    }


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ('<h2 id="a">H</h2>', "a"),
        ('<h2>H<a class="link" id="a"></a></h2>', "a"),
        ('<section id="a"><h2>H</h2></section>', "a"),
        ('<a name="a"></a>\n<h2>H</h2>', "a"),
        ('<p id="b">x</p><h2>H</h2>', None),
        ('<h2 id="a b">H</h2>', None),
    ],
)
def test_html__the_anchor_of_the_nearest_heading(heading: str, anchor: str | None) -> None:
    result = places("a.html", f"<body><p>Before.</p>{heading}<p>After.</p></body>".encode())
    assert result == ({"H": f"#{anchor}"} if anchor else {})


def test_place_at__joins_what_is_together_and_stops_elsewhere() -> None:
    spans = [
        PlaceSpan(0, 5, sheet="A"),
        PlaceSpan(7, 10, sheet="A", cells="Y9:AA9"),
        PlaceSpan(11, 15, sheet="A", cells="B10"),
        PlaceSpan(17, 20, sheet="B", cells="A1"),
    ]
    place = find_place(spans, 0, 20)
    assert place is not None
    assert place.reference == "A!B9:AA10"
    assert find_place(spans, 15, 17) is None
    restarted = [
        PlaceSpan(0, 1, first_paragraph=2),
        PlaceSpan(2, 3, first_paragraph=3),
        PlaceSpan(9, 10, first_paragraph=1),
    ]
    paragraphs = find_place(restarted, 0, 10)
    assert paragraphs is not None
    assert paragraphs.words == "paragraphs 2 to 3"
    assert find_place([PlaceSpan(5, 9, attachment="a.txt")], 0, 9) is None
    assert cell_range(1, 703, 2, 703) == "AAA1:AAA2"


def test_sheet__a_very_large_table_has_one_place() -> None:
    composition = Composition(UNLIMITED)
    composition.add_sheet(Sheet(rows=[["name", "sum"], *([["a", "1"]] * 100_000)], name="S"))
    parsed = composition.build("text/csv", None)
    assert [span.place.words for span in parsed.places] == ["sheet S", "sheet S, cells A1:B100001"]
