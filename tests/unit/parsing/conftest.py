"""Documents that several tests take apart."""

import datetime

import docx
import fpdf
import openpyxl
import pptx
import pytest

from tests.files import pack_zip, save


@pytest.fixture(scope="session")
def report_pdf() -> bytes:
    """Three pages, the second without text; an outline of two levels; a title."""
    pdf = fpdf.FPDF()
    pdf.set_title("Annual Report")
    pdf.set_font("helvetica", size=12)
    pdf.add_page()
    pdf.cell(text="Preface of the board", new_x="LMARGIN", new_y="NEXT")
    pdf.start_section("Results")
    pdf.cell(text="Results", new_x="LMARGIN", new_y="NEXT")
    pdf.multi_cell(40, text="The infor-\nmation is here.")
    pdf.add_page()
    pdf.add_page()
    pdf.start_section("Open Questions", level=1)
    pdf.cell(text="Some words, then Open Questions")
    pdf.start_section("Not on the page", level=1)
    return bytes(pdf.output())


@pytest.fixture(scope="session")
def report_docx() -> bytes:
    """Paragraphs, headings and a table between two paragraphs."""
    document = docx.Document()
    document.core_properties.title = "Annual Report"
    document.add_heading("The Report", 0)
    document.add_paragraph("Before the table.")
    document.add_heading("Results", 1)
    table = document.add_table(rows=2, cols=2)
    for row, texts in zip(table.rows, [("Region", "Sales"), ("North", "12")], strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    document.add_paragraph("After\tthe table.")
    document.add_heading("Details", 2)
    document.add_paragraph("The end.")
    return save(document)


@pytest.fixture(scope="session")
def report_xlsx() -> bytes:
    """Two sheets with tables, an empty one and a hidden one."""
    workbook = openpyxl.Workbook()
    workbook.properties.title = "Sales Book"
    sales = workbook.active
    sales.title = "Sales"
    for row in (
        ["Sales of the year"],
        [],
        ["Region", "Day", "Sum", "Paid"],
        ["North", datetime.datetime(2024, 5, 1), 12.5, True],
        ["South", datetime.datetime(2024, 5, 2, 9, 30), 3.0, False],
        [],
        ["After a gap", None, 7],
    ):
        sales.append(row)
    workbook.create_sheet("Empty")
    hidden = workbook.create_sheet("Hidden")
    hidden.append(["secret"])
    hidden.sheet_state = "hidden"
    staff = workbook.create_sheet("Staff")
    staff.append(["Name", "Room"])
    staff.append(["Ada", 7])
    return save(workbook)


@pytest.fixture(scope="session")
def report_pptx() -> bytes:
    """Four slides: text, a table with notes and a group, an empty one, a hidden one."""
    deck = pptx.Presentation()
    deck.core_properties.title = "Quarter"
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Opening"
    first.placeholders[1].text = "First point\nSecond point"
    second = deck.slides.add_slide(deck.slide_layouts[5])
    second.shapes.title.text = "Numbers"
    table = second.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for (row, column), text in {(0, 0): "Region", (0, 1): "Sum", (1, 0): "North", (1, 1): "12"}.items():
        table.cell(row, column).text = text
    group = second.shapes.add_group_shape()
    group.shapes.add_group_shape().shapes.add_textbox(0, 0, 10, 10).text_frame.text = "Grouped words"
    second.notes_slide.notes_text_frame.text = "Say it slowly"
    deck.slides.add_slide(deck.slide_layouts[6])
    hidden = deck.slides.add_slide(deck.slide_layouts[5])
    hidden.shapes.title.text = "Hidden slide"
    hidden.element.set("show", "0")
    return save(deck)


@pytest.fixture(scope="session")
def report_epub() -> bytes:
    """A book of two chapters, the second without a heading, in another order than their names."""
    members = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "OEBPS/book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0">'
        '<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Book</dc:title></metadata><manifest>'
        '<item id="z" href="text/z%20first.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="text/a.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="blank" href="text/blank.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="pic" href="pic.svg" media-type="image/svg+xml"/></manifest>'
        '<spine><itemref idref="z"/><itemref idref="blank"/><itemref idref="pic"/><itemref idref="a"/></spine>'
        "</package>",
        "OEBPS/text/z first.xhtml": "<!DOCTYPE html><html><body><h1>Beginning</h1><p>It was night.</p>"
        "<h2>Later</h2><p>Day came.</p></body></html>",
        "OEBPS/text/blank.xhtml": "<html><head><title>Blank</title></head><body><img src='x'/></body></html>",
        "OEBPS/text/a.xhtml": "<html><head><title>Ending</title></head><body><p>All went home.</p></body></html>",
    }
    return pack_zip(members)
