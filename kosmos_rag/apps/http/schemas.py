"""What a tenant has, over the wire: documents, jobs, collections, totals."""

import dataclasses
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from kosmos_rag.core.types import (
    Answer,
    AnswerMode,
    AnswerSentence,
    AnswerSources,
    CheckedSentence,
    Citation,
    CollectionInfo,
    Context,
    ContextPassage,
    DocumentInfo,
    ExperimentAssignment,
    Feedback,
    Filter,
    JobInfo,
    JobState,
    Passage,
    Rating,
    SearchResult,
    Turn,
    UnitKind,
    Verdict,
    page_range,
)

_QUESTION = "How many days of annual leave do employees get?"


class Request(BaseModel):
    """A body that names nothing unknown."""

    model_config = ConfigDict(extra="forbid")


class Asked(Request):
    """A question, and which documents may answer it."""

    question: Annotated[str, Field(min_length=1, examples=[_QUESTION])]
    k: Annotated[int, Field(ge=1, le=1000)] | None = Field(default=None, description="How many hits; else as set.")
    collection: str | None = Field(default=None, description="Only this collection; else all.", examples=["handbook"])
    sources: list[str] = Field(default=[], description="Only these sources, or folders of sources.")
    where: dict[str, Any] = Field(
        default={}, description="Conditions on fields, docs/filters.md.", examples=[{"metadata.year": {"$gte": 2024}}]
    )

    @property
    def filter(self) -> Filter | None:
        """The filter that the library takes."""
        return Filter(sources=tuple(self.sources), where=self.where) if self.sources or self.where else None


class SearchRequest(Asked):
    """What to search for."""

    explain: bool = Field(default=False, description="Tell how each hit came to its rank; needs the scope admin.")


class ContextRequest(Asked):
    """What to gather evidence for."""

    max_tokens: Annotated[int, Field(ge=1)] | None = Field(default=None, description="Budget; else as set.")


class TurnView(Request):
    """A question of the conversation before, and its answer."""

    question: str
    answer: str


class AnswerRequest(ContextRequest):
    """What to answer."""

    history: list[TurnView] = Field(default=[], max_length=100, description="The conversation before, last turn last.")

    @property
    def turns(self) -> list[Turn]:
        """The conversation as the library takes it."""
        return [Turn(question=turn.question, answer=turn.answer) for turn in self.history]


class ChatRequest(Request):
    """A question to the assistant."""

    query: Annotated[str, Field(min_length=1, examples=[_QUESTION])]
    model: str | None = Field(
        default=None, description="Who is to write; the service has one writer, and says so where another is named."
    )
    collection: str | None = None
    history: list[TurnView] = Field(default=[], max_length=100)

    @property
    def turns(self) -> list[Turn]:
        """The conversation as the library takes it."""
        return [Turn(question=turn.question, answer=turn.answer) for turn in self.history]


class DocumentView(BaseModel):
    """A document that the reader may read."""

    id: uuid.UUID
    source: str
    collection: str
    title: str
    media_type: str
    language: str
    version: int
    content_hash: str
    bytes: int
    chunks: int
    metadata: dict[str, Any]
    updated_at: datetime

    @classmethod
    def of(cls, info: DocumentInfo) -> Self:
        """Tell of a document."""
        return cls(
            id=info.id,
            source=info.source,
            collection=info.collection,
            title=info.title,
            media_type=info.media_type,
            language=info.language,
            version=info.version,
            content_hash=info.content_hash,
            bytes=info.bytes,
            chunks=info.chunks,
            metadata=dict(info.metadata),
            updated_at=info.updated_at,
        )


class DocumentPage(BaseModel):
    """Documents by source; `next` is the cursor of the page after, null at the end."""

    documents: list[DocumentView]
    next: str | None


class JobView(BaseModel):
    """A job of the tenant."""

    id: int
    collection: str
    kind: str
    key: str
    source: str | None
    state: JobState
    priority: int
    run_at: datetime
    every_s: float | None
    attempt: int
    lost: int
    worker: str | None
    outcome: str | None
    code: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, info: JobInfo) -> Self:
        """Tell of a job; the spec of its source stays here, for it may hold secrets."""
        return cls(
            id=info.id,
            collection=info.collection,
            kind=info.kind,
            key=info.key,
            source=_source(info.payload),
            state=info.state,
            priority=info.priority,
            run_at=info.run_at,
            every_s=info.every_s,
            attempt=info.attempt,
            lost=info.lost,
            worker=info.worker,
            outcome=info.outcome,
            code=info.code,
            error=info.error,
            created_at=info.created_at,
            started_at=info.started_at,
            finished_at=info.finished_at,
        )


def _source(payload: Mapping[str, Any]) -> str | None:
    told = payload.get("document") or payload.get("entry") or {}
    return told.get("source")


class JobPage(BaseModel):
    """Jobs, the newest first; `next` is the cursor of the page after, null at the end."""

    jobs: list[JobView]
    next: str | None


class JobsChanged(BaseModel):
    """The jobs that a call has changed."""

    jobs: list[int]


class CollectionView(BaseModel):
    """A collection that has a preset, or documents that the reader may read."""

    name: str
    preset: str | None
    chunks: int
    created_at: datetime | None = Field(description="When it was given its preset.")

    @classmethod
    def of(cls, info: CollectionInfo) -> Self:
        """Tell of a collection."""
        return cls(name=info.name, preset=info.preset, chunks=info.chunks, created_at=info.created_at)


class CollectionList(BaseModel):
    """All collections, by name."""

    collections: list[CollectionView]


class CollectionRequest(Request):
    """A collection to be made."""

    name: str = Field(examples=["handbook"])
    preset: str = Field(description="One of docs/presets.md.", examples=["corporate"])


class StatsView(BaseModel):
    """What there is for this reader."""

    total_documents: int
    total_chunks: int
    departments: dict[str, int] = Field(
        description="Chunks by departments of yours that may read them, or `everyone`; others are in the total only."
    )
    embedding_dimension: int


class ReloadView(BaseModel):
    """What a reload has set going."""

    status: str
    jobs: list[int]
    stats: StatsView


LOGGED = Field(description="Its record in the log, for feedback on it; null where no log is kept.")
TRIED = Field(description="Which configuration of an experiment answered; null where none runs that may change that.")


class HitView(BaseModel):
    """A passage that was found. Scores are told on request only, to who may see them: they say what others hold."""

    rank: int
    title: str
    source: str
    collection: str
    section: list[str]
    lines: tuple[int, int]
    pages: tuple[int, int] | None
    location: str
    text: str
    span: tuple[int, int]
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    chunk_id: uuid.UUID
    chunk_index: int
    chunker: str
    media_type: str
    metadata: dict[str, Any]
    scores: dict[str, Any] | None = None

    @classmethod
    def of(cls, hit: Passage, *, explain: bool) -> Self:
        """Tell of a passage."""
        return cls(
            rank=hit.rank,
            title=hit.title,
            source=hit.source,
            collection=hit.collection,
            section=list(hit.section),
            lines=(hit.line_start, hit.line_end),
            pages=page_range(hit),
            location=hit.location,
            text=hit.text,
            span=(hit.start, hit.end),
            document_id=hit.document_id,
            version_id=hit.version_id,
            version=hit.version,
            chunk_id=hit.chunk_id,
            chunk_index=hit.chunk_index,
            chunker=hit.chunker,
            media_type=hit.media_type,
            metadata=dict(hit.metadata),
            scores=_scores(hit) if explain else None,
        )


def _scores(hit: Passage) -> dict[str, Any]:
    names = ("score", "dense_rank", "dense_score", "lexical_rank", "lexical_score", "fused_rank", "fused_score")
    return {
        **{name: getattr(hit, name) for name in names},
        "rerank_score": hit.rerank_score,
        "score_contributions": dict(hit.score_contributions),
        "signals": dict(hit.signals),
    }


class SearchView(BaseModel):
    """The answer to a search."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: ExperimentAssignment | None = TRIED
    question: str
    requested: int
    returned: int
    hits: list[HitView]
    warnings: list[str]
    degraded_stages: list[str]
    incomplete_reason: str | None
    milliseconds: float
    stages: list[str]
    explain: dict[str, Any] | None = None

    @classmethod
    def of(cls, found: SearchResult, *, explain: bool) -> Self:
        """Tell of a retrieval."""
        return cls(
            retrieval_id=found.id,
            experiment=found.experiment,
            question=found.question,
            requested=found.requested,
            returned=found.returned,
            hits=[HitView.of(hit, explain=explain) for hit in found.hits],
            warnings=list(found.warnings),
            degraded_stages=list(found.degraded_stages),
            incomplete_reason=found.incomplete_reason,
            milliseconds=round(found.timings_ms["total"], 1),
            stages=list(found.stages),
            explain=_account(found) if explain else None,
        )


def _account(found: SearchResult) -> dict[str, Any]:
    return {
        "timings_ms": dict(found.timings_ms),
        "retrievers": {name: dataclasses.asdict(leg) for name, leg in found.retrievers.items()},
        "expansion": dataclasses.asdict(found.expansion),
        "intent": found.intent,
        "cached": found.cached,
    }


class CitationView(BaseModel):
    """Where something stands: enough to open the source at the place, and to notice that it has changed."""

    index: int
    marker: str
    title: str
    source: str
    section: list[str]
    location: str
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
            location=citation.location,
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
    experiment: ExperimentAssignment | None = TRIED
    question: str
    text: str
    tokens: int
    max_tokens: int
    passages: list[EvidenceView]
    omitted: dict[str, int]
    warnings: list[str]

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
            warnings=list(context.retrieval.warnings),
        )


class SourcesView(BaseModel):
    """The first event of a stream: what the answer will be made of."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: ExperimentAssignment | None = TRIED
    question: str
    search_query: str
    refused: bool
    sources: list[EvidenceView]
    warnings: list[str]

    @classmethod
    def of(cls, event: AnswerSources) -> Self:
        """Tell of the evidence."""
        return cls(
            retrieval_id=event.context.retrieval.id,
            experiment=event.context.retrieval.experiment,
            question=event.question,
            search_query=event.context.question,
            refused=event.refused,
            sources=[EvidenceView.of(passage) for passage in event.context.passages],
            warnings=[*event.warnings, *event.context.retrieval.warnings],
        )


class QuotedView(BaseModel):
    """A sentence of a document that the answer is made of, or that bears it out."""

    text: str
    kind: UnitKind
    score: float
    citation: CitationView

    @classmethod
    def of(cls, sentence: AnswerSentence) -> Self:
        """Tell of a sentence."""
        citation = CitationView.of(sentence.citation)
        return cls(text=sentence.text, kind=sentence.kind, score=sentence.score, citation=citation)


class ProblemView(BaseModel):
    """A sentence of a model's answer that its citations do not bear out."""

    text: str
    verdict: Verdict
    reason: str | None


class CheckedView(ProblemView):
    """A sentence of a model's answer, and what its citations are worth."""

    markers: list[int]
    overlap: float
    similarity: float
    quotes: list[QuotedView]

    @classmethod
    def of(cls, sentence: CheckedSentence) -> Self:
        """Tell of a sentence."""
        return cls(
            text=sentence.text,
            verdict=sentence.verdict,
            reason=sentence.reason,
            markers=list(sentence.markers),
            overlap=sentence.overlap,
            similarity=sentence.similarity,
            quotes=[QuotedView.of(quote) for quote in sentence.quotes],
        )


class AnswerView(BaseModel):
    """An answer, or a refusal where the evidence does not carry the question."""

    retrieval_id: uuid.UUID | None = LOGGED
    experiment: ExperimentAssignment | None = TRIED
    question: str
    search_query: str
    text: str
    mode: AnswerMode
    refused: bool
    verified: bool
    confidence: float
    sentences: list[QuotedView]
    problems: list[ProblemView]
    report: list[CheckedView] | None = Field(description="The check of what a model wrote, sentence by sentence.")
    sources: list[EvidenceView]
    warnings: list[str]

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Tell of an answer."""
        problems = answer.report.problems if answer.report else ()
        return cls(
            retrieval_id=answer.context.retrieval.id,
            experiment=answer.context.retrieval.experiment,
            question=answer.question,
            search_query=answer.search_query,
            text=answer.text,
            mode=answer.mode,
            refused=answer.refused,
            verified=answer.verified,
            confidence=round(answer.confidence, 4),
            sentences=[QuotedView.of(sentence) for sentence in answer.sentences],
            problems=[ProblemView(text=one.text, verdict=one.verdict, reason=one.reason) for one in problems],
            report=[CheckedView.of(one) for one in answer.report.sentences] if answer.report else None,
            sources=[EvidenceView.of(passage) for passage in answer.context.passages],
            warnings=[*answer.warnings, *answer.context.retrieval.warnings],
        )


class FeedbackRequest(Request):
    """A rating of a retrieval, by its id, or else of a question; of one passage of it where a chunk is named."""

    rating: Rating
    retrieval_id: uuid.UUID | None = Field(default=None, description="`retrieval_id` of what was answered.")
    question: str | None = Field(default=None, description="What was asked, where there is no retrieval_id.")
    collection: str | None = Field(default=None, description="Where it was asked; else all.")
    chunk_id: uuid.UUID | None = Field(default=None, description="The passage that is meant; else all of it.")
    comment: str | None = Field(default=None, max_length=2000)


class FeedbackView(BaseModel):
    """A rating as it is kept. Another one of the same by the same subject takes its place."""

    id: uuid.UUID
    at: datetime
    subject: str
    collection: str | None
    retrieval_id: uuid.UUID | None
    question: str | None
    question_sha256: str
    rating: Rating
    chunk_id: uuid.UUID | None
    source: str | None
    comment: str | None

    @classmethod
    def of(cls, kept: Feedback) -> Self:
        """Tell of a rating."""
        return cls(**{name: getattr(kept, name) for name in cls.model_fields})
