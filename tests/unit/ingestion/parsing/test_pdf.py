"""PDF files made here: pages, outline, title, and the ones that cannot be read."""

from concurrent.futures import ThreadPoolExecutor

import fpdf
import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.parsing import parse


def parse_pdf(data: bytes) -> ParsedDocument:
    return parse(SourceDocument(source="a.pdf", data=data))


def error_of(data: bytes) -> ParseError:
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
    assert parsed.page_at(parsed.text.index("here")) == 1
    assert parsed.page_at(parsed.text.index("Some")) == 3


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
    assert parsed.section_at(parsed.text.index("Receipts")) == (
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


def test_parse_pdf__title(report_pdf: bytes) -> None:
    assert parse_pdf(report_pdf).title == "Annual Report"
    assert parse_pdf(bytes(new_pdf("x").output())).title is None


def test_parse_pdf__password_is_encrypted() -> None:
    pdf = new_pdf("secret")
    pdf.set_encryption(owner_password="owner", user_password="user")
    error = error_of(bytes(pdf.output()))
    assert error.code == "encrypted"
    assert error.__cause__ is not None


def test_parse_pdf__owner_password_alone_is_readable() -> None:
    pdf = new_pdf("not secret")
    pdf.set_encryption(owner_password="owner")
    assert parse_pdf(bytes(pdf.output())).text == "not secret"


def test_parse_pdf__no_text_on_any_page() -> None:
    pdf = new_pdf("", "")
    pdf.rect(10, 10, 50, 50, style="F")
    error = error_of(bytes(pdf.output()))
    assert error.code == "no_text"
    assert str(error) == "2 pages without text, probably scanned; set ingestion.parsing.ocr, or run OCR first"


def test_parse_pdf__broken_file_is_corrupt() -> None:
    error = error_of(b"%PDF-1.7\nnot really")
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
