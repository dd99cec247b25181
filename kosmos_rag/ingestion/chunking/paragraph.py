"""The paragraph chunker: joins the text between blank lines to chunks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from kosmos_rag.core.types import Chunk, ParsedDocument, TableSpan
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import ChunkUnit, Packer, UnitRun
from kosmos_rag.ingestion.chunking.span import Span, build_chunks, trim_spans

_BLANK_LINES = re.compile(r"\n[^\S\n]*+\n\s*+")


@dataclass(frozen=True, kw_only=True, slots=True)
class ParagraphBlock:
    """A trimmed paragraph, or a row of a table."""

    start: int
    end: int
    noun: str = "paragraph"
    """Its name in messages."""
    continues_table: bool = False
    """Whether it is a row after the first of its table."""


def split_blocks(document: ParsedDocument, span: Span) -> Iterator[ParagraphBlock]:
    """Yield the paragraphs of a span, and the rows of its tables.

    The first row of a table begins with caption and header.
    """
    at, end = span
    for table in document.tables_within(at, end):
        yield from _paragraphs(document.text, (at, table.start))
        yield from split_table_rows(document.text, table)
        at = table.end
    yield from _paragraphs(document.text, (at, end))


def _paragraphs(text: str, span: Span) -> Iterator[ParagraphBlock]:
    return (ParagraphBlock(start=start, end=end) for start, end in trim_spans(text, _split_at_blank_lines(text, span)))


def split_table_rows(text: str, table: TableSpan) -> Iterator[ParagraphBlock]:
    """Yield the rows of a table.

    The first begins with caption and header.
    """
    start = table.start
    first_end = text.find("\n", max(start, table.body or start), table.end)
    ends = [at for at in (first_end,) if at != -1]
    while ends and (at := text.find("\n", ends[-1] + 1, table.end)) != -1:
        ends.append(at)
    lines = pairwise([start, *ends, table.end])
    for first, end in trim_spans(text, lines):
        yield ParagraphBlock(start=first, end=end, noun="table row", continues_table=first > start)


def _split_at_blank_lines(text: str, span: Span) -> Iterator[Span]:
    start, end = span
    for gap in _BLANK_LINES.finditer(text, start, end):
        yield start, gap.start()
        start = gap.end()
    yield start, end


class ParagraphChunker:
    """Joins paragraphs and rows of tables to chunks.

    A chunk has at least `min_size` characters.

    A table ends none of its own chunks before `max_size`. A paragraph or row over `max_size` is cut recursively.
    """

    name = "paragraph"

    def __init__(self, *, max_size: int, budget: TokenBudget, packer: Packer) -> None:
        self._max_size = max_size
        self._budget = budget
        self._packer = packer

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        units = [
            ChunkUnit(
                start=block.start,
                body=block.start,
                end=block.end,
                noun=block.noun,
                begins_topic=not block.continues_table,
            )
            for block in split_blocks(document, (0, len(text)))
        ]
        (spans,) = self._packer.pack(text, [UnitRun(units=units, target=self._max_size)])
        return build_chunks(document, self._budget.fit(text, spans))
