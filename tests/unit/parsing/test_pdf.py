"""PDF files made here: pages, outline, title, and the ones that cannot be read."""

import io
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import fpdf
import pypdfium2
import pytest
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, SimpleDocTemplate, Spacer

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import LineBox, ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse
from tests.reliability.hostile_pdf import pdf


def parse_pdf(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a.pdf", data=data))


def parse_error(data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_pdf(data)
    return caught.value


def new_pdf(*pages: str) -> fpdf.FPDF:
    pdf = fpdf.FPDF()
    pdf.set_font("helvetica", size=12)
    for page in pages:
        pdf.add_page()
        if page:
            pdf.multi_cell(0, text=page)
    return pdf


def test_parse_pdf__text_and_pages(report_pdf: bytes) -> None:
    parsed = parse_pdf(report_pdf)
    first = "Preface of the board\nResults\nThe information is here."
    assert parsed.text == f"{first}\n\n\n\nSome words, then Open Questions"
    assert parsed.pages == (0, len(first) + 2, len(first) + 4)
    assert parsed.media_type == "application/pdf"
    assert parsed.find_page(parsed.text.index("here")) == 1
    assert parsed.find_page(parsed.text.index("Some")) == 3


def test_parse_pdf__pages_without_text_at_both_ends() -> None:
    parsed = parse_pdf(bytes(new_pdf("", "one", "two", "").output()))
    assert parsed.text == "\n\none\n\ntwo\n\n"
    assert parsed.pages == (0, 2, 7, 12)


def test_parse_pdf__headings_from_the_outline(report_pdf: bytes) -> None:
    parsed = parse_pdf(report_pdf)
    page = parsed.pages[2]
    assert [(h.level, h.title, h.start) for h in parsed.headings] == [
        (1, "Results", parsed.text.index("Results")),
        (2, "Not on the page", page),
        (2, "Open Questions", parsed.text.index("Open Questions")),
    ]


def test_parse_pdf__titles_of_the_outline_have_the_numbers_of_the_page_and_are_no_running_lines() -> None:
    document = fpdf.FPDF(unit="pt")
    document.set_font("helvetica", size=10)
    for _ in range(3):
        document.add_page()
        document.text(50, 30, "The north")
        document.text(50, 400, "The use of water in the north has been the same.")
    document.page = 1
    document.text(50, 200, "2.4 The north")
    document.start_section("The north")
    headings = parse_pdf(bytes(document.output())).headings
    assert [heading.title for heading in headings] == ["2.4 The north"]


def test_parse_pdf__a_page_number_above_a_title_of_the_outline_is_no_part_of_it() -> None:
    document = fpdf.FPDF(unit="pt")
    document.set_font("helvetica", size=10)
    document.add_page()
    for y, text in [(30, "7"), (80, "Introduction"), (120, "The use of water in the north has been the same.")]:
        document.text(50, y, text)
    document.start_section("Introduction")
    assert [heading.title for heading in parse_pdf(bytes(document.output())).headings] == ["Introduction"]


def test_outline__of_a_page_full_of_its_title_is_found_at_its_first_match(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each further match would be read for each entry.
    read: list[str] = []

    def find_counted(pattern: str, text: str, flags: int = 0) -> Iterator[re.Match[str]]:
        for match in re.compile(pattern, flags).finditer(text):
            read.append(match[0])
            yield match

    document = new_pdf("a a a a a a a a " * 100)
    for _ in range(5):
        document.start_section("a")
    monkeypatch.setattr("kosmos_rag.parsing.pdf.document.re.finditer", find_counted)
    assert len(parse_pdf(bytes(document.output())).headings) == 5
    assert read.count("a") == 5


def test_parse_pdf__heading_broken_over_lines() -> None:
    pdf = new_pdf("words before\nA Rather\nLong Title\nwords")
    pdf.start_section("A Rather Long Title")
    parsed = parse_pdf(bytes(pdf.output()))
    assert parsed.text[parsed.headings[0].start :].startswith("A Rather\nLong Title")


def test_parse_pdf__heading_on_a_last_page_without_text() -> None:
    pdf = new_pdf("words", "")
    pdf.start_section("Scanned")
    assert parse_pdf(bytes(pdf.output())).headings == ()


def handbook_pdf() -> fpdf.FPDF:
    """Two pages without an outline: a title and sections in larger and bold letters, paragraphs set apart."""
    pdf = fpdf.FPDF()
    pdf.add_page()

    def put(text: str, size: int, style: str = "", *, space: int = 0) -> None:
        pdf.set_font("helvetica", style=style, size=size)
        pdf.multi_cell(0, text=text, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(space)

    put("Travel Handbook of the Whole", 20)
    put("Company", 20, space=6)
    put("Booking", 14, "B", space=3)
    put("Trips are booked in the portal. " * 6, 11, space=4)
    put("Rail is preferred below 400 km. " * 6, 11, space=4)
    put("Refunds", 11, "B", space=2)
    put("Receipts are due within 30 days. " * 6, 11)
    pdf.add_page()
    put("Contacts", 14, "B", space=3)
    put("The travel desk answers until 18:00. " * 6, 11)
    return pdf


def test_parse_pdf__headings_by_their_letters_without_an_outline() -> None:
    parsed = parse_pdf(bytes(handbook_pdf().output()))
    assert [(h.level, h.title) for h in parsed.headings] == [
        (1, "Travel Handbook of the Whole Company"),
        (2, "Booking"),
        (3, "Refunds"),
        (2, "Contacts"),
    ]
    assert all(parsed.text[h.start :].split()[0] == h.title.split()[0] for h in parsed.headings)
    assert parsed.find_section(parsed.text.index("Receipts")) == (
        "Travel Handbook of the Whole Company",
        "Booking",
        "Refunds",
    )


def test_parse_pdf__paragraphs_are_set_apart_by_blank_lines() -> None:
    text = parse_pdf(bytes(handbook_pdf().output())).text
    paragraphs = [paragraph.split()[0] for paragraph in text.split("\n\n")]
    assert paragraphs == ["Travel", "Booking", "Trips", "Rail", "Refunds", "Receipts", "Contacts", "The"]


def test_parse_pdf__no_headings_where_all_letters_are_alike() -> None:
    pdf = new_pdf("one line\nand another\nand a third")
    assert parse_pdf(bytes(pdf.output())).headings == ()


@pytest.mark.parametrize(
    ("metadata_title", "title"),
    [
        ("(anonymous)", "Opening Words"), ("untitled", "Opening Words"), ("Document1", "Opening Words"),
        ("Microsoft Word - plan.docx", "Opening Words"), ("Microsoft Word - Travel Rules", "Travel Rules"),
        ("Document 9", "Opening Words"), ("Documents of 1815", "Documents of 1815"), ("Slide rules", "Slide rules"),
    ],
)  # fmt: skip
def test_parse_pdf__title_by_a_program_is_none(metadata_title: str, title: str) -> None:
    drawing = Drawing()
    drawing.page()
    drawing.pdf.set_title(metadata_title)
    drawing.lines(72, 72, "Opening Words", size=20, style="B")
    drawing.lines(72, 120, "A line of words in the body of the page,", "and one more line of words.")
    assert drawing.parse().title == title


def test_parse_pdf__superscripts_and_subscripts_off_the_line() -> None:
    """Half a letter above and below it, as reportlab draws them: PDFium ends a line at each."""
    styles = getSampleStyleSheet()["BodyText"]
    formula = "An area of 10<super>6</super> m<super>2</super> of H<sub>2</sub>O and x<sub>1</sub>."
    out = io.BytesIO()
    SimpleDocTemplate(out).build(
        [Paragraph(formula, styles), Spacer(1, 40), Paragraph("x<sub>1</sub> + x<sub>2</sub>", styles)]
    )
    text = parse_pdf(out.getvalue()).text
    assert text.split("\n\n") == ["An area of 10^6 m^2 of H_2O and x_1.", "x_1 + x_2"]


def test_parse_pdf__title(report_pdf: bytes) -> None:
    assert parse_pdf(report_pdf).title == "Annual Report"
    assert parse_pdf(bytes(new_pdf("x").output())).title is None


def test_parse_pdf__password_is_encrypted() -> None:
    pdf = new_pdf("secret")
    pdf.set_encryption(owner_password="owner", user_password="user")
    error = parse_error(bytes(pdf.output()))
    assert error.code == "encrypted"
    assert error.__cause__ is not None


def test_parse_pdf__owner_password_alone_is_readable() -> None:
    pdf = new_pdf("not secret")
    pdf.set_encryption(owner_password="owner")
    assert parse_pdf(bytes(pdf.output())).text == "not secret"


def test_parse_pdf__no_text_on_any_page() -> None:
    pdf = new_pdf("", "")
    pdf.rect(10, 10, 50, 50, style="F")
    error = parse_error(bytes(pdf.output()))
    assert error.code == "no_text"
    assert str(error) == "2 pages without text, probably scanned; set ingestion.parsing.ocr, or run OCR first"


def test_parse_pdf__broken_file_is_corrupt() -> None:
    error = parse_error(b"%PDF-1.7\nnot really")
    assert error.code == "corrupt"
    assert str(error).startswith("broken PDF file")
    assert error.__cause__ is not None


def test_parse_pdf__truncated_anywhere(report_pdf: bytes) -> None:
    for cut in range(8, len(report_pdf), 97):
        try:
            text = parse_pdf(report_pdf[:cut]).text
        except ParseError as error:
            text = error.code
        assert text in {"corrupt", "no_text"} or "Preface" in text


def test_parse_pdf__from_many_threads(report_pdf: bytes) -> None:
    expected = parse_pdf(report_pdf)
    with ThreadPoolExecutor(8) as pool:
        assert all(parsed == expected for parsed in pool.map(parse_pdf, [report_pdf] * 40))


class Drawing:
    """Draws lines of text where a test wants them, in points from the top left corner."""

    def __init__(self) -> None:
        self.pdf = fpdf.FPDF(unit="pt", format=(600, 800))
        self.pdf.set_auto_page_break(False)

    def page(self) -> None:
        self.pdf.add_page()

    def lines(self, x: float, y: float, *texts: str, size: float = 10, style: str = "", leading: float = 12) -> None:
        self.pdf.set_font("helvetica", style, size)
        for number, text in enumerate(texts):
            self.pdf.text(x, y + number * leading, text)

    def parse(self) -> ParsedDocument:
        return parse_pdf(bytes(self.pdf.output()))


def parse_drawn(*lines: tuple[float, float, str], size: float = 10) -> ParsedDocument:
    """A page with lines of text, each at its place."""
    drawing = Drawing()
    drawing.page()
    for x, y, text in lines:
        drawing.lines(x, y, text, size=size)
    return drawing.parse()


def test_parse_pdf__no_break_after_a_divided_word() -> None:
    parsed = parse_drawn(
        *((50, 100 + 12 * row, f"Line {row} of the text with its con-") for row in range(0, 8, 2)),
        *((50, 112 + 12 * row, "sequences that are known to all of") for row in range(0, 8, 2)),
    )
    lines = parse_drawn(
        (50, 100, "The report of the board gives the infor-"),
        (50, 112, "mation that each of the readers needs"),
        (50, 124, "before the meeting, and the con-"),
        (50, 136, "sequences of each of the decisions."),
    )
    assert "\n\n" not in parsed.text
    assert lines.text == (
        "The report of the board gives the information that each of the readers needs\n"
        "before the meeting, and the consequences of each of the decisions."
    )


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ("the rules of infor-", "mation for all", "the rules of information for all"),
        ("the house of Meyer-", "Schmidt for all", "the house of Meyer-Schmidt for all"),
        ("a well-known and well-", "known rule", "a well-known and well-known rule"),
        ("in the years 2010-", "2024 and after", "in the years 2010-2024 and after"),
        ("the rules of infor\u00ad", "mation for all", "the rules of information for all"),
    ],
)
def test_parse_pdf__words_divided_at_a_line_end(above: str, below: str, expected: str) -> None:
    assert parse_drawn((50, 100, above), (50, 112, below)).text.replace("-\n", "-") == expected


def test_parse_pdf__superscripts_and_subscripts() -> None:
    drawing = Drawing()
    drawing.page()
    x = 50.0
    for text, size, rise in [
        *[("It is 10", 10, 0), ("6", 7, 4), (" of a", 10, 0), ("2", 7, 4), (" and H", 10, 0), ("2", 7, -2)],
        *[("O at x", 10, 0), ("n+1", 7, -2), (" on the 1", 10, 0), ("st", 7, 4), (" day", 10, 0)],
    ]:
        drawing.lines(x, 100 - rise, text, size=size)
        x += drawing.pdf.get_string_width(text)
    assert drawing.parse().text == "It is 10^6 of a^2 and H_2O at x_(n+1) on the 1st day"


def column(x: float, top: float, texts: list[str]) -> list[tuple[float, float, str]]:
    return [(x, top + 12 * row, text) for row, text in enumerate(texts)]


def test_parse_pdf__a_first_line_below_a_paragraph_of_one_line_begins_another() -> None:
    item = "2. The persons of the shift write each fault of the pump down"
    lines = [
        (70.0, "1. Checks of the plant"),
        (70.0, item),
        (50.0, "in the book of the plant, and tell the office of the"),
        (50.0, "north about it."),
    ]
    parsed = parse_drawn(*((left, 100.0 + 12 * at, text) for at, (left, text) in enumerate(lines)))
    assert parsed.text.split("\n\n")[:1] == ["1. Checks of the plant"]


def test_parse_pdf__a_sentence_goes_on_in_the_next_column_and_page() -> None:
    drawing = Drawing()
    for first in ("The first page begins with a sentence", "that goes on at the top of this page"):
        drawing.page()
        for x, y, text in [
            *column(50, 300, [first, "and ends in the column on the left of", "the page, below which it has a note"]),
            *column(320, 300, ["that is set in smaller letters, and", "then it goes on from there to another"]),
        ]:
            drawing.lines(x, y, text)
        drawing.lines(50, 700, f"A note on {first}.", size=7)
    parsed = drawing.parse()
    assert parsed.text.count("\n\n") == 2, "only around the notes"
    assert "it has a note\nthat is set" in parsed.text
    assert "to another\nthat goes on" in parsed.text
    assert parsed.find_page(parsed.text.rindex("A note on")) == 2
    assert parsed.text[parsed.pages[1] :].startswith("that goes on")


def test_parse_pdf__a_running_line_above_the_next_column_cuts_no_sentence() -> None:
    drawing = Drawing()
    drawing.page()
    for x, y, text in [
        *column(
            50,
            300,
            [
                "The first column begins with a sentence",
                "whose end is in the column on the right of",
                "it, since the page is too short for all",
            ],
        ),
        *column(
            320,
            300,
            [
                "of the words that the sentence still has",
                "when the first column is full to its end",
                "and no line is left.",
            ],
        ),
    ]:
        drawing.lines(x, y, text)
    drawing.lines(380, 270, "Report of the year 2023", size=12)
    text = drawing.parse().text
    assert "too short for all\nof the words" in text
    assert "Report of the year 2023" in text


def test_parse_pdf__a_full_stop_at_the_edge_cuts_no_paragraph_of_wider_lines() -> None:
    """Most lines are set closer, as those of an abstract and its notes are."""
    drawing = Drawing()
    drawing.page()
    for row in range(12):
        drawing.lines(50, 60 + 12 * row, "Close lines of a summary that fill the column up to its right edge")
    wide = [
        "Wide lines of the text that follows it have much more space between them,",
        "so that they are read with ease, which is why most authors like them here.",
        "The next sentence begins on a line of its own, by chance alone.",
    ]
    for row, line in enumerate(wide):
        drawing.lines(50, 260 + 20 * row, line)
    assert "like them here.\nThe next" in drawing.parse().text


def test_parse_pdf__a_word_divided_between_pages() -> None:
    drawing = Drawing()
    for text in ("The whole of the report has the infor-", "mation that each reader needs."):
        drawing.page()
        drawing.lines(50, 400, text)
    parsed = drawing.parse()
    assert parsed.text == "The whole of the report has the information that each reader needs."
    assert parsed.pages == (0, parsed.text.index("mation"))


def test_parse_pdf__a_footnote_is_between_the_parts_of_a_divided_word() -> None:
    drawing = Drawing()
    for text, note in (
        ("The whole of the report has the infor-", "1 See page 12."),
        ("mation that each reader needs.", ""),
    ):
        drawing.page()
        drawing.lines(50, 400, text)
        drawing.lines(50, 700, *filter(None, [note]), size=7)
    assert "has the information that each reader needs." in drawing.parse().text


def test_parse_pdf__a_divided_word_goes_on_in_a_line_of_nearly_its_size() -> None:
    drawing = Drawing()
    drawing.page()
    for row, (text, size) in enumerate((("The whole manage-", 10.2), ("ment is in", 10.3), ("Berlin today.", 10.2))):
        drawing.lines(50, 100 + 12 * row, text, size=size)
    assert "The whole management is in" in drawing.parse().text


def test_parse_pdf__a_title_on_most_pages_is_a_heading_once() -> None:
    drawing = Drawing()
    for number in range(1, 5):
        drawing.page()
        drawing.lines(50, 40, "Healthy Students" if number < 4 else "Annex", size=18)
        drawing.lines(50, 300, f"page {number} begins with the text", "and then comes to its last line.")
    parsed = drawing.parse()
    assert [heading.title for heading in parsed.headings] == ["Healthy Students", "Annex"]
    assert parsed.text.count("Healthy Students") == 3


def test_parse_pdf__running_lines_are_left_out_of_sentences() -> None:
    drawing = Drawing()
    for number in range(1, 5):
        drawing.page()
        drawing.lines(50, 40, "ACME Annual Report 2024")
        drawing.lines(
            50, 300, f"page {number} begins and goes on with the text", "and then comes to its last line with"
        )
        drawing.lines(50, 770, f"Page {number} of 4")
    text = drawing.parse().text
    assert text.count("ACME Annual Report") == 1
    assert "Page 3 of 4" not in text
    assert "its last line with\npage 3 begins" in text


def test_parse_pdf__page_numbers_alone_are_not_taken_from_a_single_page() -> None:
    assert parse_drawn((50, 100, "The sum of all that is on this page:"), (50, 780, "12")).text.endswith("12")


def headed(*titles: tuple[str, float, str]) -> list[tuple[int, str]]:
    drawing = Drawing()
    drawing.page()
    y = 60.0
    for text, size, style in titles:
        y += 40
        drawing.lines(50, y, text, size=size, style=style)
        y += 24
        drawing.lines(50, y, "The text below it is about all that", "has been said of the matter so far.", "It ends.")
        y += 24
    return [(heading.level, heading.title) for heading in drawing.parse().headings]


@pytest.mark.parametrize(
    ("titles", "expected"),
    [
        ([("Results", 14, ""), ("12 March 2024", 14, "")], ["Results"]),
        ([("Results", 14, ""), ("2024-03-12", 14, "B")], ["Results"]),
        (
            [("1 Results", 10, ""), ("1.1 Of the North", 10, ""), ("not a title", 10, "")],
            ["1 Results", "1.1 Of the North"],
        ),
        ([("Results", 10, "B"), ("A bold sentence that ends.", 10, "B")], ["Results"]),
        ([("Results", 14, ""), ("(as at the end of March)", 14, "")], ["Results"]),
        ([("Results", 14, ""), ("Page 2 of 5", 14, ""), ("A B", 14, "")], ["Results"]),
        ([("Results", 14, ""), ("2. bring the papers", 14, "")], ["Results"]),
        ([("R E S U L T S", 14, "")], ["R E S U L T S"]),
        ([("Results", 14, "B"), ("Berlin, March 21, 2022", 14, "")], ["Results"]),
        ([("Annual Report, March 2024", 14, "")], ["Annual Report, March 2024"]),
        ([("Jahresbericht, 3. Mai 2024", 14, "B")], ["Jahresbericht, 3. Mai 2024"]),
        ([("Results", 14, "B"), ("Printed: 16.11.2012 21:07:09", 14, "")], ["Results"]),
        ([("I. RESULTS", 9, "B"), ("II. METHODS", 9, "B")], ["I. RESULTS", "II. METHODS"]),
    ],
)
def test_parse_pdf__headings_are_not_dates_or_sentences(
    titles: list[tuple[str, float, str]], expected: list[str]
) -> None:
    assert [title for _, title in headed(*titles)] == expected


@pytest.mark.parametrize(
    ("block", "leading", "right"),
    [
        (["Tel.: 555-0", "Fax: 555-1234", "Office of the north"], 14, 500),
        (["Office: Linz or Graz", "Street: Donaustrasse"], 14, None),
        (["Invoice day", "12 March 2024"], 24, None),
        (["The offices pay on the day.", "Account: North"], 40, None),
    ],
    ids=["flush right", "labels", "label above its value", "style of a sentence"],
)
def test_parse_pdf__rows_of_a_form_in_larger_letters_are_no_headings(
    block: list[str], leading: float, right: float | None
) -> None:
    drawing = Drawing()
    drawing.page()
    drawing.lines(50, 60, "Results", size=18, style="B")
    drawing.lines(50, 90, *["The use of water in the north has been"] * 5)
    for number, text in enumerate(block):
        drawing.pdf.set_font("helvetica", "", 12)
        left = right - drawing.pdf.get_string_width(text) if right else 50
        drawing.lines(left, 200 + leading * number, text, size=12)
    drawing.lines(50, 300, *["The use of water in the north has been"] * 5)
    assert [heading.title for heading in drawing.parse().headings] == ["Results"]


@pytest.mark.parametrize(
    ("title", "below"),
    [
        ("Minutes of the Council", "12 March 2024"),
        ("Annual Report", "2023"),
        ("Board of Directors", "info@example.org"),
    ],
)
def test_parse_pdf__a_title_in_larger_letters_is_no_label_of_what_is_below_it(title: str, below: str) -> None:
    drawing = Drawing()
    drawing.page()
    drawing.lines(50, 60, title, size=18, style="B")
    drawing.lines(50, 86, below, size=10)
    drawing.lines(50, 130, *["The use of water in the north has been"] * 5)
    parsed = drawing.parse()
    assert [heading.title for heading in parsed.headings] == [title]
    assert parsed.title == title


def test_parse_pdf__a_large_title_in_two_lines_may_end_before_a_word_that_had_room() -> None:
    drawing = Drawing()
    drawing.page()
    drawing.lines(50, 60, "Points for all", "two of the new offices", size=16, style="B", leading=20)
    drawing.lines(50, 120, *["The use of water in the north has been"] * 5)
    assert [heading.title for heading in drawing.parse().headings] == ["Points for all two of the new offices"]


def test_parse_pdf__the_last_line_of_a_page_is_no_heading() -> None:
    drawing = Drawing()
    for footer in ("Reference tables", "6. Adjournment"):
        drawing.page()
        drawing.lines(50, 60, "Results", size=14)
        drawing.lines(50, 100, *["The use of water in the north has been"] * 5)
        drawing.lines(50, 500, footer, size=14)
    assert [heading.title for heading in drawing.parse().headings] == ["Results", "Results", "6. Adjournment"]


def test_parse_pdf__levels_follow_the_numbers() -> None:
    assert headed(("2 Methods", 12, "B"), ("2.1 Data", 12, "B"), ("2.1.1 Sources", 12, "B")) == [
        (1, "2 Methods"),
        (2, "2.1 Data"),
        (3, "2.1.1 Sources"),
    ]


def test_parse_pdf__a_title_and_a_heading_in_one_typeface_stay_two() -> None:
    drawing = Drawing()
    drawing.page()
    drawing.lines(50, 60, "Report on the Use of", "Water in the North", size=16, leading=20)
    drawing.lines(50, 120, "Summary", size=16)
    drawing.lines(50, 150, *["The use of water in the north has been"] * 5)
    titles = [heading.title for heading in drawing.parse().headings]
    assert titles == ["Report on the Use of Water in the North", "Summary"]


def test_parse_pdf__titles_set_close_stay_two() -> None:
    drawing = Drawing()
    drawing.page()
    drawing.lines(50, 60, "Report on the Use of", "Water in the North", size=18, leading=22)
    drawing.lines(50, 110, "Summary", size=18)
    for top in (150, 220):
        drawing.lines(50, top, *["The use of water in the north has been"] * 5, size=10, leading=12.5)
    titles = [heading.title for heading in drawing.parse().headings]
    assert titles == ["Report on the Use of Water in the North", "Summary"]


def test_parse_pdf__form_values_and_annotations() -> None:
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> "
        b"/Annots [7 0 R 8 0 R 9 0 R 10 0 R 11 0 R] >>"
    )
    data = pdf(
        {
            1: b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [7 0 R 8 0 R 10 0 R] >> >>",
            3: page,
            7: b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (Name) /V (Ada Lovelace) /Rect [10 10 90 20] >>",
            8: b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (Empty) /Rect [10 30 90 40] >>",
            9: b"<< /Type /Annot /Subtype /Text /Contents (Check this sum) /Rect [10 50 20 60] >>",
            10: b"<< /Type /Annot /Subtype /Widget /FT /Btn /T (Agreed) /V /Yes /AS /Yes /Rect [10 70 20 80] "
            b"/AP << /N << /Yes 6 0 R /Off 6 0 R >> >> >>",
            11: b"<< /Type /Annot /Subtype /Link /Contents (Go to section 2) /Rect [10 90 20 99] >>",
            6: b"<< /Length 0 /Subtype /Form /BBox [0 0 9 9] >>\nstream\n\nendstream",
        }
    )
    assert parse_pdf(data).text.split("\n\n") == [
        "Words to find",
        "Name: Ada Lovelace",
        "Check this sum",
        "Agreed: Yes",
    ]


def test_parse_pdf__one_broken_page_of_three_costs_that_page() -> None:
    data = pdf(
        {
            2: b"<< /Type /Pages /Kids [3 0 R 7 0 R 8 0 R] /Count 3 >>",
            7: b"(no page)",
            8: b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Contents 4 0 R "
            b"/Resources << /Font << /F 5 0 R >> >> >>",
        }
    )
    parsed = parse_pdf(data)
    assert parsed.text == "Words to find\n\n\n\nWords to find"
    assert [note.code for note in parsed.notes] == ["pages_unreadable"]
    assert parsed.notes[0].message == "pages that could not be read and are left out: 2"


def test_parse_pdf__text_that_is_mostly_no_letters_is_garbled() -> None:
    words = b"BT /F 12 Tf 10 100 Td (%s) Tj ET" % (b"!#$%&*+,-./:;<=>?@[]^_{|}~" * 4)
    assert parse_error(pdf({4: b"<< /Length %d >>\nstream\n%s\nendstream" % (len(words), words)})).code == "garbled"


def test_parse_pdf__dot_leaders_and_figures_are_not_garbled() -> None:
    rows = [(50, 100 + 12 * row, f"Chapter {row} {'.' * 80} {row}") for row in range(5)]
    assert "Chapter 3" in parse_drawn(*rows).text
    assert parse_drawn(*((50, 100 + 12 * row, "12.5 % | -3.25 | 1,000.00 | (7) | 8.1") for row in range(9))).text


@pytest.mark.parametrize("data", [b"Not found. " * 20, b"<html><body>Please log in</body></html>", b"\x01\x02" * 50])
def test_parse_pdf__a_name_without_a_pdf(data: bytes) -> None:
    assert parse_error(data).code == "binary"


def test_parse_pdf__brotli_is_named() -> None:
    stream = b"<< /Length 6 /Filter /BrotliDecode >>\nstream\nabcdef\nendstream"
    error = parse_error(pdf({4: stream}))
    assert error.code == "unsupported"
    assert "Brotli" in str(error)


def test_parse_pdf__certificate_encryption_is_named() -> None:
    handler = b"/Encrypt << /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 /Recipients [(x)] >> /ID [(a) (b)]"
    error = parse_error(pdf(trailer=handler))
    assert error.code == "encrypted"
    assert "certificates" in str(error)


def test_parse_pdf__vertical_japanese_is_read_from_right_to_left() -> None:
    columns = ["吾輩は猫である。名前はまだ無い。", "どこで生れたかとんと見当がつかぬ。", "何でも薄暗い所で泣いていた。"]
    drawn_columns = b"".join(
        b"1 0 0 1 %d 700 Tm <%s> Tj\n" % (500 - 20 * at, text.encode("utf-16-be").hex().encode())
        for at, text in enumerate(columns)
    )
    content = b"BT /F 12 Tf %sET" % drawn_columns
    data = pdf(
        {
            3: b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R "
            b"/Resources << /Font << /F 5 0 R >> >> >>",
            4: b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
            5: b"<< /Type /Font /Subtype /Type0 /BaseFont /HeiseiMin-W3 /Encoding /UniJIS-UCS2-V "
            b"/DescendantFonts [7 0 R] >>",
            7: b"<< /Type /Font /Subtype /CIDFontType0 /BaseFont /HeiseiMin-W3 /DW 1000 /FontDescriptor 8 0 R "
            b"/CIDSystemInfo << /Registry (Adobe) /Ordering (Japan1) /Supplement 2 >> >>",
            8: b"<< /Type /FontDescriptor /FontName /HeiseiMin-W3 /Flags 6 /FontBBox [0 -200 1000 900] /ItalicAngle 0 "
            b"/Ascent 859 /Descent -140 /CapHeight 709 /StemV 69 >>",
        }
    )
    assert "".join(parse_pdf(data).text.split()) == "".join(columns)


def test_parse_pdf__a_line_that_begins_in_smaller_letters_stays_in_its_paragraph() -> None:
    drawing = Drawing()
    drawing.page()
    for row, (text, size) in enumerate(
        [
            ("The information that is found in the other folder is added to", 10),
            *[("it, except when the file", 10), ("glob-deleteall", 9)],
            ("is in the folder, which removes all that was found before.", 10),
        ]
    ):
        drawing.lines(50, 300 + 12 * row, text, size=size)
    assert "\n\n" not in drawing.parse().text


def boxed(data: bytes) -> list[tuple[str, LineBox]]:
    parsed = parse_pdf(data)
    assert list(parsed.boxes) == sorted(parsed.boxes)
    return [(parsed.text[box.start : box.end], box) for box in parsed.boxes]


def turned(data: bytes, degrees: int) -> bytes:
    with closing(pypdfium2.PdfDocument(data)) as document:
        document[0].set_rotation(degrees)
        saved = io.BytesIO()
        document.save(saved)
    return saved.getvalue()


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_parse_pdf__boxes_are_where_the_page_shows_the_lines(degrees: int) -> None:
    page = fpdf.FPDF(format=(200, 100))
    page.set_font("helvetica", size=12)
    page.add_page()
    page.text(20, 50, "The first line of the page")
    page.text(20, 80, "and the second one")
    data = turned(bytes(page.output()), degrees)
    with closing(pypdfium2.PdfDocument(data)) as document:
        picture = document[0].render(scale=3).to_numpy()[:, :, 0]
    height, width = picture.shape
    lines = boxed(data)
    assert {text for text, _ in lines} == {"The first line of the page", "and the second one"}
    inked = picture < 128
    for _, box in lines:
        rows = slice(box.top * height // 10_000, -(-box.bottom * height // 10_000))
        columns = slice(box.left * width // 10_000, -(-box.right * width // 10_000))
        assert inked[rows, columns].sum() > 100
        inked[rows, columns] = False
    assert inked.sum() < 20, "letters outside of the boxes"


def test_parse_pdf__boxes_of_divided_words_pages_and_tables(report_pdf: bytes) -> None:
    assert [(text, box.page) for text, box in boxed(report_pdf)] == [
        ("Preface of the board", 1),
        ("Results", 1),
        ("The infor", 1),
        ("mation is here.", 1),
        ("Some words, then Open Questions", 3),
    ]
    page = fpdf.FPDF()
    page.set_font("helvetica", size=12)
    page.add_page()
    with page.table() as table:
        for row in (("Plan", "Seats"), ("Basic", "5"), ("Large", "315")):
            table.row(row)
    ((text, box),) = boxed(bytes(page.output()))
    assert "315" in text
    assert box.right - box.left > 3_000


def test_parse_pdf__each_footnote_begins_at_its_raised_mark() -> None:
    notes = [
        (50, 603, "1", 5), (53, 600, "The first note of the page goes on in the line that is below it, and", 8),
        (50, 591, "ends at the edge with the words of this line, which are wide enough.", 8),
        (50, 585, "2", 5), (53, 582, "The second note begins where the mark is raised above its first line,", 8),
    ]  # fmt: skip
    parsed = draw_sizes([*((x, y + 100, text, size) for x, y, text, size in TEXT_LINES), *notes])
    assert [paragraph[:2] for paragraph in parsed.text.split("\n\n")[1:]] == ["1T", "2T"]


def test_parse_pdf__an_isotope_at_the_beginning_of_a_line_begins_no_note() -> None:
    lines: list[tuple[float, float, str, float]] = [
        (50, 703, "The age of the bones that were found in the cave was determined by the", 10),
        (50, 695, "14", 6), (57, 691, "C method, and the ratio of the isotopes is written in the table that", 10),
        (50, 679, "comes with the report of the year.", 10),
    ]  # fmt: skip
    assert "\n\n" not in draw_sizes(lines).text


def test_parse_pdf__each_item_of_a_list_without_indents_is_a_paragraph() -> None:
    lines = [
        "1. The applicant meets the conditions that the law has, and shows",
        "it by a certificate of this year.",
        "2. The applicant has the mark of the examination that is asked for.",
        "3. The applicant sends the form.",
    ]
    parsed = parse_drawn(*column(50, 700, lines))
    assert [paragraph[:2] for paragraph in parsed.text.split("\n\n")] == ["1.", "2.", "3."]


def test_parse_pdf__a_day_at_the_beginning_of_a_line_is_no_item() -> None:
    lines = [
        "1. The contract was signed in Berlin on the evening of the",
        "3. May of the year and was then sent to the seller, who had",
        "to be told by telephone before he could open it at all.",
        "2. The seller sends the form.",
        "7. The buyer keeps it.",
    ]
    parsed = parse_drawn(*column(50, 700, lines))
    assert [paragraph[:2] for paragraph in parsed.text.split("\n\n")] == ["1.", "2.", "7."]


def test_parse_pdf__the_distance_of_lines_is_that_of_the_longest_ones() -> None:
    lines = [
        (700, "May 5, 2023"),
        (673, "To the persons of the shift:"),
        (646, "There were twenty bottles of water and ten blankets in the lorry of"),
        (633, "the second day, which three persons drove for fifteen hours."),
        (606, "Best regards,"),
        (579, "Ada"),
    ]
    parsed = draw_sizes([(50, y, text, 11) for y, text in lines])
    assert [paragraph.split()[0] for paragraph in parsed.text.split("\n\n")] == ["May", "To", "There", "Best", "Ada"]


BODY = "The words of the text go on in this line, and in the next"
TEXT_LINES = [(50.0, 600.0 - 12 * at, BODY, 10.0) for at in range(4)]


def test_parse_pdf__a_title_is_apart_from_smaller_words_on_its_right() -> None:
    parsed = draw_sizes([(50, 700, "Method of the pump", 24), (400, 700, "Pumps 2", 10), *TEXT_LINES])
    assert [heading.title for heading in parsed.headings] == ["Method of the pump"]
    assert parsed.text.startswith("Method of the pump\n\nPumps 2\n\n")


def test_parse_pdf__a_title_has_no_word_that_is_set_apart_on_its_right() -> None:
    first = (50.0, 740.0, "OMB Number: 4040", 10.0)
    parsed = draw_sizes([first, (50, 700, "Application for assistance", 14), (480, 700, "Dec-2015", 14), *TEXT_LINES])
    assert [heading.title for heading in parsed.headings] == ["Application for assistance"]


@pytest.mark.parametrize(
    "rows",
    [
        [("Date of birth", "3 May 1980"), ("Place of birth", "Bonn"), ("Name", "Ada Smith")],
        [("Weight of the pump", "12.5 kg")],
        [("Revenue of the year", "20 million")],
    ],
    ids=["rows", "amount", "amount in words"],
)
def test_parse_pdf__a_label_that_is_larger_than_its_value_is_in_one_line_with_it(rows: list[tuple[str, str]]) -> None:
    cells = [
        line
        for at, (label, value) in enumerate(rows)
        for line in ((50, 715 - 20 * at, label, 14), (320, 715 - 20 * at, value, 10))
    ]
    parsed = draw_sizes([(50, 760, BODY, 10), *cells, *TEXT_LINES])
    assert not parsed.headings
    assert {" ".join(row) for row in rows} <= set(parsed.text.splitlines())


@pytest.mark.parametrize(("label", "amount"), [("Total", "1,250.00 EUR"), ("Soup of the day", "12.50 EUR")])
def test_parse_pdf__a_label_with_an_amount_at_the_right_edge_is_no_title(label: str, amount: str) -> None:
    parsed = draw_sizes([(50, 760, BODY, 10), (50, 700, label, 14), (480, 700, amount, 14), *TEXT_LINES])
    assert not parsed.headings


@pytest.mark.parametrize("words", ["1250 EUR", "4500 Euro payable now", "1200 Main Street"])
def test_parse_pdf__an_amount_and_a_street_in_large_bold_letters_are_no_titles(words: str) -> None:
    parsed = draw_sizes([(50, 700, words, 14), *TEXT_LINES], first_face="Helvetica-Bold")
    assert not parsed.headings


@pytest.mark.parametrize(("face", "titles"), [("Helvetica", []), ("Helvetica-Bold", ["2023 Registration of pumps"])])
def test_parse_pdf__a_title_that_begins_with_a_year_is_larger_and_bold(face: str, titles: list[str]) -> None:
    parsed = draw_sizes([(50, 700, "2023 Registration of pumps", 18), *TEXT_LINES], first_face=face)
    assert [heading.title for heading in parsed.headings] == titles


def draw_sizes(lines: list[tuple[float, float, str, float]], first_face: str = "Helvetica") -> ParsedDocument:
    """A page of lines, each with its left edge, its baseline and its size in points."""
    file = io.BytesIO()
    page = Canvas(file, pagesize=(600, 800))
    for at, (x, y, text, size) in enumerate(lines):
        page.setFont("Helvetica" if at else first_face, size)
        page.drawString(x, y, text)
    page.save()
    return parse_pdf(file.getvalue())
