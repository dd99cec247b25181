"""Workbooks, presentations and books made here."""

import copy
import datetime
import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

import openpyxl
import pptx
import pytest
import xlsxwriter
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse
from tests.files import save

KINDS = ["report_xlsx", "report_pptx", "report_epub"]


def parse_data(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a", data=data))


def parse_error(data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_data(data)
    return caught.value


def with_member(data: bytes, name: str, content: bytes) -> bytes:
    """Add a member, or put another in the place of the one of that name."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            if member != name:
                new.writestr(member, old.read(member))
        new.writestr(name, content)
    return out.getvalue()


def test_parse_xlsx__sheets_rows_and_columns(report_xlsx: bytes) -> None:
    parsed = parse_data(report_xlsx)
    assert parsed.text == (
        "Sales\n\nSales of the year\nRegion | Day | Sum | Paid\n"
        "Region: North; Day: 2024-05-01 0:00:00; Sum: 12.5; Paid: TRUE\n"
        "Region: South; Day: 2024-05-02 9:30:00; Sum: 3; Paid: FALSE\n\n"
        "Region: After a gap; Sum: 7\n\n"
        "Staff\n\nName | Room\nName: Ada; Room: 7"
    )
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Sales"), (1, "Staff")]
    assert all(parsed.text[h.start :].startswith(h.title) for h in parsed.headings)
    assert parsed.title == "Sales Book"
    assert parsed.pages == ()


def test_parse_xlsx__formula_gives_the_value_stored_with_it() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["Sum", "of", "what"])
    workbook.active.append(["=1+2", "a", "b"])
    out = io.BytesIO()
    workbook.save(out)
    with zipfile.ZipFile(io.BytesIO(out.getvalue())) as archive:
        sheet = re.sub(rb"(<f>1\+2</f>)<v ?/?>(</v>)?", rb"\1<v>3</v>", archive.read("xl/worksheets/sheet1.xml"))
    parsed = parse_data(with_member(out.getvalue(), "xl/worksheets/sheet1.xml", sheet))
    assert "Sum: 3; of: a; what: b" in parsed.text


def test_parse_xlsx__size_that_the_file_claims_is_not_believed(report_xlsx: bytes) -> None:
    name = "xl/worksheets/sheet1.xml"
    with zipfile.ZipFile(io.BytesIO(report_xlsx)) as archive:
        sheet = archive.read(name).replace(b'<dimension ref="A1:D7"', b'<dimension ref="A1:XFD1048576"')
    assert b"XFD" in sheet
    assert parse_data(with_member(report_xlsx, name, sheet)).text == parse_data(report_xlsx).text


def test_parse_xlsx__comments_and_text_boxes_follow_their_sheet() -> None:
    out = io.BytesIO()
    workbook = xlsxwriter.Workbook(out)
    sheet = workbook.add_worksheet("Costs")
    for row, cells in enumerate([("Item", "Sum"), ("Rent", 100), ("Heat", 70), ("Secret", 1)]):
        sheet.write_row(row, 0, cells)
    sheet.write_comment("B2", "Eve:\nWith taxes", {"author": "Eve"})
    sheet.write_comment(
        "B3", "[Threaded comment]\n\nYour version of Excel ...\n\nComment:\n    Per month", {"author": "tc={1}"}
    )
    sheet.write_comment("B4", "of a hidden row", {"author": "Eve"})
    sheet.set_row(3, None, None, {"hidden": True})
    sheet.insert_textbox("D6", "Approved by\nfinance")
    workbook.close()
    parsed = parse_data(out.getvalue())
    table = "Item | Sum\nItem: Rent; Sum: 100\nItem: Heat; Sum: 70"
    remarks = "Approved by\nfinance\n\nComment on B2 (Eve): With taxes\n\nComment on B3: Per month"
    assert parsed.text == f"Costs\n\n{table}\n\n{remarks}"
    assert [place.cells for place in parsed.places][-3:] == ["D6", "B2", "B3"]
    assert parse_data(with_member(out.getvalue(), "xl/comments1.xml", b"<x/>")).text.endswith("finance")


def test_parse_pptx__slides_are_pages(report_pptx: bytes) -> None:
    parsed = parse_data(report_pptx)
    first = "Opening\n\nFirst point\nSecond point"
    second = "Numbers\n\nRegion | Sum\nRegion: North; Sum: 12\n\nGrouped words\n\nNotes: Say it slowly"
    assert parsed.text == f"{first}\n\n{second}\n\n\n\n"
    assert parsed.pages == (0, len(first) + 2, len(first + second) + 4, len(first + second) + 6)
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Opening"), (1, "Numbers")]
    assert parsed.find_page(parsed.text.index("Grouped")) == 2
    assert parsed.title == "Quarter"


def test_parse_pptx__numbers_superscripts_and_equations() -> None:
    deck = pptx.Presentation()
    frame = deck.slides.add_slide(deck.slide_layouts[6]).shapes.add_textbox(0, 0, 100, 100).text_frame
    a = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    for text, level, kind in (
        *(("one", 0, "arabicPeriod"), ("in", 1, "alphaLcParenR"), ("two", 0, "arabicPeriod")),
        *(("text", 0, ""), ("again", 0, "arabicPeriod"), ("other", 0, "romanUcPeriod")),
    ):
        paragraph = frame.add_paragraph()
        paragraph.text, paragraph.level = text, level
        if kind:
            paragraph._p.get_or_add_pPr().append(parse_xml(f'<a:buAutoNum {a} type="{kind}"/>'))
    formula = frame.add_paragraph()
    for text, baseline in (("x", "0"), ("n", "30000"), ("+1", "30000"), (" H", "0"), ("2", "-25000"), ("O", "0")):
        run = formula.add_run()
        run.text = text
        run.font._element.set("baseline", baseline)
    m = "http://schemas.openxmlformats.org/officeDocument/2006/math"
    formula._p.append(
        parse_xml(
            '<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
            f'<mc:Choice><m:oMath xmlns:m="{m}"><m:r><m:t> a=b</m:t></m:r></m:oMath></mc:Choice>'
            f"<mc:Fallback><a:r {a}><a:t>picture</a:t></a:r></mc:Fallback></mc:AlternateContent>"
        )
    )
    lines = ["1. one", "a) in", "2. two", "text", "1. again", "I. other", "x^(n+1) H_2O a=b"]
    assert parse_data(save(deck)).text.split("\n")[-7:] == lines


def test_parse_pptx__charts() -> None:
    deck = pptx.Presentation()
    data = CategoryChartData()
    data.categories = ["North", "South"]
    data.add_series("2024", (12, 7))
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 100, 100, data)
    assert parse_data(save(deck)).text == "2024\nNorth; 2024: 12\nSouth; 2024: 7"


@pytest.mark.parametrize(
    "kind",
    [
        "vnd.openxmlformats-officedocument.presentationml.slideshow.main+xml",
        "vnd.openxmlformats-officedocument.presentationml.template.main+xml",
        "vnd.ms-powerpoint.slideshow.macroEnabled.main+xml",
        "vnd.ms-powerpoint.template.macroEnabled.main+xml",
    ],
)
def test_parse_pptx__slide_shows_and_templates_are_presentations(report_pptx: bytes, kind: str) -> None:
    with zipfile.ZipFile(io.BytesIO(report_pptx)) as archive:
        types = archive.read("[Content_Types].xml")
    main = b"vnd.openxmlformats-officedocument.presentationml.presentation.main+xml"
    assert main in types
    renamed = with_member(report_pptx, "[Content_Types].xml", types.replace(main, kind.encode()))
    assert parse_data(renamed) == parse_data(report_pptx)


def test_parse_pptx__more_slides_than_the_limit(report_pptx: bytes) -> None:
    with pytest.raises(ParseError, match=r"ingestion\.parsing\.pages") as caught:
        parse(SourceDocument(source="a", data=report_pptx), OutputLimits(pages=3))
    assert caught.value.code == "too_large"


def test_parse_epub__chapters_in_the_order_of_the_spine(report_epub: bytes) -> None:
    parsed = parse_data(report_epub)
    assert parsed.text == "Beginning\n\nIt was night.\n\nLater\n\nDay came.\n\nEnding\n\nAll went home."
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Beginning"), (2, "Later"), (1, "Ending")]
    assert all(parsed.text[h.start :].startswith(h.title) for h in parsed.headings)
    assert parsed.title == "The Book"


def test_parse_epub__copy_protection_is_encrypted(report_epub: bytes) -> None:
    assert parse_error(with_member(report_epub, "META-INF/rights.xml", b"<rights/>")).code == "encrypted"


@pytest.mark.parametrize("name", ["META-INF/container.xml", "OEBPS/book.opf"])
@pytest.mark.parametrize(
    "content", [b"<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>", b"<x/>", b"<"]
)
def test_parse_epub__broken_package(report_epub: bytes, name: str, content: bytes) -> None:
    assert parse_error(with_member(report_epub, name, content)).code in {"corrupt", "empty"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("bomb.bin", bytes(8 * 2**20), "too_large"),
        ("../evil", b"x", "corrupt"),
        ("/etc/evil", b"x", "corrupt"),
        ("inner.zip", b"PK\x03\x04rest", "unsupported"),
        ("inner.bin", b"\x1f\x8b\x08", "unsupported"),
    ],
)
def test_parse__archive_that_is_not_safe(
    kind: str, name: str, content: bytes, code: str, request: pytest.FixtureRequest
) -> None:
    assert parse_error(with_member(request.getfixturevalue(kind), name, content)).code == code


@pytest.mark.parametrize(
    ("kind", "part"), [("report_xlsx", "xl/workbook.xml"), ("report_pptx", "ppt/presentation.xml")]
)
def test_parse__doctype_is_refused(kind: str, part: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(kind)
    error = parse_error(with_member(data, part, b'<!DOCTYPE x [<!ENTITY a "b">]><x/>'))
    assert error.code == "corrupt"
    assert "DOCTYPE" in str(error)


def test_parse__workbook_behind_a_chart_is_left_alone(report_pptx: bytes, report_xlsx: bytes) -> None:
    data = with_member(report_pptx, "ppt/embeddings/chart1.xlsx", report_xlsx)
    assert "secret" not in parse_data(data).text


def test_parse__picture_of_one_colour_is_no_bomb(report_pptx: bytes) -> None:
    data = with_member(report_pptx, "ppt/media/image1.bmp", b"BM" + bytes(8 * 2**20))
    assert parse_data(data) == parse_data(report_pptx)
    xml = b"<x>" + b" " * 8 * 2**20
    assert parse_error(with_member(report_pptx, "ppt/media/image1.bmp", xml)).code == "too_large"


@pytest.mark.parametrize("kind", KINDS)
def test_parse__truncated_anywhere(kind: str, request: pytest.FixtureRequest) -> None:
    data = request.getfixturevalue(kind)
    for cut in range(4, len(data), len(data) // 40):
        assert parse_error(data[:cut]).code == "corrupt"


def test_parse_pptx__merged_cells_keep_their_columns() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    table = slide.shapes.add_table(3, 3, 0, 0, 100, 100).table
    for row, line in enumerate(["Region|2024|", "|Q1|Q2", "North|1|2"]):
        for column, text in enumerate(line.split("|")):
            table.cell(row, column).text = text
    table.cell(0, 1).merge(table.cell(0, 2))
    table.cell(0, 0).merge(table.cell(1, 0))
    assert parse_data(save(deck)).text == ("Region | 2024 / Q1 | 2024 / Q2\nRegion: North; 2024 / Q1: 1; 2024 / Q2: 2")


def parse_workbook(sheet: Callable[[Any], None], **options: Any) -> str:
    workbook = openpyxl.Workbook()
    workbook.active.title = "S"
    sheet(workbook.active)
    return parse(SourceDocument(source="a", data=save(workbook)), **options).text.removeprefix("S\n\n")


def test_parse_xlsx__numbers_as_their_cells_show_them() -> None:
    def fill(sheet: Any) -> None:
        sheet.append(["Region", "Share", "Sum", "Due"])
        sheet.append(["North", 0.256, 4500, datetime.date(2024, 5, 1)])
        for column, code in zip("BCD", ["0.0 %", "#,##0.00 [$€-407]", "d mmm yyyy"], strict=True):
            sheet[f"{column}2"].number_format = code

    assert parse_workbook(fill).endswith("Region: North; Share: 25.6 %; Sum: 4,500.00 €; Due: 1 May 2024")


def test_parse_xlsx__merged_cells() -> None:
    def fill(sheet: Any) -> None:
        sheet.append(["Sales by region"])
        sheet.append(["Region", 2023, None, 2024])
        sheet.append([None, "Q1", "Q2", "Q1", "Q2"])
        sheet.append(["North", 1, 2, 3, 4])
        sheet.append([None, 5, 6, 7, 8])
        for cells in ("A1:E1", "A2:A3", "B2:C2", "D2:E2", "A4:A5"):
            sheet.merge_cells(cells)

    assert parse_workbook(fill) == (
        "Sales by region\nRegion | 2023 / Q1 | 2023 / Q2 | 2024 / Q1 | 2024 / Q2\n"
        "Region: North; 2023 / Q1: 1; 2023 / Q2: 2; 2024 / Q1: 3; 2024 / Q2: 4\n"
        "Region: North; 2023 / Q1: 5; 2023 / Q2: 6; 2024 / Q1: 7; 2024 / Q2: 8"
    )


@pytest.mark.parametrize("hidden_cells", [False, True])
def test_parse_xlsx__hidden_rows_and_columns(hidden_cells: bool) -> None:
    def fill(sheet: Any) -> None:
        for row in (["Name", "Salary", "Room"], ["Ada", 10, 7], ["Bob", 20, 8]):
            sheet.append(row)
        sheet.row_dimensions[3].hidden = True
        sheet.column_dimensions["B"].hidden = True

    text = "Name | Room\nName: Ada; Room: 7"
    if hidden_cells:
        text = "Name | Salary | Room\nName: Ada; Salary: 10; Room: 7\nName: Bob; Salary: 20; Room: 8"
    assert parse_workbook(fill, hidden_cells=hidden_cells) == text


def test_parse_xlsx__far_cells_and_wide_merges_cost_little() -> None:
    def fill(sheet: Any) -> None:
        sheet["A1"], sheet["B1"], sheet["A2"], sheet["B2"] = "Name", "Room", "Ada", 7
        sheet["A1048576"] = "Note: far below"
        sheet.merged_cells.add("D1:XFD1048576")

    assert parse_workbook(fill) == "Name | Room\nName: Ada; Room: 7\n\nNote: far below"


def test_parse_pptx__dates_and_footers_are_read_once_and_numbers_not() -> None:
    presentation = pptx.Presentation()
    for number in range(1, 4):
        slide = presentation.slides.add_slide(presentation.slide_layouts[6])
        slide.shapes.add_textbox(0, 0, 999, 999).text_frame.text = f"Words of slide {number}"
        for placeholder in presentation.slide_layouts[6].placeholders:
            slide.shapes._spTree.append(copy.deepcopy(placeholder._element))
        for placeholder, text in zip(slide.placeholders, ("12 March", "ACME", str(number)), strict=True):
            placeholder.text_frame.text = text
    text = parse(SourceDocument(source="a.pptx", data=save(presentation))).text
    assert " ".join(text.split()) == "Words of slide 1 12 March ACME Words of slide 2 Words of slide 3"


def test_parse_pptx__boxes_are_read_by_their_place() -> None:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    inch = 914_400
    for text, left, top in (("right two", 5, 4), ("right one", 5, 2), ("left two", 1, 4), ("left one", 1, 2)):
        slide.shapes.add_textbox(left * inch, top * inch, 3 * inch, inch).text_frame.text = text
    slide.shapes.add_textbox(1 * inch, 6 * inch, 8 * inch, inch).text_frame.text = "source"
    slide.shapes.title.text = "Comparison"
    assert parse_data(save(deck)).text.split("\n\n") == [
        *("Comparison", "left one", "left two", "right one", "right two", "source"),
    ]


def test_parse_xlsx__formulas_without_values_are_their_text() -> None:
    workbook = openpyxl.Workbook()
    workbook.active.append(["Item", "Qty", "Price", "Total"])
    workbook.active.append(["Bolt", 10, 2.5, "=B2*C2"])
    workbook.active.append(["Nut", 4, 1.5, "=B3*C3"])
    parsed = parse_data(save(workbook))
    assert "Item: Bolt; Qty: 10; Price: 2.5; Total: =B2*C2" in parsed.text
    ((code, message),) = [(note.code, note.message) for note in parsed.notes]
    assert code == "formulas_not_calculated"
    assert message.startswith("2 formulas")


def test_parse_xlsx__calculated_formulas_are_their_values_also_if_they_are_empty() -> None:
    out = io.BytesIO()
    workbook = xlsxwriter.Workbook(out)
    sheet = workbook.add_worksheet("Costs")
    sheet.write_row(0, 0, ["Item", "Sum", "Remark"])
    sheet.write_row(1, 0, ["Rent", 100])
    sheet.write_formula(1, 2, '=IF(B2>500,"high","")', None, "")
    sheet.write_row(2, 0, ["Heat", 70])
    sheet.write_formula(2, 2, '=IF(B3>50,"high","")', None, "high")
    workbook.close()
    with zipfile.ZipFile(out) as archive:
        sheet_xml = archive.read("xl/worksheets/sheet1.xml")
    # Excel marks a formula whose value is an empty text.
    data = with_member(
        out.getvalue(), "xl/worksheets/sheet1.xml", sheet_xml.replace(b'<c r="C2">', b'<c r="C2" t="str">')
    )
    parsed = parse_data(data)
    assert "IF(" not in parsed.text
    assert "Item: Heat; Sum: 70; Remark: high" in parsed.text
    assert parsed.notes == ()
