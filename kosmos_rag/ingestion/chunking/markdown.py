"""The Markdown chunker.

A chunk is part of one section, and a heading is never separated from its text.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kosmos_rag.core.text.sentences import LINE_START, SENTENCE_START
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import ChunkUnit, Packer, UnitRun
from kosmos_rag.ingestion.chunking.section import TextSection, split_sections, split_units
from kosmos_rag.ingestion.chunking.span import ChunkSpan, build_chunks, find_overlap_start


class MarkdownChunker:
    """Makes a chunk of each section.

    A long one is cut between paragraphs, with an overlap. A fenced block stays whole up to 1.5 times `max_size`, or
    always with `whole_blocks`. The overlap is made of whole lines or sentences and never begins within a fenced block.
    """

    name = "markdown"

    def __init__(self, *, max_size: int, overlap: int, budget: TokenBudget, packer: Packer) -> None:
        self._max_size = max_size
        self._overlap = overlap
        self._budget = budget
        self._packer = packer

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        runs = [self._run(document, section) for section in split_sections(document)]
        spans = [
            span
            for run, spans_of_run in zip(runs, self._packer.pack(text, runs), strict=True)
            for span in self._add_overlap(text, spans_of_run, run.units)
        ]
        return build_chunks(document, self._budget.fit(text, spans))

    def _run(self, document: ParsedDocument, section: TextSection) -> UnitRun:
        # A chunk is full, or ends with its section: topics end none.
        units = [replace(unit, begins_topic=False) for unit in split_units(document, section)]
        size = units[-1].end - units[0].start if units else 0
        return UnitRun(units=units, target=self._max_size - (self._overlap if size > self._max_size else 0))

    def _add_overlap(self, text: str, spans: Sequence[ChunkSpan], units: Sequence[ChunkUnit]) -> Iterator[ChunkSpan]:
        yield from spans[:1]
        fence_ends = [0, *(unit.end for unit in units if unit.fenced)]
        for previous, span in pairwise(spans):
            if span.chunker != self.name:
                yield span
                continue
            floor = max(previous.own_start, fence_ends[bisect_right(fence_ends, span.own_start) - 1])
            room = min(self._overlap, self._max_size - (span.end - span.own_start))
            start = find_overlap_start(text, floor, span.own_start, room, (LINE_START, SENTENCE_START))
            yield replace(span, start=start)
