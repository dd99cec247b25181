"""Figures of answers and refusals, with baselines that need no answerer."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from benchmarks.answering.record import AskedPair
from kosmos_rag.answering.abstention import best_evidence, confidence
from kosmos_rag.answering.compose import select
from kosmos_rag.answering.evidence import Evidence, score_evidence
from kosmos_rag.core.config import AnswerSettings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredPair:
    """A question with the evidence of both contexts."""

    contexts: AskedPair
    evidence: Sequence[Evidence]
    confidence: float
    confidence_without: float


def score_pair(contexts: AskedPair, embedder: Embedder, settings: AnswerSettings) -> ScoredPair:
    """Score the evidence of a question as the answerer does."""

    def score(context: Context) -> tuple[list[Evidence], float]:
        evidence = score_evidence(contexts.question.text, context.passages[: settings.max_passages], embedder)
        best = best_evidence(evidence)
        return evidence, confidence(best.score) if best else 0.0

    evidence, with_document = score(contexts.context)
    return ScoredPair(
        contexts=contexts, evidence=evidence, confidence=with_document, confidence_without=score(contexts.without)[1]
    )


def measure(pairs: Sequence[ScoredPair], settings: AnswerSettings) -> dict[str, float]:
    """Return the figures of one set.

    `holds` and `first` are the shares of answered questions whose units, or whose first unit, have the words of the
    answer.
    `auc` is the probability that a question has more confidence with the answering document than another one without.
    """
    answered = [pair for pair in pairs if pair.confidence >= settings.threshold]
    quoted = [(pair, select(pair.evidence, settings.max_sentences)) for pair in answered]
    yes = np.array([pair.confidence for pair in pairs])
    no = np.array([pair.confidence_without for pair in pairs])
    return {
        "questions": len(pairs),
        "refused": round(1 - len(answered) / len(pairs), 3),
        "refused_without": round(float((no < settings.threshold).mean()), 3),
        "auc": round(float((yes[:, None] > no).mean() + (yes[:, None] == no).mean() / 2), 3),
        "holds": _share([any(_holds(pair, item) for item in units) for pair, units in quoted]),
        "first": _share([_holds(pair, units[0]) for pair, units in quoted]),
        "units": round(mean([len(units) for _, units in quoted] or [0]), 2),
        "words": round(mean([sum(len(item.unit.text.split()) for item in units) for _, units in quoted] or [0]), 1),
        "first_by_cosine": _share([_holds(pair, max(pair.evidence, key=_meaning)) for pair in pairs if pair.evidence]),
        "first_of_passage": _share([_holds(pair, pair.evidence[0]) for pair in pairs if pair.evidence]),
        "random": round(
            mean([mean(_holds(pair, item) for item in pair.evidence) for pair in pairs if pair.evidence] or [0]), 3
        ),
    }


def _meaning(item: Evidence) -> float:
    return item.meaning


def _holds(pair: ScoredPair, item: Evidence) -> bool:
    if pair.contexts.question.is_line:
        return _holds_line(pair, item)
    text = _fold(item.unit.text)
    return any(_fold(answer) in text for answer in pair.contexts.question.answers)


def _holds_line(pair: ScoredPair, item: Evidence) -> bool:
    """Return whether a unit has half of the line that answers."""
    question, passage, unit = pair.contexts.question, item.passage, item.unit
    (line,) = question.answers
    at = passage.text.find(line)
    if at < 0 or passage.citation.source != question.source:
        return False
    return 2 * (min(unit.end, at + len(line)) - max(unit.start, at)) >= len(line)


def _fold(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold().strip()


def _share(values: Sequence[bool]) -> float:
    return round(mean(values), 3) if values else 0.0
