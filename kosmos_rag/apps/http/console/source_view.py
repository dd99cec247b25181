"""View model of a source: formatted text, or a PDF page."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from kosmos_rag.apps.http.console.document_text import Marks, render_document
from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.core.types import DocumentLines, DocumentSection, Rectangle

PAGE_LINES = 240
"""Lines on a page."""
_CONTEXT_LINES = 24
"""Lines to show before the cited ones."""
_LINES_TO_SECTION = 60
"""Most lines between the start of a section and the cited lines, for a page to begin with the section."""
_MAX_CHARS = 60_000
"""Characters on a page: a line may be as long as its document."""
_LEADING_CHARS = 2000
"""Characters to show before the passage in such a line."""
_PNG_SIZE = struct.Struct(">II")


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceView:
    """A part of a document as the page shows it."""

    html: Markup
    section: str
    """Heading above the cited passage; empty without one."""
    cut_before: bool
    cut_after: bool
    """Whether the text is truncated on that side."""
    before: int | None
    """`line` parameter of the previous page; None on the first one."""
    after: int | None
    """`line` parameter of the next page; None on the last one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PageView:
    """A page of a PDF as the source page shows it."""

    number: int
    width: int
    height: int
    """Pixels of its picture."""
    rectangles: tuple[Rectangle, ...]
    """The cited lines on it."""
    cited_pages: tuple[int, ...]
    """All pages with cited lines."""


def build_page_view(picture: bytes, number: int, rectangles: Sequence[Rectangle]) -> PageView:
    """Build the view of a page.

    Args:
        picture: the page as a PNG.
        rectangles: the cited lines on all pages.
    """
    width, height = _PNG_SIZE.unpack_from(picture, 16)
    return PageView(
        number=number,
        width=width,
        height=height,
        rectangles=tuple(rectangle for rectangle in rectangles if rectangle.page == number),
        cited_pages=tuple(sorted({rectangle.page for rectangle in rectangles})),
    )


def first_line(line: int, sections: Sequence[DocumentSection]) -> int:
    """Return the first line of the page that shows a line.

    It is the start of a section if one is near: there no list, table or code is open.
    """
    starts = [section.line_start for section in sections if line - _LINES_TO_SECTION <= section.line_start <= line]
    return max(starts) if starts else max(1, line - _CONTEXT_LINES)


def build_source_view(
    document_lines: DocumentLines, *, sections: Sequence[DocumentSection], passage: Span | None, marks: Marks
) -> SourceView:
    """Build the view of a part of a document.

    Args:
        document_lines: the lines to show.
        passage: the cited span; None without a citation.
    """
    text, start = document_lines.text, document_lines.start
    position = passage[0] - start if passage else 0
    first = max(0, min(position - _LEADING_CHARS, len(text) - _MAX_CHARS))
    last = min(len(text), first + _MAX_CHARS)
    row = text.count("\n", 0, first)
    if not marks.exact and not marks.near and passage:
        marks = replace(marks, exact=[passage])
    return SourceView(
        html=render_document(
            text[first:last],
            document_lines.document.media_type,
            marks,
            start=start + first,
            line_start=document_lines.line_start + row,
            sections=sections,
        ),
        section=_section(document_lines, sections, position) if passage else "",
        cut_before=first > 0,
        cut_after=last < len(text),
        # A page may start before its `line` parameter.
        before=max(1, document_lines.line_start - PAGE_LINES + _CONTEXT_LINES + _LINES_TO_SECTION)
        if document_lines.line_start > 1
        else None,
        after=document_lines.line_end + 1 if document_lines.line_end < document_lines.total_lines else None,
    )


def _section(document_lines: DocumentLines, sections: Sequence[DocumentSection], position: int) -> str:
    line = document_lines.line_start + document_lines.text.count("\n", 0, max(0, position))
    names = [entry.section[-1] for entry in sections if entry.section and entry.line_start <= line <= entry.line_end]
    return names[-1] if names and names[-1] != document_lines.document.title else ""
