"""Figures of answers and refusals, with baselines that need no answerer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from benchmarks.answering.record import AskedPair
from benchmarks.answering.sets import AnswerQuestion
from kosmos_rag.answering.abstention import find_confidence
from kosmos_rag.answering.compose import select
from kosmos_rag.answering.evidence import Evidence, heading, score_evidence
from kosmos_rag.answering.scorers import EmbeddingScorer, EvidenceScorer
from kosmos_rag.core.config import AnswerSettings
from kosmos_rag.core.types import Context

_NUMBER = re.compile(r"^\d+\. ")
"""Of a numbered heading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPair:
    """A question with the evidence of both contexts."""

    question: AnswerQuestion
    evidence: Sequence[Evidence]
    """Of the context with the answering documents; empty for a question without them."""
    by_cosine: Evidence | None
    """The unit of that context that is nearest by cosine; None without units."""
    confidence: float
    confidence_without: float


def score_pair(
    contexts: AskedPair, scorer: EvidenceScorer, cosine: EmbeddingScorer, settings: AnswerSettings
) -> ScoredPair:
    """Score the evidence of a question as the answerer does.

    Args:
        contexts: The question with its contexts.
        scorer: The scorer of the answerer.
        cosine: The scorer of the baseline.
        settings: Of answers.
    """

    def score(context: Context | None) -> tuple[list[Evidence], float]:
        passages = () if context is None else context.passages[: settings.max_passages]
        evidence = score_evidence(contexts.question.text, passages, scorer)
        return evidence, find_confidence(evidence, scorer)

    evidence, with_documents = score(contexts.context)
    passages = () if contexts.context is None else contexts.context.passages[: settings.max_passages]
    nearest = score_evidence(contexts.question.text, passages, cosine)
    return ScoredPair(
        question=contexts.question,
        evidence=evidence,
        by_cosine=max(nearest, key=lambda item: item.parts["meaning"], default=None),
        confidence=with_documents,
        confidence_without=score(contexts.without)[1],
    )


def measure(pairs: Sequence[ScoredPair], settings: AnswerSettings) -> dict[str, float]:
    """Return the figures of one set.

    `holds` and `first` are the shares of answered questions whose units, or whose first unit, are the answer.
    `refused` and `auc` are of questions with answering documents, `refused_without` is of all. `auc` is the probability
    that a question has more confidence with the answering documents than another one without.
    """
    answerable = [pair for pair in pairs if pair.question.sources]
    answered = [pair for pair in answerable if pair.confidence >= settings.threshold]
    quoted = [(pair, select(pair.evidence, settings.max_sentences)) for pair in answered]
    no = np.array([pair.confidence_without for pair in pairs])
    figures = {"questions": len(pairs), "refused_without": round(float((no < settings.threshold).mean()), 3)}
    if not answerable:
        return figures
    yes = np.array([pair.confidence for pair in answerable])
    without = np.array([pair.confidence_without for pair in answerable])
    scored = [pair for pair in answerable if pair.evidence]
    return figures | {
        "refused": round(1 - len(answered) / len(answerable), 3),
        "auc": round(float((yes[:, None] > without).mean() + (yes[:, None] == without).mean() / 2), 3),
        "holds": _share([any(_holds(pair, item) for item in units) for pair, units in quoted]),
        "first": _share([_holds(pair, units[0]) for pair, units in quoted]),
        "units": round(mean([len(units) for _, units in quoted] or [0]), 2),
        "words": round(mean([sum(len(item.unit.text.split()) for item in units) for _, units in quoted] or [0]), 1),
        "first_by_cosine": _share([_holds(pair, pair.by_cosine) for pair in scored if pair.by_cosine]),
        "first_of_passage": _share([_holds(pair, pair.evidence[0]) for pair in scored]),
        "random": round(mean([mean(_holds(pair, item) for item in pair.evidence) for pair in scored] or [0]), 3),
    }


def _holds(pair: ScoredPair, item: Evidence) -> bool:
    """Return whether a unit is the answer, as far as its place is known."""
    question = pair.question
    if question.place == "words":
        text = _fold(item.unit.text)
        return any(_fold(answer) in text for answer in question.answers)
    if item.passage.citation.source not in question.sources:
        return False
    if question.place == "section":
        title = item.unit.heading or heading(item.passage)
        return _fold(_NUMBER.sub("", title)) in map(_fold, question.answers)
    return question.place == "document" or _holds_line(question.answers[0], item)


def _holds_line(line: str, item: Evidence) -> bool:
    """Return whether a unit has half of the line that answers."""
    unit, at = item.unit, item.passage.text.find(line)
    return at >= 0 and 2 * (min(unit.end, at + len(line)) - max(unit.start, at)) >= len(line)


def _fold(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold().strip()


def _share(values: Sequence[bool]) -> float:
    return round(mean(values), 3) if values else 0.0
