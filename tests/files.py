"""Files made in memory."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

import fpdf


def save(document: Any) -> bytes:
    """Return a document, workbook or presentation as its library writes it."""
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def pack_zip(members: Mapping[str, bytes | str], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def write_pdf(*pages: str, size: int = 12) -> bytes:
    """Return a PDF file with a page for each text."""
    pdf = fpdf.FPDF()
    pdf.set_font("helvetica", size=size)
    for text in pages:
        pdf.add_page()
        pdf.multi_cell(0, text=text)
    return bytes(pdf.output())
