"""A source for reading: its lines with their numbers, the cited ones and the marked words told apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kosmos_rag.console.places import Span
from kosmos_rag.records import DocumentLines

BEFORE = 24
"""Lines that are shown before the cited ones."""
LINES = 240
"""Lines on a page."""
_MOST = 120_000
"""Characters on a page: a line may be as long as a document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of a line."""

    text: str
    marked: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A line of a source."""

    number: int
    cited: bool
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A part of a source, as a page shows it."""

    lines: tuple[Line, ...]
    cut: bool
    """Whether lines were too long to be shown whole."""
    before: int | None
    """The line to ask for the part before by; None where there is none."""
    after: int | None
    """The line to ask for the part after by; None where there is none."""


def reading(shown: DocumentLines, *, passage: Span | None, marks: Sequence[Span]) -> Reading:
    """Return lines of a document with a passage of it cited, and words of that marked."""
    lines = []
    at, left = shown.start, _MOST
    for number, text in enumerate(shown.text.split("\n"), start=shown.line_start):
        kept = _kept(text, at, left, passage)
        cited = passage is not None and at < passage[1] and passage[0] <= at + len(text)
        lines.append(Line(number=number, cited=cited, pieces=tuple(_pieces(text[: len(kept)], at, marks))))
        at += len(text) + 1
        left -= len(kept)
    return Reading(
        lines=tuple(lines) if shown.line_end >= shown.line_start else (),
        cut=left <= 0,
        # A page begins before the line that it is asked for.
        before=max(1, shown.line_start - LINES + BEFORE) if shown.line_start > 1 else None,
        after=shown.line_end + 1 + BEFORE if shown.line_end < shown.total_lines else None,
    )


def _kept(text: str, at: int, left: int, passage: Span | None) -> str:
    # The passage is what the page was opened for: it is shown, however much stands before it.
    until = max(left, passage[1] - at if passage is not None else 0, 0)
    return text[:until]


def _pieces(text: str, at: int, marks: Sequence[Span]) -> Iterator[Piece]:
    """Cut a line that begins at `at` where marks begin and end."""
    inside = [(max(0, start - at), min(len(text), end - at)) for start, end in marks]
    cuts = sorted({0, len(text), *(place for start, end in inside if start < end for place in (start, end))})
    for start, end in pairwise(cuts):
        marked = any(first <= start and end <= last for first, last in inside)
        yield Piece(text=text[start:end], marked=marked)
