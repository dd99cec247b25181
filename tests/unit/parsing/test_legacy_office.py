"""OpenDocument, RTF and XLS."""

import datetime
import io

import pytest
import xlwt

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from tests.files import pack_zip, save

NAMESPACES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for short, name in (
        ("draw", "drawing"),
        ("office", "office"),
        ("text", "text"),
        ("table", "table"),
        ("style", "style"),
        ("presentation", "presentation"),
    )
)
TYPE = "application/vnd.oasis.opendocument."


def parse_data(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a", data=data))


def open_document(kind: str, body: str, *, styles: str = "", **members: str) -> bytes:
    automatic = f"<office:automatic-styles>{styles}</office:automatic-styles>"
    content = (
        f"<office:document-content {NAMESPACES}>{automatic}<office:body>{body}</office:body></office:document-content>"
    )
    return pack_zip({"mimetype": TYPE + kind, "content.xml": content, **members})


def test_parse_odt__headings_lists_notes_and_tables() -> None:
    parsed = parse_data(
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
    parsed = parse_data(
        open_document("spreadsheet", f'<table:table table:name="People">{rows}{empty}</table:table-row></table:table>')
    )
    assert parsed.text == "People\n\nName | Born\nName: Ada; Born: 1815"
    assert parsed.title is None


def test_parse_odp__slides_are_pages() -> None:
    page = "<draw:page><draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame></draw:page>"
    parsed = parse_data(open_document("presentation", page.format("First") + page.format("Second")))
    assert (parsed.text, parsed.pages) == ("First\n\nSecond", (0, 7))


def test_parse_odt__numbers_of_lists_and_headings_are_those_printed() -> None:
    def level(kind: str, number: int, form: str = "", suffix: str = "", output: int = 1) -> str:
        numbers = f'style:num-format="{form}" style:num-suffix="{suffix}" text:display-levels="{output}"'
        return f'<text:{kind} text:level="{number}" {numbers}/>'

    number, outline = "list-level-style-number", "outline-level-style"
    styles = (
        f'<text:list-style style:name="L">{level(number, 1, "1", ".")}{level(number, 2, "a", ")")}'
        f"{level('list-level-style-bullet', 3)}</text:list-style>"
        f"<text:outline-style>{level(outline, 1, '1')}{level(outline, 2, '1', '', 2)}</text:outline-style>"
    )
    item = "<text:list-item {}><text:p>{}</text:p>{}</text:list-item>"
    deep = f"<text:list>{item.format('', 'deep', '')}</text:list>"
    inner = f"<text:list>{item.format('', 'inner', deep)}</text:list>"
    first = item.format("", "one", "") + item.format("", "two", inner)
    start = 'text:start-value="7"'
    lists = (
        f'<text:list text:style-name="L">{first}</text:list>'
        f'<text:list text:style-name="L" text:continue-numbering="true">{item.format("", "more", "")}</text:list>'
        f'<text:list text:style-name="L">{item.format(start, "new", "")}</text:list>'
    )
    heads = '<text:h text:outline-level="1">Plan</text:h><text:h text:outline-level="2">Cost</text:h>'
    parsed = parse_data(open_document("text", heads + lists, styles=styles))
    assert parsed.text.split("\n\n") == [
        *("1 Plan", "1.1 Cost", "1. one", "2. two", "a) inner", "- deep", "3. more", "7. new"),
    ]


def test_parse_odt__superscripts_hidden_text_captions_and_header_rows() -> None:
    styles = "".join(
        f'<style:style style:name="{name}" style:family="text"><style:text-properties {attribute}/></style:style>'
        for name, attribute in (
            ("up", 'style:text-position="super 58%"'),
            ("low", 'style:text-position="-33% 58%"'),
            ("no", 'text:display="none"'),
        )
    )
    span = '<text:span text:style-name="{}">{}</text:span>'
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"<table:table-row>{cell}{cell}</table:table-row>"
    header = f"<table:table-header-rows>{row.format(4, 5)}</table:table-header-rows>"
    parsed = parse_data(
        open_document(
            "text",
            f"<text:p>10{span.format('up', 6)} km{span.format('up', 'n+1')} H{span.format('low', 2)}O"
            f"{span.format('no', 'secret')}</text:p><text:p>Table <text:sequence>1</text:sequence>: Plans</text:p>"
            f"<table:table>{header}{row.format(6, 7)}</table:table>"
            "<text:p>Figure <text:sequence>1</text:sequence></text:p>",
            styles=styles,
        )
    )
    assert parsed.text == "10^6 km^(n+1) H_2O\n\nTable 1: Plans\n4 | 5\n4: 6; 5: 7\n\nFigure 1"
    assert parsed.tables[0].context == ("Table 1: Plans", "4 | 5")


def sheet_with_hidden_cells() -> bytes:
    def row(*texts: str, attributes: str = "") -> str:
        return f"<table:table-row {attributes}>{''.join(texts)}</table:table-row>"

    def cell(text: str, attributes: str = "") -> str:
        return f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"

    covered = "<table:covered-table-cell/>"
    sales = (
        '<table:table-column/><table:table-column table:visibility="collapse"/>'
        '<table:table-column table:number-columns-repeated="2"/>'
        + row(cell("Region"), cell("Hidden"), cell("Q1"), cell("Q2"))
        + row(cell("North", 'table:number-rows-spanned="2"'), cell("x"), cell("1"), cell("2"))
        + row(covered, cell("x"), cell("3", 'table:number-columns-spanned="2"'), covered)
        + row(cell("East"), cell("x"), cell("5"), cell("6"), attributes='table:visibility="filter"')
    )
    properties = '<style:table-properties table:display="false"/>'
    style = f'<style:style style:name="no" style:family="table">{properties}</style:style>'
    hidden = f'<table:table table:name="Pay" table:style-name="no">{row(cell("secret"))}</table:table>'
    return open_document("spreadsheet", f'<table:table table:name="Sales">{sales}</table:table>{hidden}', styles=style)


def test_parse_ods__hidden_cells_are_left_out_and_merged_ones_repeated() -> None:
    parsed = parse_data(sheet_with_hidden_cells())
    assert parsed.text == ("Sales\n\nRegion | Q1 | Q2\nRegion: North; Q1: 1; Q2: 2\nRegion: North; Q1, Q2: 3")
    assert [place.cells for place in parsed.places if place.cells] == ["A1:D1", "A2:D2", "A3:D3"]


def test_parse_ods__hidden_cells_where_the_settings_read_them() -> None:
    text = parse(SourceDocument(source="a", data=sheet_with_hidden_cells()), hidden_cells=True).text
    assert "Region: East; Hidden: x; Q1: 5; Q2: 6" in text
    assert text.endswith("Pay\n\nsecret")


def test_parse_odp__titles_notes_and_hidden_slides() -> None:
    box = "<draw:frame {}><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"
    title = 'presentation:class="title"'
    style = (
        '<style:style style:name="no" style:family="drawing-page">'
        '<style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
    )
    notes = f"<presentation:notes>{box.format('', 'Say it slowly')}</presentation:notes>"
    slides = (
        f"<draw:page>{box.format(title, 'Opening')}{box.format('', 'words')}{notes}</draw:page>"
        f'<draw:page draw:style-name="no">{box.format(title, "Secret")}</draw:page>'
        f"<draw:page>{box.format('', 'end')}</draw:page>"
    )
    parsed = parse_data(open_document("presentation", slides, styles=style))
    assert parsed.text == "Opening\n\nwords\n\nNotes: Say it slowly\n\n\n\nend"
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Opening")]
    assert len(parsed.pages) == 3


def test_parse_odf__with_a_password_is_encrypted() -> None:
    with pytest.raises(ParseError, match="password") as caught:
        parse_data(open_document("text", "", **{"META-INF/manifest.xml": "<m><encryption-data/></m>"}))
    assert caught.value.code == "encrypted"


def test_parse_rtf__a_table_in_a_cell_and_paragraphs_of_a_cell() -> None:
    end = rb"{\*\nesttableprops\trowd\cellx50\cellx90\nestrow}{\nonesttables\par}"
    inner = b"".join(
        rb"\pard\intbl\itap2 %b\nestcell\pard\intbl\itap2 %b\nestcell" % cells + end
        for cells in [(b"Year", b"Sum"), (b"2019", b"15")]
    )
    row = rb"\trowd\cellx100\cellx200\pard\intbl %b\cell\pard\intbl %b\cell\row "
    rows = row % (b"Plant", b"Data") + row % (rb"North\par of Linz", rb"See\par " + inner + rb"\pard\intbl")
    data = rb"{\rtf1\ansi " + rows + rb"\pard After\par}"
    text = parse(SourceDocument(source="a.rtf", data=data)).text
    assert text.split("\n\n") == [
        "Plant | Data\nNorth of Linz | See",
        "North of Linz\nYear | Sum\nYear: 2019; Sum: 15",
        "After",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rb"{\trowd\cellx1{\pard\intbl A\cell}{\pard\intbl B\cell}\row}One\par Two\par", ["A | B", "One", "Two"]),
        (rb"{\pard\intbl One}\par Two\par", ["One", "Two"]),
        (rb"\trowd\cellx1\intbl A\cell\intbl B\cell\row One\par Two\par", ["A | B", "One", "Two"]),
        (rb"\pard\intbl{\trowd\cellx1 A\cell B\cell\row}One\par Two\par", ["A | B", "One", "Two"]),
        (rb"One\par\itap2 Two\nestcell\par Three\par", ["One", "Two", "Three"]),
    ],
    ids=["groups", "group without a row", "no pard", "row in a group", "nested outside"],
)
def test_parse_rtf__paragraphs_after_a_row_are_their_own(data: bytes, expected: list[str]) -> None:
    assert parse_data(rb"{\rtf1\ansi " + data + rb"}").text.split("\n\n") == expected


def test_parse_rtf__paragraphs_and_rows() -> None:
    parsed = parse_data(
        rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}{\*\generator no;}\b Caf\'e9\b0\par Price \u8364? 5\par"
        rb"\trowd Plan\cell Seats\cell\row\trowd Basic\cell 15\cell\row\pard End{\pict\pngblip 89504e47}\par}"
    )
    assert parsed.text == "Café\n\nPrice € 5\n\nPlan | Seats\nPlan: Basic; Seats: 15\n\nEnd"
    assert [table.context for table in parsed.tables] == [("Plan | Seats",)]


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
    return save(book)


def test_parse_xls__cells_as_they_are_shown() -> None:
    parsed = parse_data(workbook())
    assert parsed.text == (
        "Sales\n\nRegion | Day | Share | Paid\nRegion: North; Day: 2024-05-01; Share: 25.6%; Paid: TRUE"
    )
    assert parsed.headings[0].title == "Sales"


def test_parse_xls__hidden_columns_and_merged_cells() -> None:
    book = xlwt.Workbook()
    sheet = book.add_sheet("Sales")
    for column, name in enumerate(["Region", "Secret", "Q1", "Q2"]):
        sheet.write(0, column, name)
    sheet.write_merge(1, 2, 0, 0, "North")
    for row in (1, 2):
        for column in (1, 2, 3):
            sheet.write(row, column, 10 * row + column)
    sheet.col(1).hidden = True
    out = io.BytesIO()
    book.save(out)
    parsed = parse_data(out.getvalue())
    rows = ("Region: North; Q1: 12; Q2: 13", "Region: North; Q1: 22; Q2: 23")
    assert parsed.text == "\n".join(["Sales", "", "Region | Q1 | Q2", *rows])
    assert [place.cells for place in parsed.places if place.cells] == ["A1:D1", "A2:D2", "A3:D3"]
    all_cells = parse(SourceDocument(source="a", data=out.getvalue()), hidden_cells=True).text
    assert "Region: North; Secret: 21; Q1: 22; Q2: 23" in all_cells


@pytest.mark.parametrize("cut", range(600, 5_400, 400))
def test_parse_xls__truncated_anywhere(cut: int) -> None:
    with pytest.raises(ParseError) as caught:
        parse_data(workbook()[:cut])
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
        parsed = parse_data(data)
    except ParseError as error:
        code = error.code
    else:
        assert parsed.text
    assert code in {"", "empty", "corrupt", "too_large"}
