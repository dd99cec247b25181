"""Spans of text: trim, cut, overlap and turn into chunks."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.core.types.places import spans_within

_UP_TO_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_ZERO_WIDTH_JOINER = "\u200d"
_HEADING_LINES = re.compile(r"[^\n]*(?:\n {0,3}(?:=+|-+)[ \t]*(?=\n|\Z))?")
"""A heading's line, and the underline that Markdown allows below it."""

Span = tuple[int, int]
"""Start and end of a stretch of a document's text, half open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChunkSpan:
    """The span of a future chunk."""

    start: int
    end: int
    own_start: int
    """Where the text begins that the piece before does not have; `start` is less where the two overlap."""
    chunker: str
    fallback_reason: str | None = None
    indivisible: bool = False
    """Kept whole even where the model does not read all of it."""


def trim(text: str, span: Span) -> Span:
    """Remove white space at both ends; a blank span becomes empty."""
    start, end = span
    inner = text[start:end]
    end = start + len(inner.rstrip())
    return min(start + len(inner) - len(inner.lstrip()), end), end


def trim_spans(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Trim each span and drop blank ones."""
    for span in spans:
        start, end = trim(text, span)
        if start < end:
            yield start, end


def find_cut(text: str, start: int, limit: int) -> int:
    """Find the best cut after `start` and at most at `limit`.

    Best is after the last white space, if it is in the latter half; then between grapheme clusters (an accent stays
    with its letter, a skin tone with its emoji); `limit` otherwise.
    """
    middle = (start + limit) // 2
    if match := _UP_TO_LAST_SPACE.match(text, middle, limit):
        return match.end()
    boundaries = (at for at in range(limit, middle, -1) if not _splits_character(text, at))
    return next(boundaries, limit)


def _splits_character(text: str, at: int) -> bool:
    if at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    joined = _ZERO_WIDTH_JOINER in (before, after) or _SKIN_TONES[0] <= after <= _SKIN_TONES[1]
    return joined or unicodedata.category(after).startswith("M")


def cut_to_size(text: str, span: Span, size: int) -> Iterator[Span]:
    """Cut a span into spans of at most `size` characters."""
    start, end = span
    while end - start > size:
        cut = find_cut(text, start, start + size)
        yield start, cut
        start = cut
    yield start, end


def find_overlap_start(
    text: str, previous: int, own_start: int, overlap: int, boundaries: Sequence[re.Pattern[str]]
) -> int:
    """Return the start of an overlap of up to `overlap` characters.

    Args:
        text: The text of the document.
        previous: Start of the previous chunk; the overlap starts after it.
        own_start: Start of the chunk without overlap; returned if there is no boundary.
        overlap: Maximum overlap in characters.
        boundaries: Patterns in order of preference; the first group is the first character of the overlap.
    """
    floor = max(previous + 1, own_start - overlap)
    for boundary in boundaries:
        if match := boundary.search(text, floor - 1, own_start):
            return match.start(1)
    return own_start


def list_heading_spans(document: ParsedDocument) -> list[Span]:
    """Return the span of each heading's lines, in order."""
    bounds = [*(heading.start for heading in document.headings), len(document.text)]
    spans = []
    for start, following in pairwise(bounds):
        lines = _HEADING_LINES.match(document.text, start)
        spans.append((start, min(lines.end() if lines else start, following)))
    return spans


def build_chunks(document: ParsedDocument, spans: Iterable[tuple[ChunkSpan, int]]) -> list[Chunk]:
    """Build the chunks of a document from spans with token counts.

    The spans are in order of `own_start`.
    """
    headings = list_heading_spans(document)
    remaining: list[tuple[ChunkSpan, int]] = []
    for span, tokens in spans:
        # A remnant that the token budget cut off can lie wholly in the overlap of the piece after it.
        while remaining and remaining[-1][0].start >= span.start:
            remaining.pop()
        remaining.append((span, tokens))
    return [_chunk(document, headings, ordinal, span, tokens) for ordinal, (span, tokens) in enumerate(remaining)]


def _body_start(document: ParsedDocument, headings: Sequence[Span], span: ChunkSpan) -> int:
    """Return the last of the headings at the start of a span.

    Without one it is the span's start: the section of a chunk is that of its text.
    """
    at = leading = span.start
    for start, end in headings[bisect_left(headings, (span.start, 0)) :]:
        if start >= span.end or document.text[at:start].strip():
            break
        at, leading = end, start
    return leading


def _chunk(document: ParsedDocument, headings: Sequence[Span], ordinal: int, span: ChunkSpan, tokens: int) -> Chunk:
    last = span.end - 1
    return Chunk(
        chunk_index=ordinal,
        start=span.start,
        end=span.end,
        text=document.text[span.start : span.end],
        section=document.find_section(_body_start(document, headings, span)),
        line_start=document.find_line(span.start),
        line_end=document.find_line(last),
        page_start=document.find_page(span.start),
        page_end=document.find_page(last),
        tokens=tokens,
        chunker=span.chunker,
        fallback_reason=span.fallback_reason,
        table_context=document.find_table_context(span.start),
        place_spans=tuple(spans_within(document.places, span.start, span.end)),
    )
