"""Choose when to refuse, and check what a confidence means."""

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.types import Evaluation

THRESHOLD = "rag.answer.threshold"
_MIN_QUESTIONS = 10
"""Minimum number of questions of each kind."""
_BINS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class AnsweredQuestion:
    """A question that was answered, and whether the documents answer it."""

    question_id: str
    answerable: bool
    confidence: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusals:
    """Refusals below a threshold."""

    threshold: float
    refused: float
    """Share of the questions without an answer that are refused."""
    wrongly_refused: float
    """Share of the other half of the questions with an answer that are refused."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReliabilityBin:
    """Questions with similar confidence."""

    low: float
    high: float
    questions: int
    confidence: float
    """Their mean confidence."""
    answerable: float
    """Share of them that have an answer: equal to the confidence if it is calibrated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """A threshold, chosen on half of the questions with an answer."""

    evaluation: str | None
    """Name of the evaluation; None for questions that readers rated."""
    answerable: int
    unanswerable: int
    auc: float
    """Probability that a question with an answer has more confidence than one without."""
    configured: Refusals
    chosen: Refusals
    reliability: tuple[ReliabilityBin, ...]
    """Of all questions, by confidence; empty bins are left out."""


def calibrate_evaluation(evaluation: Evaluation, wrongly_refused: float) -> Calibration:
    """Choose a threshold by an evaluation with answers.

    Raises RequestError without answers, and as `calibrate`.
    """
    if not evaluation.answered:
        raise RequestError(f"{evaluation.name} has no answers; evaluate with `eval run --answers`")
    configured = float(evaluation.settings["answer"]["threshold"])
    questions = list_answered_questions(evaluation)
    return calibrate(questions, wrongly_refused, configured=configured, evaluation=evaluation.name)


def list_answered_questions(evaluation: Evaluation) -> list[AnsweredQuestion]:
    """Return the answered questions of an evaluation."""
    return [
        AnsweredQuestion(
            question_id=result.question_id, answerable=bool(result.judged), confidence=result.confidence or 0.0
        )
        for result in evaluation.results
    ]


def calibrate(
    questions: Sequence[AnsweredQuestion], wrongly_refused: float, *, configured: float, evaluation: str | None = None
) -> Calibration:
    """Choose a threshold by the answerable questions that it may refuse.

    It is the highest one that refuses at most that share of half of them, by a hash of their ids. What it does is
    measured on the other half, and on all questions without an answer.

    Args:
        questions: Questions with the confidence of their answers.
        wrongly_refused: The share, 0 to 1.
        configured: The threshold in use.
        evaluation: Name of the evaluation that they are of; None for questions that readers rated.

    Raises RequestError with fewer than ten questions of a kind, or where the share is out of range.
    """
    if not 0 <= wrongly_refused < 1:
        raise RequestError(f"the share of wrongly refused questions is {wrongly_refused}; give one from 0 to below 1")
    yes = [question for question in questions if question.answerable]
    no = [question for question in questions if not question.answerable]
    if min(len(yes), len(no)) < _MIN_QUESTIONS:
        raise RequestError(
            f"{evaluation or 'the rating of questions'} has {len(yes)} questions with an answer and {len(no)} without; "
            f"{_MIN_QUESTIONS} of each are needed"
        )
    train, test = _split(yes)
    confidences = sorted(question.confidence for question in train)
    threshold = math.floor(confidences[int(wrongly_refused * len(confidences))] * 1000) / 1000
    return Calibration(
        evaluation=evaluation,
        answerable=len(yes),
        unanswerable=len(no),
        auc=statistics.fmean(_is_above(first.confidence, second.confidence) for first in yes for second in no),
        configured=_refusals(configured, test, no),
        chosen=_refusals(threshold, test, no),
        reliability=reliability_bins(questions),
    )


def render_threshold(calibration: Calibration, base: str | None) -> str:
    """Render a configuration file with the chosen threshold.

    What it does is a comment.

    Args:
        base: Path of the file that it extends; None without one.
    """
    before, after = calibration.configured, calibration.chosen
    name = calibration.evaluation or "the rated questions"
    head = (
        f"Calibrated with {name}, on half of the questions with an answer.\n"
        f"Refused of the other half {before.wrongly_refused:.2f} before, {after.wrongly_refused:.2f} with this;\n"
        f"of the questions without an answer {before.refused:.2f} before, {after.refused:.2f} with this."
    )
    values = ({"extends": base} if base is not None else {}) | nest({THRESHOLD: after.threshold})
    return "".join(f"# {line}\n" for line in head.splitlines()) + yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True
    )


def _split(questions: Sequence[AnsweredQuestion]) -> tuple[list[AnsweredQuestion], list[AnsweredQuestion]]:
    by_hash = sorted(questions, key=lambda question: hashlib.sha256(question.question_id.encode()).hexdigest())
    return by_hash[::2], by_hash[1::2]


def _is_above(first: float, second: float) -> float:
    return 0.5 if first == second else float(first > second)


def _refusals(threshold: float, yes: Sequence[AnsweredQuestion], no: Sequence[AnsweredQuestion]) -> Refusals:
    return Refusals(
        threshold=threshold,
        refused=statistics.fmean(question.confidence < threshold for question in no),
        wrongly_refused=statistics.fmean(question.confidence < threshold for question in yes),
    )


def reliability_bins(questions: Sequence[AnsweredQuestion]) -> tuple[ReliabilityBin, ...]:
    """Return the reliability of the confidence in bins of 0.1.

    Empty bins are left out.
    """
    by_bin: dict[int, list[AnsweredQuestion]] = {}
    for question in questions:
        by_bin.setdefault(min(_BINS - 1, int(question.confidence * _BINS)), []).append(question)
    return tuple(
        ReliabilityBin(
            low=number / _BINS,
            high=(number + 1) / _BINS,
            questions=len(members),
            confidence=statistics.fmean(member.confidence for member in members),
            answerable=statistics.fmean(member.answerable for member in members),
        )
        for number, members in sorted(by_bin.items())
    )
