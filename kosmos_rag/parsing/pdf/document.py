"""Parse PDF with PDFium: paragraphs of the text layer, pages, headings."""

import io
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Heading, LineBox, Note, ParsedDocument, TableSpan
from kosmos_rag.parsing import bounds, media_types
from kosmos_rag.parsing.clean import clean_property_title, clean_title
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.pdf.faces import Faces
from kosmos_rag.parsing.pdf.headings import find_headings
from kosmos_rag.parsing.pdf.lines import Line, tidy
from kosmos_rag.parsing.pdf.ocr import PageReader
from kosmos_rag.parsing.pdf.page import PageContent, PageFrame, read_page
from kosmos_rag.parsing.pdf.page_lines import PageLines, Paragraph, resolve_hyphens
from kosmos_rag.parsing.pdf.paragraphs import build_paragraphs
from kosmos_rag.parsing.pdf.reading_order import arrange
from kosmos_rag.parsing.pdf.table_pages import render_table
from kosmos_rag.parsing.pdf.tags import TaggedHeadings

_PDFIUM = threading.Lock()
"""Each call of PDFium holds this lock: it is not thread-safe."""

_PARAGRAPH_SEPARATOR = "\n\n"
_REPEATED = re.compile(r"(\W)\1+")
_LEAST_READABLE = 0.4
"""Share of the characters, white space aside, that are letters or digits in a text that can be read."""
_LEAST_CHARACTERS = 50
_CERTIFICATE_FILTERS = (b"/Adobe.PubSec", b"/Adobe.PPKLite")
_BROTLI = b"/BrotliDecode"

_Outline = list[tuple[int, str, int]]
"""Level from 1, title, page from 0."""


@dataclass(kw_only=True, slots=True)
class _Text:
    """The text of a document under construction."""

    parts: list[str] = field(default_factory=list)
    length: int = 0
    pages: list[int] = field(default_factory=list)
    """Offset at which each page starts."""
    starts: dict[int, int] = field(default_factory=dict)
    """Offset of each paragraph, by identity."""
    running: set[int] = field(default_factory=set)
    """Offsets of running lines."""
    tables: list[TableSpan] = field(default_factory=list)
    boxes: list[LineBox] = field(default_factory=list)

    def add(self, part: str) -> None:
        self.parts.append(part)
        self.length += len(part)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Page:
    """A page whose lines are in reading order."""

    lines: PageLines = field(default_factory=PageLines)
    letters: Counter[tuple[float, bool]] = field(default_factory=Counter)
    """How many letters have each size and weight, those of tables too."""
    values: Sequence[str] = ()
    """Of form fields, and texts of annotations."""
    scanned: bool = False
    frame: PageFrame | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Content:
    """The content of a file before it is composed."""

    pages: list[list[Paragraph]]
    outline: _Outline
    title: str | None
    notes: tuple[Note, ...]
    text_pages: list[list[Paragraph]]
    """Those whose letters show the headings: the pages without those that are pictures."""
    letters: Mapping[tuple[float, bool], int]
    """How many letters have each size and weight, those of tables too."""
    frames: list[PageFrame | None]


def parse_pdf(data: bytes, limits: OutputLimits, *, ocr: bool = False, passwords: Sequence[str] = ()) -> ParsedDocument:
    """Parse a PDF: one offset for each page, also without text.

    Headings come from the outline, else from their letters. A page that cannot be read is left out, with a note.

    Args:
        limits: limits of the result.
        ocr: whether to read pages without text by OCR.
        passwords: are tried on an encrypted file.

    Raises:
        ParseError: `encrypted`, `unsupported`, `no_text`, `garbled`, `corrupt`, `too_large`.
    """
    with _PDFIUM:
        content = _read(data, limits, PageReader() if ocr else None, passwords)
    if not any(content.pages):
        raise _no_text(data, len(content.pages), ocr=ocr)
    text = _compose(content)
    joined = "".join(text.parts)
    _check_readable(joined)
    headings = _headings(content, text, joined)
    return ParsedDocument(
        text=joined,
        media_type=media_types.PDF,
        title=content.title or next((heading.title for heading in headings if heading.start == 0), None),
        # A heading on a last page without text has no place in the text, and nothing to head.
        headings=tuple(heading for heading in headings if heading.start < len(joined)),
        pages=tuple(text.pages),
        notes=content.notes,
        tables=tuple(text.tables),
        boxes=tuple(text.boxes),
    )


def render_page(data: bytes, page: int, *, passwords: Sequence[str] = ()) -> bytes:
    """Render a page as a PNG, at most 1,400 pixels wide.

    Raises ParseError.

    Args:
        page: number of the page, from 1.
        passwords: are tried on an encrypted file.
    """
    with _PDFIUM, closing(_open(data, passwords)) as document:
        if page > len(document):
            raise ParseError("unsupported", f"page {page} is requested, and the document has {len(document)} pages")
        with closing(document[page - 1]) as opened:
            width, height = opened.get_size()
            # A hostile page may be of any size, its picture is not.
            scale = min(bounds.MAX_PICTURE_WIDTH / max(width, 1), bounds.MAX_PICTURE_HEIGHT / max(height, 1))
            picture = io.BytesIO()
            opened.render(scale=scale).to_pil().save(picture, "PNG")
    return picture.getvalue()


def _read(data: bytes, limits: OutputLimits, reader: PageReader | None, passwords: Sequence[str]) -> _Content:
    with closing(_open(data, passwords)) as document:
        limits.check_pages(len(document))
        read = _read_pages(document, limits, reader)
        outline = list(islice(_outline(document), bounds.MAX_OUTLINE_ENTRIES))
        title = clean_property_title(tidy(document.get_metadata_value("Title")))
    broken = [number for number, page in enumerate(read, start=1) if page is None]
    if broken and len(broken) == len(read):
        raise ParseError("corrupt", f"none of {len(read)} pages can be read; save the document again")
    sources = [page or _Page() for page in read]
    page_lines = [page.lines for page in sources]
    resolve_hyphens(page_lines)
    pages = build_paragraphs(page_lines, limits)
    for source, paragraphs in zip(sources, pages, strict=True):
        paragraphs += [Paragraph(lines=[], verbatim=value) for value in map(_clean_value, source.values)]
    return _Content(
        pages=pages,
        text_pages=[page for page, source in zip(pages, sources, strict=True) if not source.scanned],
        letters=sum((page.letters for page in sources if not page.scanned), Counter()),
        frames=[page.frame for page in sources],
        outline=outline,
        title=title,
        notes=tuple(_page_notes(broken)),
    )


def _arrange_page(content: PageContent, limits: OutputLimits) -> _Page:
    letters: Counter[tuple[float, bool]] = Counter()
    for runs in content.lines:
        for run in runs:
            letters[run.size, run.bold] += len(run.text)
    # More text than the limit is refused before it is arranged.
    limits.check_text(letters.total() + sum(map(len, content.values)))
    lines = _page_lines(content, limits)
    return _Page(lines=lines, letters=letters, values=content.values, scanned=content.scanned, frame=content.frame)


def _page_lines(content: PageContent, limits: OutputLimits) -> PageLines:
    """Return the lines and tables of a page in reading order."""
    items: list[Line | Paragraph] = []
    for number, region in enumerate(arrange(content)):
        if region.table is not None:
            items.append(render_table(region.table, limits))
        items += (line._replace(region=number, is_label=region.is_figure) for line in region.lines)
    return PageLines(items=items, top=content.top, bottom=content.bottom)


def _clean_value(value: str) -> str:
    return tidy(value.replace("\r\n", "\n").replace("\r", "\n")).strip()


def _page_notes(broken: Sequence[int]) -> Iterator[Note]:
    if broken:
        numbers = ", ".join(map(str, broken[:10])) + (" …" if len(broken) > 10 else "")
        yield Note(code="pages_unreadable", message=f"pages that could not be read and are left out: {numbers}")


def _open(data: bytes, passwords: Sequence[str]) -> Any:
    import pypdfium2

    for password in passwords:
        with suppress(pypdfium2.PdfiumError):
            return pypdfium2.PdfDocument(data, password=password)
    try:
        return pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as exc:
        if any(name in data for name in _CERTIFICATE_FILTERS) and b"/Encrypt" in data:
            message = "the PDF is encrypted for the holders of certificates; save it again without encryption"
            raise ParseError("encrypted", message) from exc
        if exc.err_code in (pypdfium2.raw.FPDF_ERR_PASSWORD, pypdfium2.raw.FPDF_ERR_SECURITY):
            other = " other than those of ingestion.parsing.passwords" if passwords else ""
            message = f"the PDF has a password{other}; add it to ingestion.parsing.passwords, or save it without one"
            raise ParseError("encrypted", message) from exc
        if _BROTLI in data:
            raise _brotli() from exc
        raise


def _brotli() -> ParseError:
    return ParseError("unsupported", "the PDF is compressed with Brotli, which is not read; save it as PDF 1.7")


def _no_text(data: bytes, pages: int, *, ocr: bool) -> ParseError:
    if _BROTLI in data:
        return _brotli()
    remedy = "and OCR finds none on them" if ocr else "probably scanned; set ingestion.parsing.ocr, or run OCR first"
    return ParseError("no_text", f"{pages} pages without text, {remedy}")


def _check_readable(text: str) -> None:
    """Raise ParseError `garbled` if most characters are not letters or digits.

    The fonts of such a file do not define which letters they draw.
    """
    characters = _REPEATED.sub(r"\1", "".join(text.split()))
    readable = sum(map(str.isalnum, characters))
    if len(characters) >= _LEAST_CHARACTERS and readable < _LEAST_READABLE * len(characters):
        raise ParseError(
            "garbled",
            f"{len(characters) - readable} of {len(characters)} characters are no letters: the fonts of the PDF do not "
            "say what they draw; print it to a new PDF, or run OCR on it",
        )


def _read_pages(document: Any, limits: OutputLimits, reader: PageReader | None) -> list[_Page | None]:
    """Return each page; None if it cannot be read.

    Pages that were read before the face of most letters was known are read again.
    """
    import pypdfium2

    if document.get_formtype() != pypdfium2.raw.FORMTYPE_NONE:
        document.init_forms()
    faces, tags = Faces(), TaggedHeadings()
    pages: list[_Page | None] = []
    were_heavy: list[bool] = []
    size = 0
    for index in range(len(document)):
        page = _read_page(document, index, faces, tags, limits, reader)
        if page is not None:
            size += page.letters.total() + sum(map(len, page.values))
            limits.check_text(size)
        pages.append(page)
        were_heavy.append(faces.has_heavy_text)
    faces.settle()
    for index, page in enumerate(pages):
        if page is not None and not page.scanned and were_heavy[index] != faces.has_heavy_text:
            pages[index] = _read_page(document, index, faces, tags, limits, None)
    return pages


def _read_page(
    document: Any, index: int, faces: Faces, tags: TaggedHeadings, limits: OutputLimits, reader: PageReader | None
) -> _Page | None:
    import pypdfium2

    try:
        with closing(document[index]) as page:
            return _page(page, document.formenv, faces, tags, limits, reader)
    except pypdfium2.PdfiumError:
        return None


def _page(
    page: Any, forms: Any, faces: Faces, tags: TaggedHeadings, limits: OutputLimits, reader: PageReader | None
) -> _Page:
    import pypdfium2

    with closing(page.get_textpage()) as layer:
        content = read_page(page, layer, faces, tags, forms.raw if forms else None)
        if content.lines or content.values or reader is None or not pypdfium2.raw.FPDFPage_CountObjects(page):
            return _arrange_page(content, limits)
    return _arrange_page(reader.read(page), limits)


def _outline(document: Any) -> Iterator[tuple[int, str, int]]:
    for bookmark in document.get_toc():
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        title = clean_title(tidy(bookmark.get_title()))
        if title and page is not None and 0 <= page < len(document):
            yield bookmark.level + 1, title, page


def _compose(content: _Content) -> _Text:
    text = _Text()
    before: Paragraph | None = None
    for index, (page, frame) in enumerate(zip(content.pages, content.frames, strict=True)):
        if index:
            text.add(_separator(before) if page else _PARAGRAPH_SEPARATOR)
        text.pages.append(text.length)
        for number, paragraph in enumerate(page):
            if number:
                text.add(_PARAGRAPH_SEPARATOR)
            start = text.starts[id(paragraph)] = text.length
            if paragraph.is_running:
                text.running.add(start)
            text.add(paragraph.text)
            if paragraph.table is not None:
                text.tables.append(paragraph.table.span(start))
            if frame is not None:
                text.boxes += (
                    LineBox(start + first, start + end, index + 1, *frame.place(box))
                    for first, end, box in paragraph.boxes()
                )
        before = page[-1] if page else None
    return text


def _separator(before: Paragraph | None) -> str:
    """Return what is between a paragraph and the next page."""
    if before is None or not before.continues:
        return _PARAGRAPH_SEPARATOR
    return "" if before.lines[-1].divided else "\n"


def _headings(content: _Content, text: _Text, joined: str) -> list[Heading]:
    """Return the headings of the outline, and those that their letters show."""
    entries = _outline_headings(content.outline, joined, text.pages, text.running)
    places = [heading.start for heading in entries]
    headings = list(entries)
    for paragraph, title, level in find_headings(content.text_pages, content.letters)[: bounds.MAX_OUTLINE_ENTRIES]:
        start = text.starts[id(paragraph)]
        after = bisect_left(places, start)
        if after < len(entries) and places[after] < start + len(paragraph.text):
            continue
        above = entries[after - 1].level if after else 0
        headings.append(Heading(level=above + 1 if entries else level, title=title, start=start))
    return sorted(headings, key=lambda heading: (heading.start, heading.level))


def _outline_headings(outline: _Outline, text: str, starts: Sequence[int], running: Container[int]) -> list[Heading]:
    """Return the entries of an outline where their titles are, in order.

    An outline most of whose titles are not on their pages, as those of files that were put together, has none.
    """
    ends = [*starts[1:], len(text)]
    places = [_find_title(title, text, starts[page], ends[page], running) for _, title, page in outline]
    if 2 * sum(place is not None for place in places) < len(places):
        return []
    headings = (
        Heading(level=level, title=place[1] if place else title, start=place[0] if place else starts[page])
        for (level, title, page), place in zip(outline, places, strict=True)
    )
    return sorted(headings, key=lambda heading: heading.start)


def _find_title(title: str, text: str, start: int, end: int, running: Container[int]) -> tuple[int, str] | None:
    """Return the offset of a title on its page, and the title with its number.

    The result is None if it is not there. The title may be broken over lines; a line of its own is preferred to words
    within the text, and each to a running line.
    """
    words = r"\s+".join(map(re.escape, title.split()))
    page = text[start:end]
    lines = re.finditer(rf"^(?:[\dA-Z][\d.]*[^\S\n]+)?{words}$", page, re.MULTILINE)
    matches = chain(lines, re.finditer(words, page))
    first = next(matches, None)
    if first is None:
        return None
    match = next((match for match in chain((first,), matches) if start + match.start() not in running), first)
    return start + match.start(), " ".join(match[0].split())
