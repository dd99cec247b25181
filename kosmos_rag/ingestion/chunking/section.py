"""Sections of a document, and their paragraphs and fenced blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.ingestion.chunking.pack import ChunkUnit
from kosmos_rag.ingestion.chunking.paragraph import ParagraphBlock, split_blocks
from kosmos_rag.ingestion.chunking.span import Span, list_heading_spans, trim

_FENCE_LINE = re.compile(r"^ {0,3}(?P<fence>`{3,}+|~{3,}+)(?P<info>[^\n]*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSection:
    """A heading with its text up to the next heading.

    Preceding headings without text of their own belong to it, whatever their level is.
    """

    start: int
    body: int
    """Where the text begins, after the heading and any headings without text above it."""
    end: int


def split_sections(document: ParsedDocument) -> Iterator[TextSection]:
    """Yield the sections in order; together they are the whole text."""
    text = document.text
    spans = list_heading_spans(document)
    first_end, *ends = [*(start for start, _ in spans), len(text)]
    yield TextSection(start=0, body=0, end=first_end)
    leading_start: int | None = None
    for (start, body), end in zip(spans, ends, strict=True):
        leading_start = start if leading_start is None else leading_start
        if end < len(text) and not text[body:end].strip():
            continue
        yield TextSection(start=leading_start, body=body, end=end)
        leading_start = None


def split_units(document: ParsedDocument, section: TextSection) -> Iterator[ChunkUnit]:
    """Yield paragraphs, rows of tables and fenced blocks of a section.

    The first begins with the headings, and a blank one has none.
    """
    start, end = trim(document.text, (section.start, section.end))
    blocks = list(_blocks(document, (section.body, section.end)))
    if not blocks and start < end:
        blocks = [(ParagraphBlock(start=start, end=end), False)]
    for index, (block, fenced) in enumerate(blocks):
        noun = "fenced block" if fenced else block.noun
        yield ChunkUnit(
            start=block.start if index else start,
            body=block.start,
            end=block.end,
            noun=noun,
            fenced=fenced,
            begins_topic=not block.continues_table,
        )


def _blocks(document: ParsedDocument, span: Span) -> Iterator[tuple[ParagraphBlock, bool]]:
    at, end = span
    for fence_start, fence_end in _fences(document.text, span):
        yield from ((block, False) for block in split_blocks(document, (at, fence_start)))
        yield ParagraphBlock(start=fence_start, end=fence_end), True
        at = fence_end
    yield from ((block, False) for block in split_blocks(document, (at, end)))


def _fences(text: str, span: Span) -> Iterator[Span]:
    """Yield fenced blocks as CommonMark defines them.

    An unclosed fence is text.
    """
    opening: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text, *span):
        fence, info = line["fence"], line["info"]
        if opening is None:
            # Backticks in the info string: that is inline code and not a fence.
            if not (fence[0] == "`" and "`" in info):
                opening = line
        elif fence.startswith(opening["fence"]) and not info.strip():
            yield trim(text, (opening.start(), line.end()))
            opening = None
