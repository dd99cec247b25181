"""Answers, and the check of what a model wrote."""

import uuid
from typing import Self

from pydantic import BaseModel, Field

from kosmos_rag.records import Answer, AnswerSentence, CheckedSentence, Served, UnitKind, Verdict, Writer
from kosmos_rag.service.wire.evidence import CitationView, EvidenceView
from kosmos_rag.service.wire.passages import LOGGED, TRIED


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
    experiment: Served | None = TRIED
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
            experiment=answer.context.retrieval.experiment,
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
