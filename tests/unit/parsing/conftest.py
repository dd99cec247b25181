"""Documents that several tests take apart."""

import io

import docx
import fpdf
import pytest


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
    out = io.BytesIO()

    document.save(out)
    return out.getvalue()
