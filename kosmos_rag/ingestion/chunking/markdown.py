"""The header-aware splitter: a chunk lies within one section, and a heading stays with its text."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import Packer, Run, Unit
from kosmos_rag.ingestion.chunking.paragraph import paragraphs
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.sentence import LINE_START, SENTENCE_START
from kosmos_rag.ingestion.chunking.span import (
    Piece,
    Span,
    build_chunks,
    heading_spans,
    overlap_start,
    trim,
)
from kosmos_rag.records import Chunk, ParsedDocument

_FENCE_LINE = re.compile(r"^ {0,3}(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Section:
    start: int
    body: int
    """Where the text begins, after the heading and any headings without text above it."""
    end: int


class MarkdownChunker:
    """Makes a chunk of each section; a long one is cut between paragraphs, with an overlap.

    A fenced block stays whole up to 1.5 times `max_size`, or always with `whole_blocks`. The overlap is made of whole
    lines or sentences and never begins within a fenced block.
    """

    name = "markdown"

    def __init__(
        self,
        *,
        min_size: int,
        max_size: int,
        overlap: int,
        budget: TokenBudget,
        recursive: RecursiveChunker,
        whole_blocks: bool = False,
    ) -> None:
        self._max_size = max_size
        self._overlap = overlap
        self._budget = budget
        self._packer = Packer(
            splitter=self.name,
            min_size=min_size,
            max_size=max_size,
            budget=budget,
            recursive=recursive,
            whole_blocks=whole_blocks,
        )

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split; an all-blank text gives no chunks."""
        text = document.text
        runs = [self._run(text, section) for section in _sections(document)]
        pieces = [
            piece
            for run, packed in zip(runs, self._packer.pack(text, runs), strict=True)
            for piece in self._overlapping(text, packed, run.units)
        ]
        return build_chunks(document, self._budget.fit(text, pieces))

    def _run(self, text: str, section: _Section) -> Run:
        units = list(_units(text, section))
        size = units[-1].end - units[0].start if units else 0
        return Run(units=units, target=self._max_size - (self._overlap if size > self._max_size else 0))

    def _overlapping(self, text: str, pieces: Sequence[Piece], units: Sequence[Unit]) -> Iterator[Piece]:
        yield from pieces[:1]
        fence_ends = [0, *(unit.end for unit in units if unit.fenced)]
        for previous, piece in pairwise(pieces):
            if piece.splitter != self.name:
                yield piece
                continue
            floor = max(previous.own, fence_ends[bisect_right(fence_ends, piece.own) - 1])
            room = min(self._overlap, self._max_size - (piece.end - piece.own))
            start = overlap_start(text, floor, piece.own, room, (LINE_START, SENTENCE_START))
            yield replace(piece, start=start)


def _sections(document: ParsedDocument) -> Iterator[_Section]:
    text = document.text
    spans = heading_spans(document)
    levels = [*(heading.level for heading in document.headings), 0]
    first_end, *ends = [*(start for start, _ in spans), len(text)]
    yield _Section(start=0, body=0, end=first_end)
    led_from: int | None = None
    for (start, body), end, (level, next_level) in zip(spans, ends, pairwise(levels), strict=True):
        led_from = start if led_from is None else led_from
        if next_level > level and not text[body:end].strip():
            continue
        yield _Section(start=led_from, body=body, end=end)
        led_from = None


def _units(text: str, section: _Section) -> Iterator[Unit]:
    start, end = trim(text, (section.start, section.end))
    blocks = list(_blocks(text, (section.body, section.end)))
    if not blocks and start < end:
        blocks = [(start, end, False)]
    for index, (body, stop, fenced) in enumerate(blocks):
        noun = "fenced block" if fenced else "paragraph"
        yield Unit(start=body if index else start, body=body, end=stop, noun=noun, fenced=fenced)


def _blocks(text: str, span: Span) -> Iterator[tuple[int, int, bool]]:
    at, end = span
    for fence_start, fence_end in _fences(text, span):
        yield from ((*paragraph, False) for paragraph in paragraphs(text, (at, fence_start)))
        yield fence_start, fence_end, True
        at = fence_end
    yield from ((*paragraph, False) for paragraph in paragraphs(text, (at, end)))


def _fences(text: str, span: Span) -> Iterator[Span]:
    """Find fenced blocks as CommonMark has them; one that is never closed is taken for text."""
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text, *span):
        fence, info = line["fence"], line["info"]
        if opening is None:
            # An info string after backticks has none: that is code within a line.
            if not (fence[0] == "`" and "`" in info):
                opening = line
        elif fence.startswith(opening["fence"]) and not info.strip():
            yield trim(text, (opening.start(), line.end()))
            opening = None
