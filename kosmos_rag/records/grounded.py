"""Records of an answer that is made of evidence, and of the check of an answer's citations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kosmos_rag.records.answers import Citation, Context

UnitKind = Literal["sentence", "code", "item", "row"]
"""What a unit of text is; a code block, a list item and a table row are never cut."""

Verdict = Literal["supported", "unsupported", "uncited", "unresolved"]
"""Of a sentence's citations; `unresolved` has a marker that names no passage."""

QuoteState = Literal["unchanged", "moved", "gone"]
"""What a newer version of a document made of a quote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSentence:
    """One unit of the answer, as it stands in its document."""

    text: str
    kind: UnitKind
    score: float
    """How well it answers the question, 0 to 1."""
    citation: Citation
    """The document's text from `start` to `end` is `text`, and `quote_sha256` is the hash of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """An answer composed of evidence, or a refusal where the evidence does not carry the question."""

    question: str
    text: str
    """For a reader: the sentences, each with the marker of its passage; or the refusal sentence."""
    refused: bool
    confidence: float
    """Estimated probability that the evidence answers the question, 0 to 1; refused below `rag.answer.threshold`."""
    features: Mapping[str, float]
    """What the confidence is made of; empty where there was no evidence."""
    sentences: tuple[AnswerSentence, ...]
    """In the order of the text; none where the answer is a refusal."""
    context: Context
    """The passages that were looked at."""

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of the sentences, in order."""
        return tuple(sentence.citation for sentence in self.sentences)


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedSentence:
    """A sentence of an answer with what its citations are worth."""

    text: str
    """Without its markers."""
    markers: tuple[int, ...]
    """The numbers that it cites."""
    verdict: Verdict
    reason: str | None
    """What is wrong; None where it is supported."""
    overlap: float
    """Share of its words that stand in the cited passages, 0 to 1."""
    similarity: float
    """Cosine similarity to the most similar unit of the cited passages, -1 to 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationReport:
    """The check of an answer, sentence by sentence."""

    sentences: tuple[CheckedSentence, ...]

    @property
    def supported(self) -> bool:
        """Whether every sentence is; an answer without a sentence is not."""
        return bool(self.sentences) and all(sentence.verdict == "supported" for sentence in self.sentences)

    @property
    def problems(self) -> tuple[CheckedSentence, ...]:
        """The sentences that are not supported."""
        return tuple(sentence for sentence in self.sentences if sentence.verdict != "supported")


@dataclass(frozen=True, kw_only=True, slots=True)
class QuoteStatus:
    """Where a quote stands in a version of its document."""

    state: QuoteState
    start: int | None
    """Where it is now; None where it is gone."""
    end: int | None
    copies: int
    """How often it stands there: of several, the one nearest to its old place is meant."""
