"""Records of answers and of the check of their citations."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import computed_field

from kosmos_rag.core.types.explain import explain_answer
from kosmos_rag.core.types.notebook import answer_html
from kosmos_rag.core.types.search import Citation, Context
from kosmos_rag.core.types.serialize import Serializable, explain_only, explain_only_parts

UnitKind = Literal["sentence", "code", "item", "row"]
"""Kinds of text units; a code block, a list item and a table row are never cut."""

Verdict = Literal["supported", "unsupported", "uncited", "unresolved"]
"""Of a sentence's citations; `unresolved` has a marker that names no passage."""

AnswerMode = Literal["extractive", "generative"]
"""Mode of an answer: `extractive` quotes sentences of the documents, `generative` is written by a language model."""

QuoteState = Literal["unchanged", "moved", "gone"]
"""State of a quote in a newer version of its document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A question of a conversation, with its answer; `Answer.turn` is the turn of an answer."""

    question: str
    answer: str
    search_query: str | None = None
    """The question as it was searched; None for the question."""
    passages: Mapping[int, tuple[uuid.UUID, ...]] = field(default_factory=dict)
    """Chunks of its passages by the number of the passage: the next prompt may repeat what the reader may read then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSentence(Serializable):
    """A document unit that is part of an answer or supports it."""

    text: str
    kind: UnitKind
    score: float
    """Score for the question, 0 to 1; for a generated sentence the cosine similarity to it, -1 to 1."""
    citation: Citation
    """The document's text from `start` to `end` is `text`, and `quote_sha256` is the hash of it."""
    columns: tuple[str, ...] = ()
    """Names of the columns, of a row of a Markdown table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredUnit(Serializable):
    """A text unit that could answer, with its score."""

    marker: str
    """The marker of its passage."""
    text: str
    kind: UnitKind
    score: float
    """The sum of the parts, 0 or more."""
    parts: Mapping[str, float]
    """The parts of the score by name (docs/answers.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer(Serializable):
    """An answer from evidence, or a refusal if the evidence is insufficient."""

    question: str
    """The question as it was sent."""
    text: str
    """Sentences with citation markers, or the refusal sentence."""
    mode: AnswerMode
    refused: bool
    verified: bool
    """Whether the evidence supports every sentence and contains no instructions to a language model; false for refusals
    and truncated answers."""
    truncated: bool = False
    """Whether the language model was cut off at `rag.answer.max_output_tokens`."""
    confidence: float
    """Estimated probability that the evidence answers the question, 0 to 1; refused below `rag.answer.threshold`."""
    sentences: tuple[AnswerSentence, ...]
    """The quoted evidence, in order; of a generated answer, the evidence of its supported sentences."""
    report: "CitationReport | None"
    """The check of a generated answer; None for a quoted one."""
    context: Annotated[Context, explain_only_parts("text")]
    """The passages that were considered."""
    closest: tuple[AnswerSentence, ...] = ()
    """Of a refusal whose confidence is not below `rag.answer.closest_threshold`: the units that come closest to an
    answer, without a claim that they are one; else empty."""
    warnings: tuple[str, ...] = ()
    """Warnings for the caller, in addition to those of the search."""
    units: Annotated[tuple[ScoredUnit, ...], explain_only(())]
    """All text units of the passages that were scored, best first."""
    refusal_reason: Annotated[str | None, explain_only(None)]
    """The reason for a refusal in one sentence; None for an answer."""

    def explain(self) -> str:
        """Return the score of each unit and the reason for a refusal, as text."""
        return explain_answer(self)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def search_query(self) -> str:
        """The query of the search.

        Differs from the question if a conversation was rewritten.
        """
        return self.context.question

    @property
    def turn(self) -> Turn:
        """The turn for the `history` of the next question."""
        return Turn(
            question=self.question,
            answer=self.text,
            search_query=self.search_query,
            passages={passage.citation.index: passage.chunk_ids for passage in self.context.passages},
        )

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of the sentences, in order."""
        return tuple(sentence.citation for sentence in self.sentences)

    def _repr_html_(self) -> str:
        return answer_html(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedSentence(Serializable):
    """A sentence of an answer and the check of its citations."""

    text: str
    """Without its markers."""
    markers: tuple[int, ...]
    """The numbers that it cites."""
    verdict: Verdict
    reason: str | None
    """Why it is not supported; None if it is supported."""
    overlap: float
    """Share of its words that occur in the cited passages, 0 to 1."""
    similarity: float
    """Cosine similarity to the most similar unit of the cited passages, -1 to 1."""
    quotes: tuple[AnswerSentence, ...] = ()
    """The supporting unit of each cited passage; empty if it is not supported."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationReport(Serializable):
    """The check of an answer, sentence by sentence."""

    sentences: tuple[CheckedSentence, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def supported(self) -> bool:
        """Whether every sentence is; an answer without a sentence is not."""
        return bool(self.sentences) and all(sentence.verdict == "supported" for sentence in self.sentences)

    @property
    def problems(self) -> tuple[CheckedSentence, ...]:
        """The sentences that are not supported."""
        return tuple(sentence for sentence in self.sentences if sentence.verdict != "supported")


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSources(Serializable):
    """The first event of a streamed answer: its evidence."""

    question: str
    """The question as it was sent."""
    context: Annotated[Context, explain_only_parts("text")]
    refused: bool
    """Whether the evidence is insufficient, so that the answer will be a refusal."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerPiece:
    """A piece of the text.

    Together they are the text of the answer, but for white space around it.
    """

    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerDone:
    """The last event: the answer as a whole, checked."""

    answer: Answer


AnswerEvent = AnswerSources | AnswerPiece | AnswerDone


@dataclass(frozen=True, kw_only=True, slots=True)
class QuoteStatus(Serializable):
    """The position of a quote in a version of its document."""

    state: QuoteState
    start: int | None
    """Its present position; None if it was removed."""
    end: int | None
    copies: int
    """Number of occurrences; `start` is of the one nearest to the old position."""
