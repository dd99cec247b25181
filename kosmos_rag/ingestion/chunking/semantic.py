"""The semantic chunker: a chunk ends where neighbouring sentences differ in topic."""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from kosmos_rag.core.errors import ModelError, ModelUnavailable
from kosmos_rag.core.protocols import Embedder, Vectors
from kosmos_rag.core.text.sentences import sentences
from kosmos_rag.core.types import Chunk, ParsedDocument
from kosmos_rag.ingestion.chunking.budget import TokenBudget
from kosmos_rag.ingestion.chunking.pack import Packer, Run, Unit
from kosmos_rag.ingestion.chunking.paragraph import table_rows
from kosmos_rag.ingestion.chunking.recursive import RecursiveChunker
from kosmos_rag.ingestion.chunking.span import ChunkSpan, Span, build_chunks, heading_spans, trimmed

_MAX_SENTENCES = 20_000
"""Each sentence is one more text for the model: so many cost a CPU some minutes."""


class _Sentence(NamedTuple):
    start: int
    end: int
    is_heading: bool
    continues_table: bool = False
    """Whether it is a row after the first of its table; a row is one sentence."""


class _CannotSplitError(Exception):
    """The document is not one for this chunker; the message says why."""


class SemanticChunker:
    """Cuts at topic changes between neighbouring sentences.

    A topic changes where their cosine similarity is below `threshold`, and before every heading. A sentence that is too
    long goes to the recursive chunker, and so does a whole document that cannot be treated so.
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
        recursive: RecursiveChunker,
    ) -> None:
        self._max_size = max_size
        self._threshold = threshold
        self._embedder = embedder
        self._budget = budget
        self._recursive = recursive
        self._packer = Packer(
            chunker=self.name, min_size=min_size, max_size=max_size, budget=budget, recursive=recursive
        )

    def split(self, document: ParsedDocument) -> list[Chunk]:
        """Split a document; an all-blank text gives no chunks."""
        text = document.text
        try:
            spans = self._chunk_spans(document)
        except _CannotSplitError as reason:
            spans = self._recursive.cut(text, (0, len(text)), fallback_reason=str(reason))
        return build_chunks(document, self._budget.fit(text, spans))

    def _chunk_spans(self, document: ParsedDocument) -> list[ChunkSpan]:
        text = document.text
        sentence_list = list(islice(_sentences(document), _MAX_SENTENCES + 1))
        if len(sentence_list) > _MAX_SENTENCES:
            raise _CannotSplitError(f"text has more than {_MAX_SENTENCES:,} sentences to embed")
        if len(sentence_list) == 1 and sentence_list[0].end - sentence_list[0].start > self._max_size:
            raise _CannotSplitError(f"text of {len(text):,} characters has no sentence boundary")
        # A heading ends the chunk before it, however short: a citation names one section, and must be true.
        numbered = zip(_section_numbers(sentence_list), self._units(text, sentence_list), strict=True)
        sections = groupby(numbered, key=lambda pair: pair[0])
        runs = [Run(units=[unit for _, unit in pairs], target=self._max_size) for _, pairs in sections]
        return [span for spans in self._packer.pack(text, runs) for span in spans]

    def _units(self, text: str, sentence_list: Sequence[_Sentence]) -> Iterator[Unit]:
        before: _Sentence | None = None
        for sentence, changes in zip(sentence_list, self._topic_changes(text, sentence_list), strict=True):
            # What follows a heading is its text, however little the two sound alike.
            after_heading = before is not None and before.is_heading
            yield Unit(
                start=sentence.start,
                body=sentence.start,
                end=sentence.end,
                noun="sentence",
                begins_topic=changes and not after_heading and not sentence.continues_table,
                begins_paragraph=before is not None and text.count("\n", before.end, sentence.start) > 1,
            )
            before = sentence

    def _topic_changes(self, text: str, sentence_list: Sequence[_Sentence]) -> list[bool]:
        """Return for each sentence whether it differs from the previous one."""
        if len(sentence_list) < 2:
            return [False] * len(sentence_list)
        vectors = self._embed([text[start : min(end, start + self._max_size)] for start, end, *_ in sentence_list])
        norms = np.linalg.norm(vectors, axis=1)
        products = np.einsum("ij,ij->i", vectors[:-1], vectors[1:])
        dissimilar = products < self._threshold * norms[:-1] * norms[1:]
        return [False, *dissimilar.tolist()]

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


def _section_numbers(sentence_list: Sequence[_Sentence]) -> Iterator[int]:
    """Yield the section number of each sentence.

    Adjacent headings begin one section.
    """
    number = 0
    for before, sentence in zip([None, *sentence_list], sentence_list, strict=False):
        number += sentence.is_heading and before is not None and not before.is_heading
        yield number


def _sentences(document: ParsedDocument) -> Iterator[_Sentence]:
    at = 0
    for start, end in heading_spans(document):
        yield from _body_sentences(document, (at, start))
        yield from _trimmed_sentences(document.text, (start, end), is_heading=True)
        at = end
    yield from _body_sentences(document, (at, len(document.text)))


def _body_sentences(document: ParsedDocument, span: Span) -> Iterator[_Sentence]:
    at, end = span
    for table in document.tables_within(at, end):
        yield from _trimmed_sentences(document.text, (at, table.start), is_heading=False)
        for row in table_rows(document.text, table):
            yield _Sentence(row.start, row.end, is_heading=False, continues_table=row.continues_table)
        at = table.end
    yield from _trimmed_sentences(document.text, (at, end), is_heading=False)


def _trimmed_sentences(text: str, span: Span, *, is_heading: bool) -> Iterator[_Sentence]:
    # A heading is one sentence even where it has a full stop: `2. Methods`.
    spans = [span] if is_heading else sentences(text, span)
    return (_Sentence(start, end, is_heading) for start, end in trimmed(text, spans))
