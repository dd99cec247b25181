"""The semantic chunker.

It follows the structure of a document, and compares sentences where there is none.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.sentences import sentences
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import ChunkUnit, Packer, UnitRun
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.section import split_sections, split_units
from kosmos_rag.ingestion.chunking.span import ChunkSpan, Span, build_chunks, trim_spans

_MAX_SENTENCES = 20_000
"""Each sentence is one more text for the model: so many cost a CPU some minutes."""

_LIST_ITEM = re.compile(r"(?:[-*+•]|\d+[.)])\s")


class _CannotSplitError(Exception):
    """This chunker cannot split the document; the message has the reason."""


class SemanticChunker:
    """Makes a chunk of each section, and cuts long ones.

    Each paragraph, list, table and fenced block of a longer section begins a topic, which ends a chunk of at least
    `min_size`. In a paragraph of more than `max_size`, a sentence begins a topic where its cosine similarity to the
    sentence before is below `threshold`; only such sentences are embedded. What is too long goes to the recursive
    chunker, and so does a whole document that cannot be treated so. Fenced blocks are kept as the markdown chunker
    keeps them.
    """

    name = "semantic"

    def __init__(
        self,
        *,
        min_size: int,
        max_size: int,
        threshold: float,
        embedder: Embedder,
        budget: TokenBudget,
        packer: Packer,
        recursive: RecursiveChunker,
    ) -> None:
        self._min_size = min_size
        self._max_size = max_size
        self._threshold = threshold
        self._embedder = embedder
        self._budget = budget
        self._packer = packer
        self._recursive = recursive

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        try:
            spans = self._chunk_spans(document)
        except _CannotSplitError as reason:
            spans = self._recursive.cut(text, (0, len(text)), fallback_reason=str(reason))
        return build_chunks(document, self._budget.fit(text, spans))

    def _chunk_spans(self, document: ParsedDocument) -> list[ChunkSpan]:
        section_spans: list[ChunkSpan] = []
        long: list[Sequence[ChunkUnit]] = []
        section_blocks = [
            units for section in split_sections(document) if (units := list(split_units(document, section)))
        ]
        for blocks, fits in zip(section_blocks, self._fit(document.text, section_blocks), strict=True):
            if fits:
                start, end = _extent(blocks)
                section_spans.append(ChunkSpan(start=start, own_start=start, end=end, chunker=self.name))
            else:
                long.append(list(_split_blocks(document.text, blocks)))
        runs = [UnitRun(units=units, target=self._max_size) for units in self._split_topics(document.text, long)]
        return [*section_spans, *(span for spans in self._packer.pack(document.text, runs) for span in spans)]

    def _fit(self, text: str, section_blocks: Sequence[Sequence[ChunkUnit]]) -> list[bool]:
        """Return for each section whether it is one chunk."""
        extents = [_extent(blocks) for blocks in section_blocks]
        short = [(start, end) for start, end in extents if end - start <= self._max_size]
        tokens = dict(zip(short, self._budget.count(text, short), strict=True))
        return [extent in tokens and tokens[extent] <= self._budget.max_tokens for extent in extents]

    def _split_topics(
        self, text: str, sections_of_units: Sequence[Sequence[ChunkUnit]]
    ) -> Iterator[Sequence[ChunkUnit]]:
        """Yield the units of each section, with the topics found.

        Sentences of all sections are embedded in one call.
        """
        gaps = [gap for units in sections_of_units for gap in self._find_gaps(units)]
        topics = self._topic_starts(text, gaps)
        for units in sections_of_units:
            yield [replace(unit, begins_topic=True) if unit.start in topics else unit for unit in units]

    def _find_gaps(self, units: Sequence[ChunkUnit]) -> Iterator[tuple[ChunkUnit, ChunkUnit]]:
        """Yield the pairs of neighbouring sentences of long paragraphs.

        Without those so near to an end of the section that a chunk would be shorter than `min_size`.
        """
        start, end = _extent(units)
        for paragraph in _paragraphs(units):
            if paragraph[-1].end - paragraph[0].body <= self._max_size:
                continue
            for before, after in pairwise(paragraph):
                if before.end - start >= self._min_size and end - after.start >= self._min_size:
                    yield before, after

    def _topic_starts(self, text: str, gaps: Sequence[tuple[ChunkUnit, ChunkUnit]]) -> set[int]:
        """Return the starts of those second sentences that differ from the first."""
        if not gaps:
            return set()
        sentences = {unit.start: unit for gap in gaps for unit in gap}
        if len(sentences) > _MAX_SENTENCES:
            raise _CannotSplitError(f"text has more than {_MAX_SENTENCES:,} sentences to embed")
        vectors = self._embed([text[unit.body : unit.end][: self._max_size] for unit in sentences.values()])
        rows = {start: row for row, start in enumerate(sentences)}
        first = vectors[[rows[before.start] for before, _ in gaps]]
        second = vectors[[rows[after.start] for _, after in gaps]]
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        dissimilar = np.einsum("ij,ij->i", first, second) < self._threshold * norms
        return {after.start for (_, after), differs in zip(gaps, dissimilar.tolist(), strict=True) if differs}

    def _embed(self, texts: list[str]) -> Vectors:
        try:
            vectors = self._embedder.embed(texts)
        except ModelUnavailable:
            raise  # that passes: other chunks than those of the configured strategy would stay
        except ModelError as error:
            raise _CannotSplitError(f"sentences could not be embedded: {error}") from error
        if not np.isfinite(vectors).all():
            raise _CannotSplitError(f"model {self._embedder.name} gave vectors that are not finite")
        return vectors


def _split_blocks(text: str, blocks: Sequence[ChunkUnit]) -> Iterator[ChunkUnit]:
    """Yield rows, fenced blocks and the sentences of paragraphs.

    A list is one topic, and so is a block with the colon that announces it.
    """
    before: ChunkUnit | None = None
    for block in blocks:
        announced = before is not None and (text[before.end - 1] == ":" or _is_term(text, before, block))
        continues_list = before is not None and _is_list_item(text, before) and _is_list_item(text, block)
        topic = block.begins_topic and not announced and not continues_list
        yield from _parts(text, replace(block, begins_topic=topic, begins_paragraph=not announced))
        before = block


def _parts(text: str, block: ChunkUnit) -> Iterator[ChunkUnit]:
    if block.noun != "paragraph":
        yield block
        return
    for start, end in trim_spans(text, sentences(text, (block.body, block.end))):
        if start == block.body:
            yield replace(block, end=end, noun="sentence")
        else:
            sentence = ChunkUnit(start=start, body=start, end=end, noun="sentence")
            yield replace(sentence, begins_paragraph=_is_list_item(text, sentence))


def _paragraphs(units: Sequence[ChunkUnit]) -> Iterator[list[ChunkUnit]]:
    """Yield the sentences of each paragraph and list item."""
    paragraph: list[ChunkUnit] = []
    for unit in units:
        if unit.noun != "sentence" or unit.begins_paragraph:
            if paragraph:
                yield paragraph
            paragraph = []
        if unit.noun == "sentence":
            paragraph.append(unit)
    if paragraph:
        yield paragraph


def _is_term(text: str, unit: ChunkUnit, following: ChunkUnit) -> bool:
    """Return whether a unit is a line above its indented description.

    A description is indented deeper than the line.
    """
    return "\n" not in text[unit.body : unit.end] and _indent(text, following) > _indent(text, unit)


def _indent(text: str, unit: ChunkUnit) -> int:
    return unit.body - (text.rfind("\n", 0, unit.body) + 1)


def _is_list_item(text: str, unit: ChunkUnit) -> bool:
    return _LIST_ITEM.match(text, unit.body) is not None


def _extent(units: Sequence[ChunkUnit]) -> Span:
    return units[0].start, units[-1].end
