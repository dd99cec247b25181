"""What the chunkers share: trimming, cutting and overlapping spans, and turning them into chunks."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kosmos_rag.core.types import Chunk, ParsedDocument

_UP_TO_LAST_SPACE = re.compile(r".*\s", re.DOTALL)
_SKIN_TONES = ("\U0001f3fb", "\U0001f3ff")
_ZERO_WIDTH_JOINER = "\u200d"
_HEADING_LINES = re.compile(r"[^\n]*(?:\n {0,3}(?:=+|-+)[ \t]*(?=\n|\Z))?")
"""A heading's line, and the underline that Markdown allows below it."""

Span = tuple[int, int]
"""Start and end of a stretch of a document's text, half open."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A chunk to be: where it lies and which chunker made it."""

    start: int
    end: int
    own: int
    """Where the text begins that the piece before does not have; `start` is less where the two overlap."""
    chunker: str
    fallback_reason: str | None = None
    whole: bool = False
    """Kept whole even where the model does not read all of it."""


def trim(text: str, span: Span) -> Span:
    """Leave out white space at both ends; a blank span becomes empty."""
    start, end = span
    inner = text[start:end]
    end = start + len(inner.rstrip())
    return min(start + len(inner) - len(inner.lstrip()), end), end


def trimmed(text: str, spans: Iterable[Span]) -> Iterator[Span]:
    """Trim each span and leave out blank ones."""
    for span in spans:
        start, end = trim(text, span)
        if start < end:
            yield start, end


def cut_point(text: str, start: int, limit: int) -> int:
    """Find the best place to cut after `start` and not after `limit`.

    Best is after the last white space, if it stands in the latter half; then between whole characters as a
    reader sees them (an accent stays with its letter, a skin tone with its emoji); `limit` otherwise.
    """
    floor = (start + limit) // 2
    if found := _UP_TO_LAST_SPACE.match(text, floor, limit):
        return found.end()
    whole = (at for at in range(limit, floor, -1) if not _inside_character(text, at))
    return next(whole, limit)


def _inside_character(text: str, at: int) -> bool:
    if at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    joined = _ZERO_WIDTH_JOINER in (before, after) or _SKIN_TONES[0] <= after <= _SKIN_TONES[1]
    return joined or unicodedata.category(after).startswith("M")


def cut_to_size(text: str, span: Span, size: int) -> Iterator[Span]:
    """Cut a span into spans of at most `size` characters, without regard to what they say."""
    start, end = span
    while end - start > size:
        cut = cut_point(text, start, start + size)
        yield start, cut
        start = cut
    yield start, end


def overlap_start(text: str, previous: int, own: int, overlap: int, boundaries: Sequence[re.Pattern[str]]) -> int:
    """Find where a piece that begins at `own` may start, so as to repeat up to `overlap` characters.

    Each boundary is a pattern whose first group is the character that may come first; the first pattern found
    decides. The start stays after `previous`, the start of the piece before. Without a boundary it is `own`.
    """
    floor = max(previous + 1, own - overlap)
    for boundary in boundaries:
        if found := boundary.search(text, floor - 1, own):
            return found.start(1)
    return own


def heading_spans(document: ParsedDocument) -> list[Span]:
    """Span of each heading's own line or lines, in order."""
    bounds = [*(heading.start for heading in document.headings), len(document.text)]
    spans = []
    for start, following in pairwise(bounds):
        lines = _HEADING_LINES.match(document.text, start)
        spans.append((start, min(lines.end() if lines else start, following)))
    return spans


def build_chunks(document: ParsedDocument, pieces: Iterable[tuple[Piece, int]]) -> list[Chunk]:
    """Make the chunks of a document from its pieces, in order of `own`, and their numbers of tokens."""
    headings = heading_spans(document)
    kept: list[tuple[Piece, int]] = []
    for piece, tokens in pieces:
        # A remnant that the token budget cut off can lie wholly in the overlap of the piece after it.
        while kept and kept[-1][0].start >= piece.start:
            kept.pop()
        kept.append((piece, tokens))
    return [_chunk(document, headings, ordinal, piece, tokens) for ordinal, (piece, tokens) in enumerate(kept)]


def _body_start(document: ParsedDocument, headings: Sequence[Span], piece: Piece) -> int:
    """Find the last heading of those that lead a piece, or its start: the section is that of its text."""
    at = leading = piece.start
    for start, end in headings[bisect_left(headings, (piece.start, 0)) :]:
        if start >= piece.end or document.text[at:start].strip():
            break
        at, leading = end, start
    return leading


def _chunk(document: ParsedDocument, headings: Sequence[Span], ordinal: int, piece: Piece, tokens: int) -> Chunk:
    last = piece.end - 1
    return Chunk(
        chunk_index=ordinal,
        start=piece.start,
        end=piece.end,
        text=document.text[piece.start : piece.end],
        section=document.section_at(_body_start(document, headings, piece)),
        line_start=document.line_at(piece.start),
        line_end=document.line_at(last),
        page_start=document.page_at(piece.start),
        page_end=document.page_at(last),
        tokens=tokens,
        chunker=piece.chunker,
        fallback_reason=piece.fallback_reason,
    )
