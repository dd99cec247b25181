"""The header-aware chunker: a chunk lies within one section, and a heading stays with its text."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from kosmos_rag.core.text.sentences import LINE_START, SENTENCE_START
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import Packer, Run, Unit
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.section import Section, section_units, sections
from kosmos_rag.ingestion.chunking.span import Piece, build_chunks, overlap_start


class MarkdownChunker:
    """Makes a chunk of each section.

    A long one is cut between paragraphs, with an overlap. A fenced block stays whole up to 1.5 times `max_size`, or
    always with `whole_blocks`. The overlap is made of whole lines or sentences and never begins within a fenced block.
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
            chunker=self.name,
            min_size=min_size,
            max_size=max_size,
            budget=budget,
            recursive=recursive,
            whole_blocks=whole_blocks,
        )

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split; an all-blank text gives no chunks."""
        text = document.text
        runs = [self._run(text, section) for section in sections(document)]
        pieces = [
            piece
            for run, packed in zip(runs, self._packer.pack(text, runs), strict=True)
            for piece in self._overlapping(text, packed, run.units)
        ]
        return build_chunks(document, self._budget.fit(text, pieces))

    def _run(self, text: str, section: Section) -> Run:
        units = list(section_units(text, section))
        size = units[-1].end - units[0].start if units else 0
        return Run(units=units, target=self._max_size - (self._overlap if size > self._max_size else 0))

    def _overlapping(self, text: str, pieces: Sequence[Piece], units: Sequence[Unit]) -> Iterator[Piece]:
        yield from pieces[:1]
        fence_ends = [0, *(unit.end for unit in units if unit.fenced)]
        for previous, piece in pairwise(pieces):
            if piece.chunker != self.name:
                yield piece
                continue
            floor = max(previous.own, fence_ends[bisect_right(fence_ends, piece.own) - 1])
            room = min(self._overlap, self._max_size - (piece.end - piece.own))
            start = overlap_start(text, floor, piece.own, room, (LINE_START, SENTENCE_START))
            yield replace(piece, start=start)
