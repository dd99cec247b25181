"""The paragraph chunker: joins the text between blank lines to chunks."""

import re
from collections.abc import Iterator

from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import Packer, Run, Unit
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.span import Span, build_chunks, trimmed

_BLANK_LINES = re.compile(r"\n[^\S\n]*+\n\s*+")


def paragraphs(text: str, span: Span) -> Iterator[Span]:
    """Yield the paragraphs of a span, trimmed."""
    return trimmed(text, _split_at_blank_lines(text, span))


def _split_at_blank_lines(text: str, span: Span) -> Iterator[Span]:
    start, end = span
    for gap in _BLANK_LINES.finditer(text, start, end):
        yield start, gap.start()
        start = gap.end()
    yield start, end


class ParagraphChunker:
    """Joins paragraphs to chunks of at least `min_size` characters.

    A paragraph over `max_size` is cut recursively.
    """

    name = "paragraph"

    def __init__(self, *, min_size: int, max_size: int, budget: TokenBudget, recursive: RecursiveChunker) -> None:
        self._max_size = max_size
        self._budget = budget
        self._packer = Packer(
            chunker=self.name, min_size=min_size, max_size=max_size, budget=budget, recursive=recursive
        )

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        units = [
            Unit(start=start, body=start, end=end, noun="paragraph", begins_topic=True)
            for start, end in paragraphs(text, (0, len(text)))
        ]
        (spans,) = self._packer.pack(text, [Run(units=units, target=self._max_size)])
        return build_chunks(document, self._budget.fit(text, spans))
