"""View model of a source page: numbered lines and highlighted spans."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.core.types import DocumentLines, Rectangle

CONTEXT_LINES = 24
"""Lines to show before the cited ones."""
PAGE_LINES = 240
"""Lines on a page."""
_MAX_CHARS = 120_000
"""Characters on a page: a line may be as long as its document."""
_PNG_SIZE = struct.Struct(">II")
_LEADING_CHARS = 2000
"""Characters to show before the passage in such a line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A part of a line."""

    text: str
    marked: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of a source."""

    number: int
    cited: bool
    cut_before: bool
    cut_after: bool
    """Whether the line is truncated on that side."""
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceView:
    """A part of a document as the page shows it."""

    lines: tuple[Line, ...]
    cut: bool
    """Whether any line is truncated."""
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
        number: its number.
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


def build_source_view(document_lines: DocumentLines, *, passage: Span | None, marks: Sequence[Span]) -> SourceView:
    """Build the view of a part of a document.

    Args:
        document_lines: the lines to show.
        passage: the cited span; None without a citation.
        marks: spans to highlight.
    """
    texts = document_lines.text.split("\n")
    starts = list(accumulate((len(text) + 1 for text in texts), initial=document_lines.start))
    cited = [_overlaps(text, offset, passage) for text, offset in zip(texts, starts, strict=False)]
    windows: dict[int, Span] = {}
    remaining = _MAX_CHARS
    # The passage has priority over the lines before it.
    for row in sorted(range(len(texts)), key=lambda row: not cited[row]):
        windows[row] = _window(len(texts[row]), remaining, passage[0] - starts[row] if passage and cited[row] else 0)
        remaining -= windows[row][1] - windows[row][0]
    lines = [
        _line(document_lines.line_start + row, text, starts[row], windows[row], cited[row], marks)
        for row, text in enumerate(texts)
    ]
    return SourceView(
        lines=tuple(lines) if document_lines.line_end >= document_lines.line_start else (),
        cut=any(line.cut_before or line.cut_after for line in lines),
        # A page starts before its `line` parameter.
        before=max(1, document_lines.line_start - PAGE_LINES + CONTEXT_LINES)
        if document_lines.line_start > 1
        else None,
        after=document_lines.line_end + 1 + CONTEXT_LINES
        if document_lines.line_end < document_lines.total_lines
        else None,
    )


def _overlaps(text: str, offset: int, passage: Span | None) -> bool:
    return passage is not None and offset < passage[1] and passage[0] <= offset + len(text)


def _window(length: int, available: int, position: int) -> Span:
    """Return the part of a line that fits the page.

    It starts shortly before `position`.
    """
    start_char = max(0, min(position - _LEADING_CHARS, length - available))
    return start_char, min(length, start_char + available)


def _line(number: int, text: str, offset: int, window: Span, cited: bool, marks: Sequence[Span]) -> Line:
    start_char, end = window
    return Line(
        number=number,
        cited=cited,
        cut_before=start_char > 0,
        cut_after=end < len(text),
        pieces=tuple(_pieces(text[start_char:end], offset + start_char, marks)),
    )


def _pieces(text: str, offset: int, marks: Sequence[Span]) -> Iterator[Piece]:
    """Split a line that starts at `offset` where marks start and end."""
    clipped = [(max(0, start - offset), min(len(text), end - offset)) for start, end in marks]
    cuts = sorted({0, len(text), *(cut for start, end in clipped if start < end for cut in (start, end))})
    for start, end in pairwise(cuts):
        marked = any(first <= start and end <= last for first, last in clipped)
        yield Piece(text=text[start:end], marked=marked)
