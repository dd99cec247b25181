"""Numbered, cited evidence."""

import uuid
from typing import Self

from pydantic import BaseModel

from kosmos_rag.records import AnswerSources, Citation, Context, ContextPassage, Served, page_range
from kosmos_rag.service.wire.passages import LOGGED, TRIED


class CitationView(BaseModel):
    """Where something stands: enough to open the source at the place, and to notice that it has changed."""

    index: int
    marker: str
    title: str
    source: str
    section: list[str]
    place: str
    lines: tuple[int, int]
    pages: tuple[int, int] | None
    span: tuple[int, int]
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    quote_sha256: str

    @classmethod
    def of(cls, citation: Citation) -> Self:
        """Tell of a citation."""
        return cls(
            index=citation.index,
            marker=citation.marker,
            title=citation.title,
            source=citation.source,
            section=list(citation.section),
            place=citation.place,
            lines=(citation.line_start, citation.line_end),
            pages=page_range(citation),
            span=(citation.start, citation.end),
            document_id=citation.document_id,
            version_id=citation.version_id,
            version=citation.version,
            quote_sha256=citation.quote_sha256,
        )


class EvidenceView(BaseModel):
    """A numbered passage of the evidence."""

    text: str
    tokens: int
    start: int
    pages: tuple[int, int] | None
    page_breaks: list[int]
    chunk_ids: list[uuid.UUID]
    citation: CitationView

    @classmethod
    def of(cls, passage: ContextPassage) -> Self:
        """Tell of a passage."""
        return cls(
            text=passage.text,
            tokens=passage.tokens,
            start=passage.start,
            pages=page_range(passage),
            page_breaks=list(passage.page_breaks),
            chunk_ids=list(passage.chunk_ids),
            citation=CitationView.of(passage.citation),
        )


class ContextView(BaseModel):
    """Evidence for a prompt."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: Served | None = TRIED
    question: str
    text: str
    tokens: int
    max_tokens: int
    passages: list[EvidenceView]
    omitted: dict[str, int]
    notes: list[str]

    @classmethod
    def of(cls, context: Context) -> Self:
        """Tell of a context."""
        return cls(
            retrieval_id=context.retrieval.id,
            experiment=context.retrieval.experiment,
            question=context.question,
            text=context.text,
            tokens=context.tokens,
            max_tokens=context.max_tokens,
            passages=[EvidenceView.of(passage) for passage in context.passages],
            omitted=dict(context.omitted),
            notes=list(context.retrieval.notes),
        )


class SourcesView(BaseModel):
    """The first event of a stream: what the answer will be made of."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: Served | None = TRIED
    question: str
    searched: str
    refused: bool
    sources: list[EvidenceView]
    notes: list[str]

    @classmethod
    def of(cls, event: AnswerSources) -> Self:
        """Tell of the evidence."""
        return cls(
            retrieval_id=event.context.retrieval.id,
            experiment=event.context.retrieval.experiment,
            question=event.question,
            searched=event.context.question,
            refused=event.refused,
            sources=[EvidenceView.of(passage) for passage in event.context.passages],
            notes=[*event.notes, *event.context.retrieval.notes],
        )
