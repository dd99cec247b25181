"""Small files of other programs, each with the value that a person reads.

The files are not part of the repository; the tests beside this one have generated files of the same kinds.
"""

from pathlib import Path

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

CASES = Path(__file__).parents[3].parent / "shared" / "cases"

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the folder of shared cases is absent")
faulty = pytest.mark.xfail(strict=True, reason="the parser reads this file wrongly")


def read(name: str) -> ParsedDocument:
    return parse(SourceDocument(source=name, data=(CASES / name).read_bytes()))


def titles(parsed: ParsedDocument) -> list[str]:
    return [heading.title for heading in parsed.headings]


def test_case_01__a_table_on_the_next_page_has_its_own_names() -> None:
    parsed = read("01_two_tables_on_two_pages.pdf")
    first, second = parsed.text[: parsed.pages[1]], parsed.text[parsed.pages[1] :]
    assert "Country: Austria; Capital: Vienna; Currency: Euro" in first
    assert "Depot: Linz; Head: Tom; Phone: 12" in second
    assert not any(name in second for name in ("Country", "Capital", "Currency"))
    assert titles(parsed) == ["North", "South"]


def test_case_02__a_rectangle_behind_the_page_is_no_table() -> None:
    parsed = read("02_white_page_rectangle.pdf")
    assert parsed.text.count("The office moves in autumn.") == 1
    assert parsed.text.count("Boxes are collected on Friday.") == 1
    lines = parsed.text.split("\n")
    assert "Country: Indonesia; Capital: Jakarta; Currency: Rupiah" in lines
    assert "Country: Austria; Capital: Vienna; Currency: Euro" in lines


def test_case_03__a_heading_above_a_table() -> None:
    parsed = read("03_heading_above_table.pdf")
    assert parsed.text.startswith("Offices\n\n")
    assert "Country: Indonesia; Capital: Jakarta; Currency: Rupiah" in parsed.text
    assert titles(parsed) == ["Offices"]


def test_case_04__a_table_written_column_by_column() -> None:
    text = read("04_table_drawn_by_column.pdf").text
    assert "Item: Tent; Mass (kg): 3.2; Carrier: Mara" in text
    assert "Item: Rope; Mass (kg): 4.1; Carrier: Ines" in text
    assert text.index("Packing list") < text.index("Tent") < text.index("All items are stored")


@faulty
def test_case_05__stacked_tables_without_rules() -> None:
    parsed = read("05_stacked_unruled_tables.pdf")
    assert "From: 03/01; To: 03/31; Visits: 48; Gross: $12,500" in parsed.text
    assert "Month: March; Visits: 48; Gross: $12,500; Net: $11,250; Filled: 85%" in parsed.text
    assert "Name: Ines Berg; Area: North; Share: 100%" in parsed.text
    assert titles(parsed) == ["Summary", "By month", "People"]
    assert len(parsed.tables) == 3


def test_case_06__a_footnote_mark_in_a_cell() -> None:
    assert "Country: Indonesia; People: 273,879,750^1" in read("06_footnote_mark_in_cell.pdf").text


@faulty
def test_case_07__a_form_of_labels_and_values() -> None:
    text = read("07_form_table.docx").text
    assert "Subject of contract: Fitting of cameras at school 7" in text
    assert "Sum of contract: 39,921.00 EUR" in text
    assert "Code: 0410; Item: 0610; Class: 226" in text
    assert "school 7:" not in text
    assert "EUR:" not in text


@faulty
def test_case_08__a_text_box_is_a_paragraph() -> None:
    paragraphs = read("08_text_box.docx").text.split("\n\n")
    assert "Quote: the limit is 40 MB." in paragraphs
    assert "Paragraph that anchors the box." in paragraphs


@faulty
def test_case_09__formulas_that_were_never_calculated() -> None:
    assert "Total: =B2*C2" in read("09_formulas_never_calculated.xlsx").text


@faulty
def test_case_10__a_slide_drawn_out_of_order() -> None:
    text = read("10_slide_drawn_out_of_order.pptx").text
    order = ("Comparison of plans", "Left point one", "Left point two", "Right point one", "Right point two")
    places = [text.index(words) for words in order]
    assert places == sorted(places)


def test_case_13__columns_written_line_by_line() -> None:
    text = " ".join(read("13_three_columns_written_line_by_line.pdf").text.split())
    assert "Steel prices rose in the first weeks of the year because two mills in the north stopped" in text
    assert "expect that the new mine will deliver its first tonnes in autumn" in text
