"""Parse PDF with PDFium: the text layer with its paragraphs, the pages, the headings."""

import re
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Heading, ParsedDocument
from kosmos_rag.ingestion.parsing import media_types
from kosmos_rag.ingestion.parsing.clean import clean, clean_title
from kosmos_rag.ingestion.parsing.limits import OutputLimits
from kosmos_rag.ingestion.parsing.ocr import PageReader
from kosmos_rag.ingestion.parsing.pdf_lines import Line, read_lines, texts, titles

_PDFIUM = threading.Lock()
"""Each call of PDFium holds this lock: it is not thread-safe."""

_PAGE_SEPARATOR = "\n\n"
_MAX_OUTLINE_ENTRIES = 10_000
"""Each entry is searched for on its page; a hostile outline must not make that a day's work."""
_LINE_END_HYPHEN = re.compile(r"[\ufffe\x02]\n?")
"""What PDFium writes for a hyphen that divides a word at the end of a line."""

_Outline = list[tuple[int, str, int]]
"""Level from 1, title, page from 0."""


def parse_pdf(data: bytes, limits: OutputLimits, *, ocr: bool = False) -> ParsedDocument:
    """Parse a PDF: one offset a page, also for pages without text.

    Headings from the outline, else by their letters. With `ocr`, what is drawn on a page without text is read.

    Raises:
        ParseError: `encrypted`, `no_text`, `corrupt`, `too_large`.
    """
    with _PDFIUM:
        pages, outline, title = _read(data, limits, PageReader() if ocr else None)
    if not any(pages):
        remedy = (
            "and OCR finds none on them" if ocr else "probably scanned; set ingestion.parsing.ocr, or run OCR first"
        )
        raise ParseError("no_text", f"{len(pages)} pages without text, {remedy}")
    starts = tuple(_starts(pages))
    text = _PAGE_SEPARATOR.join(pages)
    headings = _headings(outline, pages, starts)
    return ParsedDocument(
        text=text,
        media_type=media_types.PDF,
        title=title,
        # A heading on a last page without text has no place in the text, and nothing to head.
        headings=tuple(heading for heading in headings if heading.start < len(text)),
        pages=starts,
    )


def _read(data: bytes, limits: OutputLimits, reader: PageReader | None) -> tuple[list[str], _Outline, str | None]:
    with closing(_open(data)) as document:
        limits.check_pages(len(document))
        page_list = list(_pages(document, limits, reader))
        text_lines = [() if page.scanned else page.lines for page in page_list]
        outline = list(islice(_outline(document), _MAX_OUTLINE_ENTRIES)) or titles(text_lines)[:_MAX_OUTLINE_ENTRIES]
        pages = [clean(_LINE_END_HYPHEN.sub("", text)).strip() for text in texts([page.lines for page in page_list])]
        return pages, outline, clean_title(document.get_metadata_value("Title"))


def _open(data: bytes) -> Any:
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as exc:
        if exc.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            message = "the PDF has a password; remove it and save the document again"
            raise ParseError("encrypted", message) from exc
        raise


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    lines: list[Line]
    scanned: bool = False
    """Read from a picture: its letters say nothing of headings."""


def _pages(document: Any, limits: OutputLimits, reader: PageReader | None) -> Iterator[_Page]:
    size = 0
    for index in range(len(document)):
        with closing(document[index]) as page:
            found = _page(page, reader)
        size += sum(len(line.text) for line in found.lines)
        limits.check_text(size)
        yield found


def _page(page: Any, reader: PageReader | None) -> _Page:
    import pypdfium2

    with closing(page.get_textpage()) as layer:
        lines = read_lines(layer)
    if lines or reader is None or not pypdfium2.raw.FPDFPage_CountObjects(page):
        return _Page(lines=lines)
    return _Page(lines=reader.read(page), scanned=True)


def _outline(document: Any) -> Iterator[tuple[int, str, int]]:
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        title = clean_title(bookmark.get_title())
        if title and page is not None and 0 <= page < len(document):
            yield bookmark.level + 1, title, page


def _starts(pages: list[str]) -> Iterator[int]:
    start = 0
    for page in pages:
        yield start
        start += len(page) + len(_PAGE_SEPARATOR)


def _headings(outline: _Outline, pages: list[str], starts: tuple[int, ...]) -> list[Heading]:
    headings = [
        Heading(level=level, title=title, start=starts[page] + _find_title(title, pages[page]))
        for level, title, page in outline
    ]
    return sorted(headings, key=lambda heading: heading.start)


def _find_title(title: str, page: str) -> int:
    """Return the offset of a title on its page, else 0.

    The title may be broken over lines; a line of its own is preferred to words within the text.
    """
    words = r"\s+".join(map(re.escape, title.split()))
    match = re.search(rf"^{words}$", page, re.MULTILINE) or re.search(words, page)
    return match.start() if match else 0
