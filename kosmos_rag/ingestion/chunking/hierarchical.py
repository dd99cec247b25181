"""The hierarchical chunker.

It makes small chunks for search, each with its section for the context.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace

from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import ChunkUnit, Packer, UnitRun
from kosmos_rag.ingestion.chunking.section import split_sections, split_units
from kosmos_rag.ingestion.chunking.span import Span, build_chunks


class HierarchicalChunker:
    """Joins paragraphs of a section until a chunk has `min_size` characters.

    One over `max_size` is cut recursively. A chunk knows the span of its section, the heading with its text up to the
    next heading. Of a section with more than `section_size` characters that is the span of the paragraphs around the
    chunk that fit; a part of a longer paragraph has none. Fenced blocks are kept as the markdown chunker keeps them.
    """

    name = "hierarchical"

    def __init__(self, *, max_size: int, section_size: int, budget: TokenBudget, packer: Packer) -> None:
        self._max_size = max_size
        self._section_size = section_size
        self._budget = budget
        self._packer = packer

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        section_blocks = [
            units for section in split_sections(document) if (units := list(split_units(document, section)))
        ]
        runs = [UnitRun(units=units, target=self._max_size) for units in section_blocks]
        spans = [span for spans_of_run in self._packer.pack(text, runs) for span in spans_of_run]
        chunks = build_chunks(document, self._budget.fit(text, spans))
        return [
            replace(chunk, parent_span=self._parent_span(_find_section(chunk, section_blocks), chunk))
            for chunk in chunks
        ]

    def _parent_span(self, units: Sequence[ChunkUnit], chunk: Chunk) -> Span | None:
        start, end = units[0].start, units[-1].end
        if end - start <= self._section_size:
            return start, end
        first = units[bisect_right(units, chunk.start, key=_start) - 1].start
        last = units[bisect_left(units, chunk.end, key=_end)].end
        margin = self._section_size - (last - first)
        if margin < 0:
            return None
        # As much before as after it, or more of the one where the other has no more.
        low = max(start, min(first - margin // 2, end - self._section_size))
        high = low + self._section_size
        return units[bisect_left(units, low, key=_start)].start, units[bisect_right(units, high, key=_end) - 1].end


def _find_section(chunk: Chunk, section_blocks: Sequence[Sequence[ChunkUnit]]) -> Sequence[ChunkUnit]:
    return section_blocks[bisect_right(section_blocks, chunk.start, key=lambda units: units[0].start) - 1]


def _start(unit: ChunkUnit) -> int:
    return unit.start


def _end(unit: ChunkUnit) -> int:
    return unit.end
