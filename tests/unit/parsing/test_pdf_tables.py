"""Tables in PDF files: ruled, partly ruled and unruled, with empty cells; and what is no table."""

from collections import Counter

import fpdf
import pytest

from benchmarks import pdf_library_tables, pdf_prose, pdf_tables
from benchmarks.parsing_pdf import collect_facts, count_breaks, f1, read_text
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse

ROWS = [["Plan", "Seats", "Price"], ["Basic", "15", "4500"], ["Large", "", "9000"], ["Huge", "315", ""]]
EXPECTED = "Plan | Seats | Price\nPlan: Basic; Seats: 15; Price: 4500\nPlan: Large; Price: 9000\nPlan: Huge; Seats: 315"


class Sheet:
    """A page on which cells and lines are drawn."""

    def __init__(self) -> None:
        self.pdf = fpdf.FPDF(unit="pt", format=(600, 800))
        self.pdf.set_auto_page_break(False)
        self.page()

    def page(self) -> None:
        self.pdf.add_page()
        self.pdf.set_font("helvetica", size=10)

    def rows(
        self, rows: list[list[str]], top: float, *, left: float = 50, width: float = 90, pitch: float = 16
    ) -> None:
        for number, row in enumerate(rows):
            for column, cell in enumerate(row):
                if cell:
                    self.pdf.text(left + column * width, top + number * pitch, cell)

    def across(self, *ys: float, left: float = 45, right: float = 315) -> None:
        for y in ys:
            self.pdf.line(left, y, right, y)

    def down(self, *xs: float, top: float, bottom: float) -> None:
        for x in xs:
            self.pdf.line(x, top, x, bottom)

    def parse(self) -> ParsedDocument:
        return parse(SourceDocument(source="a.pdf", data=bytes(self.pdf.output())))


@pytest.mark.parametrize(
    ("across", "down"),
    [
        ((), ()),
        ((88, 105, 152), ()),
        ((88, 104, 120, 136, 152), ()),
        ((88, 104, 120, 136, 152), (45, 135, 225, 315)),
        ((88, 104, 152), (45, 135, 225, 315)),
        ((104,), (135, 225)),
    ],
)
def test_parse_pdf__a_table_keeps_its_columns(across: tuple[float, ...], down: tuple[float, ...]) -> None:
    sheet = Sheet()
    sheet.pdf.text(50, 60, "The plans of this year are as follows, and they differ in price.")
    sheet.rows(ROWS, 100)
    sheet.across(*across)
    sheet.down(*down, top=88, bottom=152)
    sheet.pdf.text(50, 190, "The prices of the plans are for each month of the contract.")
    parsed = sheet.parse()
    assert parsed.text.split("\n\n")[1] == EXPECTED
    (table,) = parsed.tables
    assert parsed.text[table.start : table.end] == EXPECTED
    assert table.context == ("Plan | Seats | Price",)


def test_parse_pdf__merged_cells_of_a_ruled_table() -> None:
    sheet = Sheet()
    sheet.rows([["", "2024"], ["Plan", "Seats", "Price"], ["Basic", "15", "4500"], ["Large", "16", "9000"]], 100)
    sheet.across(88, 120, 136, 152)
    sheet.across(104, left=135)
    sheet.down(45, 135, 315, top=88, bottom=152)
    sheet.down(225, top=104, bottom=152)
    assert "Plan: Basic; 2024 / Seats: 15; 2024 / Price: 4500" in sheet.parse().text


def test_parse_pdf__cells_of_several_lines() -> None:
    sheet = Sheet()
    for y, row in [(100, ROWS[0]), (120, ["Basic", "15", "for small"]), (132, ["", "", "companies"])]:
        sheet.rows([row], y)
    for y, row in [(160, ["Large", "40", "for others"]), (180, ["Huge", "315", "on request"])]:
        sheet.rows([row], y)
    assert "Plan: Basic; Seats: 15; Price: for small companies\n" in sheet.parse().text


def test_parse_pdf__a_table_goes_on_with_its_header_on_the_next_page() -> None:
    sheet = Sheet()
    for number in range(2):
        if number:
            sheet.page()
        rows = [[f"Plan {row}", str(row), str(100 * row)] for row in range(1 + 9 * number, 10 + 9 * number)]
        sheet.rows(rows if number else [ROWS[0], *rows], 100)
        sheet.across(*(88 + 16 * line for line in range(len(rows) + (1 if number else 2))))
        sheet.down(45, 135, 225, 315, top=88, bottom=88 + 16 * (len(rows) + (0 if number else 1)))
    parsed = sheet.parse()
    second = parsed.text[parsed.pages[1] :]
    assert second.startswith("Plan: Plan 10; Seats: 10; Price: 1000\n")
    assert parsed.tables[1].context == ("Plan | Seats | Price",)


def test_parse_pdf__a_table_does_not_cut_the_sentence_around_it() -> None:
    sheet = Sheet()
    sheet.pdf.text(50, 60, "The plans of this year are as follows, and they")
    sheet.rows(ROWS, 100)
    sheet.across(88, 104, 120, 136, 152)
    sheet.pdf.text(50, 190, "differ in price and in the number of seats.")
    text = sheet.parse().text
    assert "and they\ndiffer in price" in text
    assert EXPECTED in text


PROSE = [
    "The region reports that its",
    "markets have grown in this",
    "year by more than was known",
    "at the time of its report",
]


@pytest.mark.parametrize("ruled", [False, True])
def test_parse_pdf__prose_in_columns_is_no_table(ruled: bool) -> None:
    sheet = Sheet()
    for number, line in enumerate(PROSE * 3):
        sheet.pdf.text(50, 100 + 12 * number, line)
        sheet.pdf.text(300, 100 + 12 * number, line)
    if ruled:
        sheet.across(85, 245, 400, right=500)
        sheet.down(280, top=85, bottom=245)
    assert sheet.parse().tables == ()


def test_parse_pdf__items_of_a_list_are_no_table() -> None:
    sheet = Sheet()
    sheet.rows([[f"{number}.", f"Step {number}"] for number in range(1, 8)], 100, width=40)
    assert sheet.parse().tables == ()


def test_parse_pdf__boxes_of_a_drawing_are_no_table() -> None:
    sheet = Sheet()
    for column, row in ((0, 0), (2, 2), (4, 0), (4, 4)):
        sheet.pdf.rect(50 + 100 * column, 100 + 60 * row, 100, 60)
        sheet.pdf.text(60 + 100 * column, 130 + 60 * row, "Box")
    sheet.across(110, 130, 700, left=50, right=590)
    assert sheet.parse().tables == ()


@pytest.mark.parametrize("held_out", [False, True])
def test_parse_pdf__generated_tables(held_out: bool) -> None:
    for documents in (pdf_tables.documents, pdf_library_tables.documents):
        scores = [
            f1(collect_facts(read_text(data)), Counter(facts))
            for _, data, facts in documents(held_out=held_out, seeds=1)
        ]
        assert sum(scores) / len(scores) >= 0.85


@pytest.mark.parametrize("held_out", [False, True])
def test_parse_pdf__generated_prose(held_out: bool) -> None:
    results = [
        count_breaks(read_text(data), expected) for _, data, expected in pdf_prose.documents(held_out=held_out, seeds=1)
    ]
    assert sum(each.false for each in results) <= 0.02 * sum(each.breaks for each in results)


def test_parse_pdf__running_lines_around_tables() -> None:
    sheet = Sheet()
    for number in range(3):
        if number:
            sheet.page()
        sheet.pdf.text(50, 40, "ACME Annual Report")
        sheet.rows([ROWS[0], *([f"Plan {number}{row}", "15", "45"] for row in range(4))], 300)
    parsed = sheet.parse()
    assert len(parsed.tables) == 3
    assert parsed.text.count("ACME Annual Report") == 1


def test_parse_pdf__a_row_drawn_as_one_text_is_divided_at_its_columns() -> None:
    sheet = Sheet()
    sums = "1,753,438 2,799,250 3,815,544"
    pitch = sheet.pdf.get_string_width("1,753,438 ")
    for number, row in enumerate(
        [["2010", "2011", "2012"], ["503,528", "521,015", "536,697"], ["5,515", "6,222", "7,541"]]
    ):
        sheet.pdf.text(50, 100 + 16 * number, ("Region", "North", "South")[number])
        sheet.rows([row], 100 + 16 * number, left=115, width=pitch)
    sheet.across(104, right=280)
    sheet.pdf.text(50, 148, "All")
    sheet.pdf.text(115, 148, sums)
    assert "Region: All; 2010: 1,753,438; 2011: 2,799,250; 2012: 3,815,544" in sheet.parse().text


RESULTS = [["All", "5", "8", "7", "8"], ["North", "1", "2", "3", "4"], ["South", "4", "4", "4", "4"]]


def test_parse_pdf__names_of_several_columns_have_a_line_below_them() -> None:
    sheet = Sheet()
    sheet.rows([["", "Costs per year"], ["", "Own", "", "", "Other"]], 100, width=70)
    sheet.rows([["Area", "2019", "2020", "per", "per"], ["", "", "", "head", "house"]], 130, width=70)
    sheet.across(88, right=380)
    sheet.across(103, left=115, right=300)
    sheet.across(119, left=115, right=225)
    sheet.across(146, right=380)
    sheet.rows(RESULTS, 160, width=70)
    text = sheet.parse().text
    assert "Costs per year / Own / 2019: 5; Costs per year / Own / 2020: 8; Costs per year / per head: 7" in text
    assert "Other per house: 8" in text


def test_parse_pdf__columns_without_names_of_their_own_have_no_names() -> None:
    sheet = Sheet()
    sheet.rows([["", "Costs"], ["Area", "", "Own"]], 100, width=70)
    sheet.across(103, left=115, right=330)
    sheet.across(120, right=380)
    sheet.rows(RESULTS, 136, width=70)
    assert "All | 5 | 8 | 7 | 8\nNorth | 1 | 2 | 3 | 4" in sheet.parse().text


def test_parse_pdf__a_second_table_below_the_first_has_names_of_its_own() -> None:
    sheet = Sheet()
    for top, unit in ((100, "kg"), (190, "litres")):
        sheet.rows([["Area", f"min {unit}", f"mean {unit}", f"max {unit}"]], top, width=80)
        sheet.across(top + 4, right=380)
        sheet.rows([[row[0], *row[2:]] for row in RESULTS], top + 16, width=80)
        sheet.across(top + 54, right=380)
    text = sheet.parse().text
    assert "Area: North; min kg: 2; mean kg: 3; max kg: 4" in text
    assert "Area: North; min litres: 2; mean litres: 3; max litres: 4" in text


def test_parse_pdf__a_title_over_all_columns_is_no_name() -> None:
    sheet = Sheet()
    sheet.pdf.set_font("helvetica", style="B", size=10)
    sheet.rows([["", "Shares of the plans"], ["Plan", "2019", "2020"]], 100)
    sheet.pdf.set_font("helvetica", size=10)
    sheet.rows([["Basic", "34%", "3%"], ["Large", "11%", "33%"]], 132)
    sheet.across(88, 104, 120, 136, 152)
    sheet.down(45, 315, top=88, bottom=152)
    sheet.down(135, 225, top=104, bottom=152)
    text = sheet.parse().text
    assert text.startswith("Shares of the plans\nPlan | 2019 | 2020")
    assert "Plan: Basic; 2019: 34%; 2020: 3%" in text


def test_parse_pdf__rows_with_unknown_values_are_no_end_of_a_table() -> None:
    sheet = Sheet()
    sheet.rows(
        [["Date", "Place", "Harm", "Hurt"], ["May 3", "Linz", "NA", "NA"], ["May 4", "Graz", "none", "all"]], 100
    )
    sheet.across(88, 104, 120, right=400)
    sheet.rows([["May 6", "Wels", "some", "none"]], 160)
    sheet.across(140, right=400)
    assert "Date: May 6; Place: Wels; Harm: some; Hurt: none" in sheet.parse().text
