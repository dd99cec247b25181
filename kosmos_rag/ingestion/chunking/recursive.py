"""The recursive chunker: LangChain's algorithm, with exact spans and a size limit."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.text.sentences import WORD_START
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.span import (
    ChunkSpan,
    Span,
    build_chunks,
    cut_to_size,
    find_overlap_start,
    trim_spans,
)

if TYPE_CHECKING:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

_WINDOW = 1_000_000
"""Characters given to the library at once: it holds one string per separator found."""


class RecursiveChunker:
    """Cuts at the coarsest separator, into chunks of at most `size` characters.

    A chunk repeats up to `overlap` characters of the one before, from the start of a word.
    """

    name = "recursive"

    def __init__(self, *, size: int, overlap: int, separators: Sequence[str], budget: TokenBudget) -> None:
        require_extra("chunking", "the recursive chunker", "langchain_text_splitters")
        self._size = size
        self._overlap = overlap
        self._step = size - overlap
        self._separators = tuple(separators)
        self._budget = budget

    @cached_property
    def _library(self) -> "RecursiveCharacterTextSplitter":
        """The library's splitter, imported with the first text that is longer than a chunk."""
        from langchain_text_splitters import RecursiveCharacterTextSplitter

        # Only when separators are kept, white space stays and nothing overlaps do the pieces join to the text
        # again, and their lengths give their places: the library's own start index is found by search.
        return RecursiveCharacterTextSplitter(
            separators=list(self._separators),
            keep_separator="end",
            strip_whitespace=False,
            chunk_size=self._step,
            chunk_overlap=0,
        )

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        return build_chunks(document, self._budget.fit(text, self.cut(text, (0, len(text)))))

    def cut(self, text: str, span: Span, *, fallback_reason: str | None = None) -> list[ChunkSpan]:
        """Cut a span into chunk spans of at most `size` characters.

        The overlap is included in the size.

        Args:
            text: The text of the document.
            fallback_reason: Why another chunker could not cut it; stored with the chunks.
        """
        spans = [
            ChunkSpan(start=start, own_start=start, end=end, chunker=self.name, fallback_reason=fallback_reason)
            for start, end in trim_spans(text, self._spans(text, span))
        ]
        overlapping = [
            replace(
                chunk, start=find_overlap_start(text, previous.own_start, chunk.own_start, self._overlap, [WORD_START])
            )
            for previous, chunk in pairwise(spans)
        ]
        return [*spans[:1], *overlapping]

    def _spans(self, text: str, span: Span) -> Iterator[Span]:
        if span[1] - span[0] <= self._size:
            # One piece needs no room for an overlap.
            yield span
            return
        for start, end in self._windows(text, span):
            window = text[start:end]
            if window.isspace():
                continue
            parts = self._library.split_text(window)
            assert "".join(parts) == window
            for part in parts:
                # The library does not split a piece without separators.
                yield from cut_to_size(text, (start, start + len(part)), self._step)
                start += len(part)

    def _windows(self, text: str, span: Span) -> Iterator[Span]:
        start, end = span
        while end - start > _WINDOW:
            middle, limit = start + _WINDOW // 2, start + _WINDOW
            positions = ((text.rfind(separator, middle, limit), separator) for separator in self._separators)
            cut = next((at + len(separator) for at, separator in positions if at != -1), limit)
            yield start, cut
            start = cut
        yield start, end
