"""OpenDocument, RTF and XLS."""

import datetime
import io
import zipfile

import pytest
import xlwt

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parsing import parse

NAMESPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for short, name in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"))
)
TYPE = "application/vnd.oasis.opendocument."


def parsed_of(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a", data=data))


def open_document(kind: str, body: str, **members: str) -> bytes:
    content = f"<office:document-content {NAMESPACES}><office:body>{body}</office:body></office:document-content>"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in {"mimetype": TYPE + kind, "content.xml": content, **members}.items():
            archive.writestr(name, text)
    return out.getvalue()


def test_parse_odt__headings_lists_notes_and_tables() -> None:
    parsed = parsed_of(
        open_document(
            "text",
            "<text:table-of-content><text:p>no</text:p></text:table-of-content>"
            '<text:h text:outline-level="1">Report</text:h><text:p>One<text:s text:c="2"/>two<text:tab/>three'
            "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>A note.</text:p>"
            "</text:note-body>"
            "</text:note> <text:span>four</text:span></text:p>"
            "<text:list><text:list-item><text:p>item</text:p><text:list><text:list-item><text:p>inner</text:p></text:list-item></text:list></text:list-item></text:list>"
            '<table:table><table:table-row><table:table-cell table:number-columns-spanned="2"><text:p>Name</text:p>'
            "</table:table-cell><table:covered-table-cell/></table:table-row><table:table-row><table:table-cell><text:p>a"
            "</text:p></table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell></table:table-row>"
            '</table:table><text:h text:outline-level="2">End</text:h>',
            **{"meta.xml": '<m xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The title</dc:title></m>'},
        )
    )
    assert parsed.text == "Report\n\nOne  two\tthree[1] four\n\n[1] A note.\n\n- item\n\n- inner\n\nName\na | b\n\nEnd"
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Report"), (2, "End")]
    assert parsed.title == "The title"


def test_parse_ods__sheets_are_sections() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    records = (("Name", "Born"), ("Ada", 1815))
    rows = "".join(f"<table:table-row>{cell.format(a)}{cell.format(b)}</table:table-row>" for a, b in records)
    empty = (
        '<table:table-row table:number-rows-repeated="1048576"><table:table-cell table:number-columns-repeated="9999"/>'
    )
    parsed = parsed_of(
        open_document("spreadsheet", f'<table:table table:name="People">{rows}{empty}</table:table-row></table:table>')
    )
    assert parsed.text == "People\n\nName | Born\nName: Ada; Born: 1815"


def test_parse_odp__slides_are_pages() -> None:
    page = "<draw:page><draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame></draw:page>"
    parsed = parsed_of(open_document("presentation", page.format("First") + page.format("Second")))
    assert (parsed.text, parsed.pages) == ("First\n\nSecond", (0, 7))


def test_parse_odf__with_a_password_is_encrypted() -> None:
    with pytest.raises(ParseError, match="password") as caught:
        parsed_of(open_document("text", "", **{"META-INF/manifest.xml": "<m><encryption-data/></m>"}))
    assert caught.value.code == "encrypted"


def test_parse_rtf__paragraphs_and_rows() -> None:
    parsed = parsed_of(
        rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\*\generator no;}\b Caf\'e9\b0\par Price \u8364? 5\par"
        rb"\trowd a\cell b\cell\row\trowd c\cell d\cell\row\pard End{\pict\pngblip 89504e47}\par}"
    )
    assert parsed.text == "Café\n\nPrice € 5\n\na | b\nc | d\n\nEnd"


def workbook() -> bytes:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Sales")
    for column, name in enumerate(["Region", "Day", "Share", "Paid"]):
        sheet.write(0, column, name)
    sheet.write(1, 0, "North")
    sheet.write(1, 1, datetime.date(2024, 5, 1), xlwt.easyxf(num_format_str="yyyy-mm-dd"))
    sheet.write(1, 2, 0.256, xlwt.easyxf(num_format_str="0.0%"))
    sheet.write(1, 3, True)
    hidden = book.add_sheet("Hidden")
    hidden.write(0, 0, "secret")
    hidden.visibility = 1
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def test_parse_xls__cells_as_they_are_shown() -> None:
    parsed = parsed_of(workbook())
    assert parsed.text == (
        "Sales\n\nRegion | Day | Share | Paid\nRegion: North; Day: 2024-05-01; Share: 25.6%; Paid: TRUE"
    )
    assert parsed.headings[0].title == "Sales"


@pytest.mark.parametrize("cut", range(600, 5_400, 400))
def test_parse_xls__truncated_anywhere(cut: int) -> None:
    with pytest.raises(ParseError) as caught:
        parsed_of(workbook()[:cut])
    assert caught.value.code in {"corrupt", "unsupported"}


@pytest.mark.parametrize(
    "data",
    [
        rb"{\rtf1" + b"{" * 200_000,
        rb"{\rtf1" + rb"\par" * 200_000,
        rb"{\rtf1\bin99999999999 x}",
        rb"{\rtf1\u999999? \u-99999?}",
        rb"{\rtf1\ansicpg99999 \'ff}",
        open_document("text", "<text:span>" * 20_000 + "</text:span>" * 20_000),
        open_document("text", "<text:p>a" + '<text:s text:c="999999999"/>' * 10_000 + "</text:p>"),
        open_document("text", "<!DOCTYPE x [<!ENTITY a 'b'>]>"),
        open_document("text", "<text:p>" * 20_000 + "a" + "</text:p>" * 20_000),
        open_document("text", "<text:list><text:list-item>" * 10_000 + "a" + "</text:list-item></text:list>" * 10_000),
        open_document("text", '<text:h text:outline-level="99999999999">a</text:h>'),
        open_document("spreadsheet", "<table:table/>" * 10_000),
        open_document("spreadsheet", '<table:table><table:table-row table:number-rows-repeated="x"/></table:table>'),
    ],
    ids=range(13),
)
def test_parse__hostile_legacy_office(data: bytes) -> None:
    code = ""
    try:
        parsed = parsed_of(data)
    except ParseError as error:
        code = error.code
    else:
        assert parsed.text
    assert code in {"", "empty", "corrupt", "too_large"}
