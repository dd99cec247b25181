"""Regions of a PDF page: columns, frames, figures, and what stands around tables."""

import fpdf
import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from tests.reliability.hostile_pdf import pdf

OFFICES = [["Country", "Capital", "Currency"], ["Indonesia", "Jakarta", "Rupiah"], ["Austria", "Vienna", "Euro"]]
DEPOTS = [["Depot", "Head", "Phone"], ["Linz", "Tom", "12"], ["Graz", "Mara", "15"]]
INDONESIA = "Country: Indonesia; Capital: Jakarta; Currency: Rupiah"


class Page:
    """A page on which text, lines and boxes are drawn, from the top left corner."""

    def __init__(self) -> None:
        self.pdf = fpdf.FPDF(unit="pt", format=(600, 800))
        self.pdf.set_auto_page_break(False)
        self.add()

    def add(self) -> None:
        self.pdf.add_page()

    def text(self, x: float, y: float, text: str, *, size: float = 10, style: str = "") -> None:
        self.pdf.set_font("helvetica", style, size)
        self.pdf.text(x, y, text)

    def lines(self, x: float, y: float, *texts: str, size: float = 10, leading: float = 12) -> None:
        for number, text in enumerate(texts):
            self.text(x, y + number * leading, text, size=size)

    def table(
        self, rows: list[list[str]], top: float, *, left: float = 50, ruled: bool = True, bold: bool = False
    ) -> None:
        for number, row in enumerate(rows):
            for column, cell in enumerate(row):
                self.text(left + 5 + 100 * column, top + 14 + 18 * number, cell, style="B" * (bold and number == 0))
        if ruled:
            for line in range(len(rows) + 1):
                self.pdf.line(left, top + 18 * line, left + 100 * len(rows[0]), top + 18 * line)
            for line in range(len(rows[0]) + 1):
                self.pdf.line(left + 100 * line, top, left + 100 * line, top + 18 * len(rows))

    def parse(self) -> ParsedDocument:
        return parse(SourceDocument(source="a.pdf", data=bytes(self.pdf.output())))


def squeeze(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("words", [("South", "Two depots."), ("South",), ()])
def test_parse_pdf__a_table_on_the_next_page_has_names_of_its_own(words: tuple[str, ...]) -> None:
    page = Page()
    page.text(50, 60, "North", size=18)
    page.table(OFFICES, 90)
    page.add()
    for number, text in enumerate(words):
        page.text(50, 60 + 20 * number, text, size=18 - 8 * number)
    page.table(DEPOTS, 100)
    parsed = page.parse()
    second = parsed.text[parsed.pages[1] :]
    assert "Depot: Linz; Head: Tom; Phone: 12" in second
    assert "Country" not in second


def test_parse_pdf__a_table_after_a_sentence_does_not_continue_the_one_before() -> None:
    page = Page()
    page.table(OFFICES, 90)
    page.add()
    page.text(50, 60, "These are all rows.")
    page.table([["7", "8", "9"], ["4", "5", "6"]], 100)
    assert "Country: 7" not in page.parse().text


def test_parse_pdf__a_frame_around_the_page_is_no_table() -> None:
    for draw in ("D", "F"):
        page = Page()
        page.pdf.set_fill_color(255)
        page.pdf.rect(10, 10, 580, 780, style=draw)
        page.lines(50, 60, "The office moves in autumn.", "Boxes are collected on Friday.", leading=24)
        page.table(OFFICES, 120)
        text = page.parse().text
        assert text.count("The office moves in autumn.") == 1
        assert INDONESIA in text.split("\n")


def test_parse_pdf__a_frame_with_text_keeps_it_together_and_in_its_place() -> None:
    page = Page()
    page.pdf.rect(45, 150, 300, 50)
    page.lines(50, 165, "All visitors sign the book at the door", "and wear a badge until they leave the house.")
    page.text(50, 100, "The house is open on all days of the week.")
    page.text(50, 260, "The garden is open in summer, from May on.")
    starts = [paragraph.split()[1] for paragraph in page.parse().text.split("\n\n")]
    assert starts == ["house", "visitors", "garden"]


def test_parse_pdf__a_heading_drawn_after_the_table_below_it() -> None:
    page = Page()
    page.table(OFFICES, 90)
    page.text(50, 70, "Offices", size=18)
    parsed = page.parse()
    assert parsed.text.startswith("Offices\n\nCountry")
    assert [heading.title for heading in parsed.headings] == ["Offices"]


COLUMNS = [
    [
        "Steel prices rose in the first",
        "weeks of the year because two",
        "mills in the north had stopped",
        "for repairs of their ovens.",
    ],
    [
        "Copper moved sideways. Traders",
        "expect that the new mine will",
        "deliver its first tonnes in the",
        "autumn of the next year.",
    ],
    [
        "Zinc fell. A strike at the port",
        "ended sooner than it had been",
        "expected, and the ships that had",
        "waited were all unloaded.",
    ],
]


@pytest.mark.parametrize("by_line", [True, False])
@pytest.mark.parametrize("offset", [0, 5])
def test_parse_pdf__columns_are_read_one_after_the_other(by_line: bool, offset: float) -> None:
    page = Page()
    page.text(50, 60, "Market letter", size=16)
    cells = [(column, line) for line in range(4) for column in range(3)]
    for column, line in cells if by_line else sorted(cells):
        page.text(50 + 170 * column, 100 + 12 * line + offset * column, COLUMNS[column][line])
    text = squeeze(page.parse().text)
    assert all(squeeze(" ".join(column)) in text for column in COLUMNS)
    assert text.index("Steel") < text.index("Copper") < text.index("Zinc")


def test_parse_pdf__a_table_without_lines_that_is_written_by_column() -> None:
    page = Page()
    page.text(50, 60, "Packing list for the trip", size=14)
    rows = [["Item", "Mass (kg)", "Carrier"], ["Tent", "3.2", "Mara"], ["Stove", "0.9", "Tom"], ["Rope", "4.1", "Ines"]]
    for column in range(3):
        for number, row in enumerate(rows):
            page.text(50 + 100 * column, 100 + 16 * number, row[column])
    page.text(50, 200, "All items are stored in room 12.")
    text = page.parse().text
    assert "Item: Tent; Mass (kg): 3.2; Carrier: Mara\nItem: Stove" in text
    assert text.index("Packing") < text.index("Tent") < text.index("All items")


@pytest.mark.parametrize("last", [False, True])
def test_parse_pdf__a_raised_mark_after_a_number(last: bool) -> None:
    page = Page()
    rows = [["Country", "People", "Area"], ["Indonesia", "273,879,750", "1,904"], ["Germany", "83,190,556", "357"]]
    page.pdf.set_font("helvetica", "", 10)
    end = 155.5 + page.pdf.get_string_width("273,879,750")
    if not last:
        page.text(end, 118, "1", size=6)
    page.table(rows, 90)
    if last:
        page.text(end, 118, "1", size=6)
    assert "People: 273,879,750^1; Area: 1,904" in page.parse().text


def test_parse_pdf__a_word_that_is_drawn_last() -> None:
    page = Page()
    page.pdf.set_font("helvetica", "", 10)
    before = page.pdf.get_string_width("The new rules are in the ")
    word = page.pdf.get_string_width("handbook")
    page.text(50, 100, "The new rules are in the")
    page.text(50 + before + word + 3, 100, "of the company.")
    page.text(50, 112, "They hold for all employees from May on.")
    page.text(50 + before, 100, "handbook")
    assert page.parse().text.startswith("The new rules are in the handbook of the company.\nThey hold")


def test_parse_pdf__letters_drawn_twice_are_bold_and_read_once() -> None:
    page = Page()
    page.text(50, 100, "Opening hours")
    # PDFium itself drops copies that follow each other.
    page.lines(50, 124, *["The house is open on all days of the week, and the garden is open in summer."] * 8)
    page.text(50.4, 100, "Opening hours")
    parsed = page.parse()
    assert parsed.text.count("Opening hours") == 1
    assert [heading.title for heading in parsed.headings] == ["Opening hours"]


def test_parse_pdf__labels_of_a_drawing_are_no_table_and_no_headings() -> None:
    page = Page()
    page.lines(50, 60, "The parts of the machine are connected as the figure shows,", "from the left to the right.")
    for row in range(3):
        for column in range(3):
            x, y = 100 + 120 * column, 150 + 60 * row
            page.pdf.ellipse(x, y, 60, 30)
            page.text(x + 10, y + 18, f"Part {row}{column}", size=14)
            page.pdf.line(x + 30, y + 30, x + 40, y + 60)
            page.pdf.line(x + 60, y + 15, x + 120, y + 20)
    parsed = page.parse()
    assert parsed.tables == ()
    assert parsed.headings == ()
    assert all(f"Part {row}{column}" in parsed.text for row in range(3) for column in range(3))


def test_parse_pdf__text_outside_of_the_page_is_not_seen() -> None:
    page = Page()
    page.text(50, 100, "The text of the page.")
    page.text(50, -20, "proof.indd 12:04")
    page.text(700, 100, "Cyan")
    assert page.parse().text == "The text of the page."


def test_parse_pdf__contents_with_page_numbers_are_lines() -> None:
    page = Page()
    page.text(50, 60, "Contents", size=16)
    for number, title in enumerate(["Introduction", "Methods of the study", "Results", "Discussion"], start=1):
        page.text(50, 80 + 20 * number, str(number))
        page.text(70, 80 + 20 * number, f"{title} {'. ' * (60 - 2 * number)}")
        page.text(500, 80 + 20 * number, str(10 * number))
    parsed = page.parse()
    assert parsed.tables == ()
    lines = [line for line in parsed.text.split("\n") if line]
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3", "4"]
    assert [line.split()[-1] for line in lines[1:]] == ["10", "20", "30", "40"]


def test_parse_pdf__signs_outside_of_the_first_plane_do_not_shift_the_text_after_them() -> None:
    """PDFium counts such a sign twice."""
    output = b"BT /F 12 Tf 10 150 Td (xxx) Tj 0 -40 Td (The last line) Tj ET"
    names = b"1 begincodespacerange <00> <FF> endcodespacerange 1 beginbfchar <78> <D835DC34> endbfchar"
    data = pdf(
        {
            4: b"<< /Length %d >>\nstream\n%s\nendstream" % (len(output), output),
            5: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 7 0 R >>",
            7: b"<< /Length %d >>\nstream\n%s\nendstream" % (len(names), names),
        }
    )
    assert parse(SourceDocument(source="a.pdf", data=data)).text.split("\n") == ["𝐴𝐴𝐴", "The last line"]


CHECKLIST = [
    (["Screening", "Safety plan", "Court order for a child", "in need of help"], ["Relatives", "Foster home"]),
    (["Reunification", "Referral", "Transport", "Visits"], ["Efforts to enhance the", "work on such cases"]),
]


def test_parse_pdf__a_list_in_two_columns_is_read_by_column_where_its_rows_do_not_agree() -> None:
    page = Page()
    for y in range(6):
        for x, (first, second) in zip((60, 320), CHECKLIST, strict=True):
            page.text(x, 100 + 12 * y, [*first, *second][y])
    expected = " ".join(line for column in CHECKLIST for part in column for line in part)
    assert squeeze(page.parse().text) == expected


def test_parse_pdf__labels_and_values_of_several_lines_are_read_by_row() -> None:
    page = Page()
    rows = [("Name of the company", "Ada Ltd."), ("and of its owner", "and sons"), ("Address", "Linz"), ("Tax", "U12")]
    for y, row in enumerate(rows):
        for x, text in zip((60, 320), row, strict=True):
            page.text(x, 100 + 12 * y, text)
    assert "Address Linz" in squeeze(page.parse().text.replace("|", ""))


def draw_band(page: Page, top: float, text: str, left: float = 50) -> None:
    page.pdf.set_fill_color(220)
    page.pdf.rect(left, top, 240, 14, style="F")
    page.text(left + 5, top + 10, text)


def test_parse_pdf__a_line_in_a_shaded_band_is_a_paragraph() -> None:
    titles = ["Social history", "Tobacco use", "Lifestyle"]
    page = Page()
    for number, title in enumerate(titles):
        draw_band(page, 100 + 38 * number, title)
        page.lines(55, 122 + 38 * number, f"Status {number}: Not on file", f"Since {number}: Not on file", leading=11)
    assert [text for text in page.parse().text.split("\n\n") if ":" not in text] == titles


def test_parse_pdf__a_shaded_band_ends_a_table_though_another_column_has_text_beside_it() -> None:
    page = Page()
    rows = [("Name", "Type", "Value"), ("width", "long", "300"), ("height", "long", "150")]
    titles = [(left, 100 + 56 * number, f"{title} {left}") for left in (50, 320) for number, title in enumerate("AB")]
    for left, top, title in titles:
        draw_band(page, top, title, left)
        for row, texts in enumerate(rows):
            for column, text in enumerate(texts):
                page.text(left + 5 + 80 * column, top + 24 + 14 * row, text)
    parsed = page.parse()
    assert len(parsed.tables) == 4
    assert {title for _, _, title in titles} <= set(parsed.text.split("\n\n"))


def test_parse_pdf__a_highlighted_line_and_lines_of_code_are_in_no_band() -> None:
    page = Page()
    texts = [
        "The office moves in autumn and takes all its",
        "boxes with it, but the archive stays in the",
        "old house.",
    ]
    page.pdf.set_fill_color(250, 240, 120)
    page.pdf.rect(49, 105, 185, 11, style="F")
    page.lines(50, 100, *texts, leading=13)
    page.pdf.set_fill_color(230)
    for number in range(3):
        page.pdf.rect(50, 191 + 13 * number, 300, 13, style="F")
    page.lines(55, 200, "def start(name", "          number):", "    return name", leading=13)
    first, second = page.parse().text.split("\n\n")
    assert squeeze(first) == " ".join(texts)
    assert second.split()[-1] == "name"


def test_parse_pdf__a_blank_form_is_read_box_by_box_and_is_no_table() -> None:
    labels = [["First name", "Last name"], ["Street and number", "Post code"], ["Telephone", "Mail"]]
    page = Page()
    for row, texts in enumerate(labels):
        for column, text in enumerate(texts):
            page.pdf.rect(50 + 200 * column, 100 + 30 * row, 200, 30)
            page.text(53 + 200 * column, 108 + 30 * row, text, size=7)
    parsed = page.parse()
    assert parsed.tables == ()
    assert parsed.text.split() == " ".join(text for texts in labels for text in texts).split()


def test_parse_pdf__a_sentence_in_widely_spaced_lines_is_one_paragraph() -> None:
    page = Page()
    tight = [
        "All visitors sign the book at the door of the",
        "house and wear a badge until they leave it on",
        "the road.",
    ]
    page.lines(50, 60, *tight, *tight, *tight, leading=12)
    spaced = [
        "The archive of the office moves in autumn, and",
        "it takes all of its boxes to the new house of",
        "Ada Ltd. in Linz.",
    ]
    page.lines(50, 200, *spaced, leading=20)
    page.lines(50, 262, "Visits", "Friday", leading=20)
    paragraphs = page.parse().text.split("\n\n")
    assert squeeze(paragraphs[-3]) == " ".join(spaced)
    assert paragraphs[-2:] == ["Visits", "Friday"]


def test_parse_pdf__labels_addresses_and_single_letters_are_no_headings() -> None:
    page = Page()
    titles = [
        "Invoice",
        "https://example.org/help",
        "employer:",
        "name of the bank: Ada",
        "b If you have a child",
        "C NL U",
    ]
    for number, title in enumerate([*titles, "U X NL C C NL", "heading level 10", "S T A F F"]):
        page.text(50, 60 + 60 * number, title, size=14)
        page.lines(50, 80 + 60 * number, f"Item {number} is sold by the house of Linz in boxes of", "ten or twenty.")
    assert [heading.title for heading in page.parse().headings] == ["Invoice", "heading level 10", "S T A F F"]


def test_parse_pdf__terms_in_small_letters_are_beside_their_codes() -> None:
    page = Page()
    rows = [("ordered triple", "triple"), ("3D path", "path3"), ("exponential form", "6.02e23"), ("string", '"abc"')]
    for number, (term, code) in enumerate(rows):
        page.text(50, 100 + 12 * number, term)
        page.text(200, 100 + 12 * number, code)
    lines = page.parse().text.split("\n")
    assert [line for line in lines if line] == [f"{term} {code}" for term, code in rows]


def test_parse_pdf__a_title_within_a_column_is_read_once() -> None:
    page = Page()
    for y in range(6):
        for x, (first, second) in zip((60, 320), CHECKLIST, strict=True):
            page.text(x, 100 + 12 * y + 12 * (y > 2), [*first, *second][y])
    page.text(60, 136, "For a child", style="B")
    text = page.parse().text
    assert text.count("For a child") == 1
    assert text.index("Safety plan") < text.index("For a child") < text.index("in need of help") < text.index("Visits")


def test_parse_pdf__code_within_a_sentence_stays_in_its_place() -> None:
    page = Page()
    page.lines(50, 100, "The text of the manual is set in letters of ten points, as is usual,", "For example the code")
    page.text(70, 130, "canvas.mark('life')", size=8)
    page.lines(50, 148, "defines a place in the file that other pages of the manual name.")
    text = page.parse().text
    assert text.index("For example") < text.index("canvas.mark") < text.index("defines a place")


def test_parse_pdf__a_source_in_small_letters_within_a_sentence_does_not_divide_it() -> None:
    page = Page()
    page.text(50, 100, "We saw in the first part of the text that")
    page.text(50, 130, "Source: own survey of people in 2020", size=8)
    page.lines(50, 160, "the number of people is large and", "grows from year to year.")
    assert page.parse().text.startswith("We saw in the first part of the text that\nthe number of people is large")


def test_parse_pdf__titles_with_small_letters_between_them_stay_two() -> None:
    page = Page()
    page.text(50, 100, "Social and Relationship Capital")
    page.text(50, 130, "The pictures above are of use.", size=8)
    page.text(50, 160, "Financial Capital")
    text = page.parse().text
    assert text.index("Relationship Capital") < text.index("The pictures") < text.index("Financial Capital")


@pytest.mark.parametrize(
    "label", ["Account number:", "Dated: 10/24/2019", "Mail: anna@example.org", "TOTAL: 41.50", "Paid by"]
)
def test_parse_pdf__labels_and_rows_in_larger_letters_are_no_headings(label: str) -> None:
    page = Page()
    page.text(50, 60, "Receipt", size=18)
    page.text(50, 90, label, size=12)
    if label == "Paid by":
        page.text(250, 90, "card", size=12)
    page.lines(50, 120, *["This line of the receipt has the letters that most of its text has."] * 6)
    assert [heading.title for heading in page.parse().headings] == ["Receipt"]


@pytest.mark.parametrize("title", ["2     Methods", "APPLICANT:", "Background: the first year"])
def test_parse_pdf__a_number_apart_and_a_colon_leave_a_heading(title: str) -> None:
    page = Page()
    number, _, words = title.partition("     ")
    page.text(50, 90, number, size=14)
    page.text(90, 90, words, size=14)
    page.lines(50, 120, *["This line of the report has the letters that most of its text has."] * 6)
    assert [squeeze(heading.title) for heading in page.parse().headings] == [squeeze(title)]


@pytest.mark.parametrize(
    "title", ["Chapter 2\tMethods", "Article 5\tScope of the law", "Appendix B\tMore data", "Section 4\tWords used"]
)
def test_parse_pdf__a_word_with_a_number_apart_leaves_a_heading(title: str) -> None:
    page = Page()
    number, _, words = title.partition("\t")
    page.text(50, 90, number, style="B")
    page.text(150, 90, words, style="B")
    page.lines(50, 120, *["This line of the report has the letters that most of its text has."] * 6)
    assert [squeeze(heading.title) for heading in page.parse().headings] == [squeeze(title)]


def test_parse_pdf__rows_of_words_with_numbers_are_no_headings() -> None:
    page = Page()
    for number in (1, 2):
        page.text(50, 60 + 30 * number, f"Line {number}", style="B")
        page.text(150, 60 + 30 * number, ["Name", "Address"][number - 1], style="B")
    page.lines(50, 160, *["This line of the report has the letters that most of its text has."] * 6)
    assert page.parse().headings == ()


@pytest.mark.parametrize("title", ["Conclusion:", "Year in review: 2024", "Chapter 1: 2024"])
def test_parse_pdf__larger_bold_letters_above_text_are_a_heading_with_a_colon_too(title: str) -> None:
    page = Page()
    page.lines(50, 60, *["This line of the report has the letters that most of its text has."] * 6)
    page.text(50, 180, title, size=14, style="B")
    page.lines(50, 210, *["This line of the report has the letters that most of its text has."] * 6)
    assert [heading.title for heading in page.parse().headings] == [title]


def test_parse_pdf__running_lines_of_the_first_page_are_where_they_are_printed() -> None:
    page = Page()
    for number in range(3):
        if number:
            page.add()
        page.text(50, 40, "Plant handbook")
        page.lines(50, 120, f"Sentence {number} of the handbook is on this page.")
        page.text(50, 780, "Printed in Linz")
    text = page.parse().text
    assert text.index("Plant handbook") < text.index("Sentence 0") < text.index("Printed in Linz")
    assert text.count("Plant handbook") == text.count("Printed in Linz") == 1


def test_parse_pdf__running_lines_of_left_and_right_pages() -> None:
    page = Page()
    for number in range(5):
        if number:
            page.add()
        page.text(50, 40, ["Anna Berg", "Pumps in plants"][number % 2])
        page.lines(50, 120, f"Sentence {number} of the paper is on this page.")
    text = page.parse().text
    assert text.count("Pumps in plants") == text.count("Anna Berg") == 1


@pytest.mark.parametrize(
    ("titles", "count"),
    [
        ({0: "Exhibit 1. Sales", 2: "Exhibit 2. Sales"}, 5),
        ({0: "Annex 1", 2: "Annex 2"}, 8),
        ({1: "Total 14 EUR", 5: "Total 26 EUR"}, 6),
    ],
    ids=["exhibits", "annexes", "totals"],
)
def test_parse_pdf__titles_that_differ_in_a_number_are_no_running_lines(titles: dict[int, str], count: int) -> None:
    page = Page()
    for number in range(count):
        if number:
            page.add()
        page.text(50, 32, titles.get(number, ""), style="B")
        page.lines(50, 120, f"Sentence {number} of the report is on this page.")
    text = page.parse().text
    assert [title for title in titles.values() if title not in text] == []


def test_parse_pdf__a_header_above_a_sentence_of_the_page_before_follows_that_sentence() -> None:
    page = Page()
    page.lines(50, 120, "The first page of the report ends within a sentence that goes on")
    for first in ("on the page that follows it, and then the sentence ends here.", "Page three has its own sentence."):
        page.add()
        page.text(50, 32, "Plant handbook")
        page.lines(50, 120, first)
        page.lines(50, 160, "Another paragraph of the report is below it.")
        page.text(50, 780, "Printed in Linz")
    lines = [line for line in page.parse().text.split("\n") if line]
    assert lines[1].startswith("on the page that")
    assert lines[2:5] == ["Plant handbook", "Another paragraph of the report is below it.", "Printed in Linz"]


SENTENCE = "This line of the letter has the size that most of the text on its page has."


@pytest.mark.parametrize(
    "address",
    [["ATTN: Beta Limited Company", "93B Sai Yu", "Yuen Long, N.T., 0000, HK"], ["Beta Ltd.", "Linz"]],
    ids=["lines with room", "two texts"],
)
def test_parse_pdf__an_address_in_larger_letters_is_no_heading(address: list[str]) -> None:
    page = Page()
    page.text(50, 60, "Invoice", size=18)
    page.lines(50, 100, *address, size=12, leading=14)
    page.lines(50, 160, *[SENTENCE] * 6)
    assert [heading.title for heading in page.parse().headings] == ["Invoice"]


def test_parse_pdf__a_long_title_in_larger_letters_is_a_heading() -> None:
    page = Page()
    title = ["The performance of a cell of gallium, indium and phosphide", "with a tunnel of aluminium and arsenide"]
    page.lines(50, 60, title[0], f"{title[1]} on glass", size=14, leading=17)
    page.lines(50, 160, *[SENTENCE] * 6)
    assert [squeeze(heading.title) for heading in page.parse().headings] == [" ".join([*title, "on glass"])]


def test_parse_pdf__numbers_of_lines_in_a_margin_are_no_text() -> None:
    page = Page()
    page.pdf.line(45, 50, 45, 700)
    for number in range(1, 26):
        page.text(28, 60 + 24 * number, str(number))
    page.lines(60, 94, "The plaintiff asks for", "the payment of the balance.", leading=24)
    assert squeeze(page.parse().text) == "The plaintiff asks for the payment of the balance."


def draw_rows(page: Page, top: float, rows: list[list[str]], *, bold: bool = False) -> None:
    """Rows without lines; their first column is wider than the others."""
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            page.text(50 + 150 * column, top + 14 * number, cell, style="B" * bold)


def test_parse_pdf__bold_names_below_rows_begin_another_table() -> None:
    page = Page()
    draw_rows(page, 100, [["Invoice", "30064443", "Customer", "47774"], ["Date", "7 May 2014"]])
    draw_rows(page, 142, [["Item", "Amount", "Text", "Price"]], bold=True)
    draw_rows(page, 156, [["1", "1", "Exchange", "3.89"], ["2", "1", "Mail", "5.39"], ["3", "2", "Files", "5.39"]])
    assert "Item: 2; Amount: 1; Text: Mail; Price: 5.39" in page.parse().text


def test_parse_pdf__a_bold_total_below_a_line_is_a_row() -> None:
    page = Page()
    draw_rows(page, 100, [["", "Net", "Tax", "Total"]], bold=True)
    draw_rows(page, 114, [["Options", "24.99", "5.00", "29.99"], ["Calls", "0.00", "0.00", "0.00"]])
    page.pdf.line(50, 132, 560, 132)
    draw_rows(page, 146, [["Sum", "24.99", "5.00", "29.99"]], bold=True)
    draw_rows(page, 160, [["Tax paid", "", "5.00"]])
    text = page.parse().text
    assert "Sum; Net: 24.99; Tax: 5.00; Total: 29.99" in text
    assert "Tax paid; Tax: 5.00" in text


def test_parse_pdf__bold_labels_above_their_values_are_names() -> None:
    page = Page()
    draw_rows(page, 100, [["Mail address", "Name of the reader"]], bold=True)
    draw_rows(page, 112, [["anna@example.org", "Anna Berg"]])
    assert "Mail address: anna@example.org; Name of the reader: Anna Berg" in page.parse().text


def test_parse_pdf__a_wide_space_after_a_colon_divides_no_cell() -> None:
    page = Page()
    rows = [["Points", "s", "r", "s"], ["Lines", "r", "r", "r"], ["Faces", "s", "s", "s"], ["Grid", "s", "r", "s"]]
    for number, (name, *cells) in enumerate(rows):
        page.text(50, 130 + 14 * number, f"x:  {name}")
        for column, cell in enumerate(cells):
            page.text(150 + 60 * column, 130 + 14 * number, cell)
    for column, name in enumerate(["one", "two", "three"]):
        page.text(145 + 60 * column, 114, name)
    for y in (120, 162):
        page.pdf.line(50, y, 300, y)
    assert "x: Lines; one: r; two: r; three: r" in page.parse().text


def test_parse_pdf__a_caption_level_with_a_line_of_the_other_column_is_not_in_its_sentence() -> None:
    page = Page()
    words = ["first", "second", "third", "fourth", "fifth", "sixth"]
    page.lines(50, 100, *[f"The {word} line of the text on the left goes on" for word in words])
    page.text(330, 136, "Depth of the cell by time")
    lines = page.parse().text.split("\n")
    assert "The fourth line of the text on the left goes on" in lines
    assert lines[-1] == "Depth of the cell by time"


def test_parse_pdf__a_label_on_the_left_of_text_is_on_its_first_line() -> None:
    page = Page()
    page.text(50, 100, "A.")
    page.lines(90, 100, *[f"The {word} line of the text of the label" for word in ("first", "second", "third")])
    assert page.parse().text.startswith("A. The first line")


def test_parse_pdf__the_first_column_names_the_rows_of_two_columns_of_words() -> None:
    page = Page()
    page.table([["Form", "Sent by the client"], ["Receipt", "Sent by the office"], ["Deed", "Kept"]], 100)
    text = page.parse().text
    assert "Form: Sent by the client\nReceipt: Sent by the office\nDeed: Kept" in text


def test_parse_pdf__an_area_below_names_has_their_columns() -> None:
    page = Page()
    page.table([["Article", "Number", "Amount"]], 100, bold=True)
    page.pdf.rect(50, 118, 300, 120)
    rows = [["Paper", "1", "0.75 £"], ["Print", "2", "3.50 £"], ["", "Total", "4.25 £"]]
    for number, row in enumerate(rows):
        for column, cell in enumerate(row):
            page.text(55 + 100 * column, 140 + 30 * number, cell)
    text = page.parse().text
    assert "Article: Paper; Number: 1; Amount: 0.75 £\nArticle: Print; Number: 2; Amount: 3.50 £\n" in text


def test_parse_pdf__two_tables_that_share_a_ruled_line_are_two() -> None:
    page = Page()
    for y in (100, 118, 136):
        page.pdf.line(50, y, 350, y)
    for x in (50, 110, 350):
        page.pdf.line(x, 100, x, 136)
    for y, row in ((114, ["Present", "217 deputies"]), (132, ["Absent", "40 deputies"])):
        page.text(55, y, row[0])
        page.text(115, y, row[1])
    page.table(OFFICES, 136)
    text = page.parse().text
    assert "Present: 217 deputies\nAbsent: 40 deputies" in text
    assert INDONESIA in text


def test_parse_pdf__boxes_around_a_table_and_texts_are_read_one_by_one() -> None:
    page = Page()
    page.pdf.rect(40, 80, 500, 300)
    page.pdf.line(150, 80, 150, 380)
    page.pdf.line(40, 140, 540, 140)
    page.text(50, 100, "OPTIONS")
    page.text(160, 100, "There are none.")
    page.text(50, 160, "CASE OF LOSS")
    page.lines(160, 160, "The office pays the share of the", "following table:")
    page.table(OFFICES, 200, left=170, bold=True)
    page.text(160, 300, "It gives no warranty.")
    text = page.parse().text
    assert text.startswith(
        "OPTIONS\n\nThere are none.\n\nCASE OF LOSS\n\nThe office pays the share of the\nfollowing table:\n\nCountry"
    )
    assert INDONESIA in text
    assert text.endswith("It gives no warranty.")


def test_parse_pdf__boxes_of_a_form_are_read_column_by_column_unless_they_are_level() -> None:
    page = Page()
    page.pdf.rect(40, 80, 500, 200)
    for x, top in ((200, 80), (400, 80)):
        page.pdf.line(x, top, x, 280)
    for y in (120, 160, 200, 240):
        page.pdf.line(40, y, 200, y)
    page.pdf.line(200, 180, 400, 180)
    for number, label in enumerate(["Payer", "Street", "City", "State", "Telephone"]):
        page.text(45, 90 + 40 * number, label)
    page.text(205, 90, "1 Compensation")
    page.text(205, 190, "2 Refunds")
    page.text(405, 90, "Form 7")
    lines = [line for line in page.parse().text.split("\n") if line]
    assert lines == ["Payer", "Street", "City", "State", "Telephone", "1 Compensation", "2 Refunds", "Form 7"]


def test_parse_pdf__the_number_of_a_question_is_before_it_where_its_answer_is_in_a_box() -> None:
    page = Page()
    for number in range(4):
        top = 100 + 60 * number
        page.text(50, top, f"{number + 1}.")
        page.text(80, top, f"The question of the number {number + 1}:")
        page.pdf.rect(80, top + 10, 400, 40)
        page.lines(90, top + 24, f"The answer of the number {number + 1}", "in two lines")
    text = squeeze(page.parse().text)
    assert text.startswith("1. The question of the number 1: The answer of the number 1 in two lines 2. The question")


def test_parse_pdf__blocks_beside_each_other_above_a_table_are_read_one_by_one() -> None:
    page = Page()
    page.lines(50, 100, "Pino Bluebird", "Sesame Street 32", "1025 Amsterdam", leading=20)
    page.lines(420, 93, "Blue Office", "Weena 664", "3012 Rotterdam", "Holland", leading=21)
    for number, row in enumerate([["Article", "Number", "Amount"], *[["Cover", "1", "69.99"]] * 8]):
        for x, cell in zip((50, 300, 420), row, strict=True):
            page.text(x, 200 + 12 * number, cell)
    text = squeeze(page.parse().text)
    assert "Sesame Street 32 1025 Amsterdam Blue Office Weena 664" in text


def test_parse_pdf__bold_names_over_several_columns_are_above_plain_names_of_each() -> None:
    page = Page()
    rows = [["1", "At the beginning", "1a", "On the concept"], ["2", "During the study", "2a", "On the form"]]
    page.table([["", "", "", ""], ["Kind", "Description", "Grade", "Meaning"], *rows], 100, ruled=False)
    for x, name in ((55, "Categories of the office"), (255, "Categories of the bank")):
        page.text(x, 114, name, style="B")
    for y in range(100, 190, 18):
        page.pdf.line(50, y, 450, y)
    for x in (50, 150, 250, 350, 450):
        page.pdf.line(x, 118 if x in (150, 350) else 100, x, 172)
    assert (
        "Categories of the office / Kind: 1; Categories of the office / Description: At the beginning; "
        "Categories of the bank / Grade: 1a; Categories of the bank / Meaning: On the concept" in page.parse().text
    )


def test_parse_pdf__the_title_of_a_section_of_a_law_may_end_in_a_full_stop() -> None:
    page = Page()
    page.text(50, 100, "§ 1307.22 Disposal of substances by the administration.", style="B")
    page.lines(50, 124, *["The substances that are delivered to the administration may be kept by any office."] * 3)
    titles = [heading.title for heading in page.parse().headings]
    assert titles == ["§ 1307.22 Disposal of substances by the administration."]


def test_parse_pdf__labels_with_a_colon_are_beside_their_values() -> None:
    page = Page()
    page.lines(50, 100, "Place of the office:", "Day of the order:", "Term of payment:", leading=36)
    page.lines(250, 100, "Street of the river 12, Belgrade,", "in the house of the port", leading=12)
    page.lines(250, 136, "Monday of the last week of May", "or on the day after it", leading=12)
    page.lines(250, 172, "A month from the day of the order", leading=12)
    text = squeeze(page.parse().text)
    assert "Place of the office: Street of the river" in text
    assert "Term of payment: A month" in text


def test_parse_pdf__a_line_above_a_table_at_the_end_of_a_page_stays_above_it() -> None:
    page = Page()
    page.lines(50, 60, "All of the offices of the north are listed below on this page.", "(This is the law of 2019.)")
    page.table(OFFICES, 100)
    page.add()
    page.lines(50, 60, "and so on, as the law of the last year says it for all of the offices.")
    text = page.parse().text
    assert text.index("law of 2019") < text.index(INDONESIA)
