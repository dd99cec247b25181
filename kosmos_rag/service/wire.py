"""What goes over the wire: requests as they may be asked, and the library's records as they are told."""

import dataclasses
import uuid
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from kosmos_rag.records import (
    Answer,
    AnswerSentence,
    AnswerSources,
    CheckedSentence,
    Citation,
    Context,
    ContextPassage,
    Filter,
    Passage,
    Retrieval,
    Turn,
    UnitKind,
    Verdict,
    Writer,
    page_range,
)

_LOGGED = Field(description="Its record in the log, for feedback on it; null where no log is kept.")
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


class HitView(BaseModel):
    """A passage that was found. Scores are told on request only, to who may see them: they say what others hold."""

    rank: int
    title: str
    source: str
    collection: str
    section: list[str]
    lines: tuple[int, int]
    pages: tuple[int, int] | None
    place: str
    text: str
    span: tuple[int, int]
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    chunk_id: uuid.UUID
    ordinal: int
    splitter: str
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
            place=hit.place,
            text=hit.text,
            span=(hit.start, hit.end),
            document_id=hit.document_id,
            version_id=hit.version_id,
            version=hit.version,
            chunk_id=hit.chunk_id,
            ordinal=hit.ordinal,
            splitter=hit.splitter,
            media_type=hit.media_type,
            metadata=dict(hit.metadata),
            scores=_scores(hit) if explain else None,
        )


def _scores(hit: Passage) -> dict[str, Any]:
    names = ("score", "dense_rank", "dense_score", "lexical_rank", "lexical_score", "fused_rank", "fused_score")
    return {
        **{name: getattr(hit, name) for name in names},
        "rerank_score": hit.rerank_score,
        "shares": dict(hit.shares),
        "signals": dict(hit.signals),
    }


class SearchView(BaseModel):
    """The answer to a search."""

    retrieval_id: uuid.UUID | None = _LOGGED
    question: str
    requested: int
    returned: int
    hits: list[HitView]
    notes: list[str]
    skipped: list[str]
    shortfall: str | None
    milliseconds: float
    stages: list[str]
    account: dict[str, Any] | None = None

    @classmethod
    def of(cls, found: Retrieval, *, explain: bool) -> Self:
        """Tell of a retrieval."""
        return cls(
            retrieval_id=found.id,
            question=found.question,
            requested=found.requested,
            returned=found.returned,
            hits=[HitView.of(hit, explain=explain) for hit in found.hits],
            notes=list(found.notes),
            skipped=list(found.skipped),
            shortfall=found.shortfall,
            milliseconds=round(found.timings_ms["total"], 1),
            stages=list(found.stages),
            account=_account(found) if explain else None,
        )


def _account(found: Retrieval) -> dict[str, Any]:
    return {
        "timings_ms": dict(found.timings_ms),
        "legs": {name: dataclasses.asdict(leg) for name, leg in found.legs.items()},
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

    retrieval_id: uuid.UUID | None = _LOGGED
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
            question=context.question,
            text=context.text,
            tokens=context.tokens,
            max_tokens=context.max_tokens,
            passages=[EvidenceView.of(passage) for passage in context.passages],
            omitted=dict(context.omitted),
            notes=list(context.retrieval.notes),
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

    retrieval_id: uuid.UUID | None = _LOGGED
    question: str
    searched: str
    text: str
    writer: Writer
    refused: bool
    verified: bool
    confidence: float
    sentences: list[QuotedView]
    problems: list[ProblemView]
    report: list[CheckedView] | None = Field(description="The check of what a model wrote, sentence by sentence.")
    sources: list[EvidenceView]
    notes: list[str]

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Tell of an answer."""
        problems = answer.report.problems if answer.report else ()
        return cls(
            retrieval_id=answer.context.retrieval.id,
            question=answer.question,
            searched=answer.searched,
            text=answer.text,
            writer=answer.writer,
            refused=answer.refused,
            verified=answer.verified,
            confidence=round(answer.confidence, 4),
            sentences=[QuotedView.of(sentence) for sentence in answer.sentences],
            problems=[ProblemView(text=one.text, verdict=one.verdict, reason=one.reason) for one in problems],
            report=[CheckedView.of(one) for one in answer.report.sentences] if answer.report else None,
            sources=[EvidenceView.of(passage) for passage in answer.context.passages],
            notes=[*answer.notes, *answer.context.retrieval.notes],
        )


class SourcesView(BaseModel):
    """The first event of a stream: what the answer will be made of."""

    retrieval_id: uuid.UUID | None = _LOGGED
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
            question=event.question,
            searched=event.context.question,
            refused=event.refused,
            sources=[EvidenceView.of(passage) for passage in event.context.passages],
            notes=[*event.notes, *event.context.retrieval.notes],
        )
