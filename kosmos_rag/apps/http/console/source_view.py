"""A source for reading: its lines with their numbers, the cited ones and the marked words told apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kosmos_rag.apps.http.console.links import Span
from kosmos_rag.core.types import DocumentLines

BEFORE = 24
"""Lines that are shown before the cited ones."""
LINES = 240
"""Lines on a page."""
_MOST = 120_000
"""Characters on a page: a line may be as long as a document."""
_LEAD = 2000
"""Characters that are shown before a passage in such a line."""


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
    cut_before: bool
    cut_after: bool
    """Whether there is more of it on that side, for which there was no room."""
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
    texts = shown.text.split("\n")
    starts = list(accumulate((len(text) + 1 for text in texts), initial=shown.start))
    cited = [_overlaps(text, at, passage) for text, at in zip(texts, starts, strict=False)]
    windows: dict[int, Span] = {}
    left = _MOST
    # The passage is what the page was opened for: it is shown, however much stands before it.
    for row in sorted(range(len(texts)), key=lambda row: not cited[row]):
        windows[row] = _window(len(texts[row]), left, passage[0] - starts[row] if passage and cited[row] else 0)
        left -= windows[row][1] - windows[row][0]
    lines = [
        _line(shown.line_start + row, text, starts[row], windows[row], cited[row], marks)
        for row, text in enumerate(texts)
    ]
    return Reading(
        lines=tuple(lines) if shown.line_end >= shown.line_start else (),
        cut=any(line.cut_before or line.cut_after for line in lines),
        # A page begins before the line that it is asked for.
        before=max(1, shown.line_start - LINES + BEFORE) if shown.line_start > 1 else None,
        after=shown.line_end + 1 + BEFORE if shown.line_end < shown.total_lines else None,
    )


def _overlaps(text: str, at: int, passage: Span | None) -> bool:
    return passage is not None and at < passage[1] and passage[0] <= at + len(text)


def _window(length: int, room: int, wanted: int) -> Span:
    """Return which part of a line is shown where not all of it fits in: one that begins a little before a place."""
    begin = max(0, min(wanted - _LEAD, length - room))
    return begin, min(length, begin + room)


def _line(number: int, text: str, at: int, window: Span, cited: bool, marks: Sequence[Span]) -> Line:
    begin, end = window
    return Line(
        number=number,
        cited=cited,
        cut_before=begin > 0,
        cut_after=end < len(text),
        pieces=tuple(_pieces(text[begin:end], at + begin, marks)),
    )


def _pieces(text: str, at: int, marks: Sequence[Span]) -> Iterator[Piece]:
    """Cut a line that begins at `at` where marks begin and end."""
    inside = [(max(0, start - at), min(len(text), end - at)) for start, end in marks]
    cuts = sorted({0, len(text), *(place for start, end in inside if start < end for place in (start, end))})
    for start, end in pairwise(cuts):
        marked = any(first <= start and end <= last for first, last in inside)
        yield Piece(text=text[start:end], marked=marked)
