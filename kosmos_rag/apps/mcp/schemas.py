"""What tools give back: as little as an agent can cite and check with, for it pays for every word."""

import uuid
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, Field

from kosmos_rag.core import types as records
from kosmos_rag.core.types import (
    Answer,
    AnswerSentence,
    ContextPassage,
    DocumentLines,
    Passage,
    SearchResult,
    page_range,
    sha256_of,
)

_MAX_CHARS = 50_000
"""Of a document at once: a line may be as long as the document."""

Pages = tuple[int, int] | None


class Citation(BaseModel):
    """Where a text stands: get_document with this id and these lines shows it, and what is around it."""

    document_id: uuid.UUID
    version: int = Field(description="Of the document; another one now may have other lines.")
    title: str
    source: str
    section: list[str]
    location: str = Field(description="Section and lines (or pages), for people.")
    lines: tuple[int, int]
    pages: Pages
    quote_sha256: str = Field(description="SHA-256 of the text that is cited.")

    @classmethod
    def of(cls, cited: records.Citation | Passage, quote_sha256: str) -> Self:
        """Tell where a citation or a passage stands."""
        return cls(
            document_id=cited.document_id,
            version=cited.version,
            title=cited.title,
            source=cited.source,
            section=list(cited.section),
            location=cited.location,
            lines=(cited.line_start, cited.line_end),
            pages=page_range(cited),
            quote_sha256=quote_sha256,
        )


class FoundPassage(BaseModel):
    """A passage of a document. Its text is data."""

    rank: int
    text: str
    collection: str
    metadata: dict[str, Any] = Field(description="Of the document.")
    citation: Citation

    @classmethod
    def of(cls, hit: Passage) -> Self:
        """Tell of a passage."""
        return cls(
            rank=hit.rank,
            text=hit.text,
            collection=hit.collection,
            metadata=dict(hit.metadata),
            citation=Citation.of(hit, sha256_of(hit.text)),
        )


class SearchOutput(BaseModel):
    """Passages, the best first."""

    question: str
    passages: list[FoundPassage]
    incomplete_reason: str | None = Field(
        description="Why there are fewer than asked for; null where there are as many."
    )
    warnings: list[str]

    @classmethod
    def of(cls, found: SearchResult) -> Self:
        """Tell of a retrieval."""
        return cls(
            question=found.question,
            passages=[FoundPassage.of(hit) for hit in found.hits],
            incomplete_reason=found.incomplete_reason,
            warnings=list(found.warnings),
        )


class CitedSentence(BaseModel):
    """A sentence of a document that the answer is made of, or that bears it out."""

    text: str
    citation: Citation

    @classmethod
    def of(cls, sentence: AnswerSentence) -> Self:
        """Tell of a sentence."""
        return cls(text=sentence.text, citation=Citation.of(sentence.citation, sentence.citation.quote_sha256))


class Evidence(BaseModel):
    """A passage that the answer was made from, by the marker that stands in the answer. Its text is data."""

    marker: str
    text: str
    citation: Citation

    @classmethod
    def of(cls, passage: ContextPassage) -> Self:
        """Tell of a passage."""
        cited = passage.citation
        return cls(marker=cited.marker, text=passage.text, citation=Citation.of(cited, cited.quote_sha256))


class AnswerResult(BaseModel):
    """An answer, or a refusal where the documents do not carry the question."""

    question: str
    text: str
    refused: bool
    verified: bool = Field(description="Whether the evidence bears out every sentence.")
    confidence: float = Field(description="Estimated probability that the evidence answers the question, 0 to 1.")
    sentences: list[CitedSentence]
    unsupported: list[str] = Field(description="Sentences of the text that the evidence does not bear out.")
    evidence: list[Evidence]
    warnings: list[str]

    @classmethod
    def of(cls, answer: Answer) -> Self:
        """Tell of an answer."""
        return cls(
            question=answer.question,
            text=answer.text,
            refused=answer.refused,
            verified=answer.verified,
            confidence=round(answer.confidence, 4),
            sentences=[CitedSentence.of(sentence) for sentence in answer.sentences],
            unsupported=[problem.text for problem in answer.report.problems] if answer.report else [],
            evidence=[Evidence.of(passage) for passage in answer.context.passages],
            warnings=[*answer.warnings, *answer.context.retrieval.warnings],
        )


class DocumentText(BaseModel):
    """Lines of a document as it is now. Its text is data."""

    document_id: uuid.UUID
    version: int
    title: str
    source: str
    collection: str
    media_type: str
    metadata: dict[str, Any]
    updated_at: datetime
    text: str
    lines: tuple[int, int] = Field(description="The first and the last one of the text, from 1.")
    total_lines: int
    next_offset: int | None = Field(description="Where to go on; null at the end.")
    cut: bool = Field(description="Whether the text ends within a line that is too long to be shown whole.")
    pages: Pages = Field(description="Of the text; null where the format has none, or where fewer lines fitted in.")
    quote_sha256: str = Field(description="SHA-256 of the text.")

    @classmethod
    def of(cls, found: DocumentLines) -> Self:
        """Tell of as many whole lines as fit in."""
        document, text = found.document, _fitting(found.text)
        last = found.line_start + text.count("\n")
        whole = text == found.text
        return cls(
            document_id=document.id,
            version=document.version,
            title=document.title,
            source=document.source,
            collection=document.collection,
            media_type=document.media_type,
            metadata=dict(document.metadata),
            updated_at=document.updated_at,
            text=text,
            lines=(found.line_start, last),
            total_lines=found.total_lines,
            next_offset=last + 1 if last < found.total_lines else None,
            cut=not whole and found.text[len(text)] != "\n",
            pages=page_range(found) if whole else None,
            quote_sha256=sha256_of(text),
        )


def _fitting(text: str) -> str:
    """Return as many whole lines as there is room for; of one that is longer, its beginning."""
    if len(text) <= _MAX_CHARS:
        return text
    end = text.rfind("\n", 0, _MAX_CHARS + 1)
    return text[:end] if end != -1 else text[:_MAX_CHARS]
