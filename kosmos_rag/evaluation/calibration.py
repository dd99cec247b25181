"""Choose when to refuse, and check what a confidence means."""

import hashlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from kosmos_rag.core.config.keys import nest
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.types import Evaluation, QuestionResult

THRESHOLD = "rag.answer.threshold"
_MIN_QUESTIONS = 10
"""Minimum number of questions of each kind."""
_BINS = 10


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

    evaluation: str
    answerable: int
    unanswerable: int
    auc: float
    """Probability that a question with an answer has more confidence than one without."""
    configured: Refusals
    chosen: Refusals
    reliability: tuple[ReliabilityBin, ...]
    """Of all questions, by confidence; empty bins are left out."""


def calibrate(evaluation: Evaluation, wrongly_refused: float) -> Calibration:
    """Choose a threshold by the answerable questions that it may refuse.

    It is the highest one that refuses at most that share of half of them, by a hash of their ids. What it does is
    measured on the other half, and on all questions without an answer.

    Args:
        evaluation: An evaluation with answers.
        wrongly_refused: The share, 0 to 1.

    Raises RequestError without answers, with fewer than ten questions of a kind, or where the share is out of range.
    """
    if not 0 <= wrongly_refused < 1:
        raise RequestError(f"the share of wrongly refused questions is {wrongly_refused}; give one from 0 to below 1")
    if not evaluation.answered:
        raise RequestError(f"{evaluation.name} has no answers; evaluate with `eval run --answers`")
    yes = [result for result in evaluation.results if result.judged]
    no = [result for result in evaluation.results if not result.judged]
    if min(len(yes), len(no)) < _MIN_QUESTIONS:
        raise RequestError(
            f"{evaluation.name} has {len(yes)} questions with an answer and {len(no)} without; "
            f"{_MIN_QUESTIONS} of each are needed"
        )
    train, test = _split(yes)
    ordered = sorted(map(_confidence, train))
    threshold = math.floor(ordered[int(wrongly_refused * len(ordered))] * 1000) / 1000
    configured = float(evaluation.settings["answer"]["threshold"])
    return Calibration(
        evaluation=evaluation.name,
        answerable=len(yes),
        unanswerable=len(no),
        auc=statistics.fmean(_is_above(_confidence(one), _confidence(other)) for one in yes for other in no),
        configured=_refusals(configured, test, no),
        chosen=_refusals(threshold, test, no),
        reliability=tuple(_bins(evaluation.results)),
    )


def render_threshold(calibration: Calibration, base: str | None) -> str:
    """Render a configuration file with the chosen threshold.

    What it does is a comment.

    Args:
        calibration: The calibration.
        base: Path of the file that it extends; None without one.
    """
    before, after = calibration.configured, calibration.chosen
    head = (
        f"Calibrated with {calibration.evaluation}, on half of its questions with an answer.\n"
        f"Refused of the other half {before.wrongly_refused:.2f} before, {after.wrongly_refused:.2f} with this;\n"
        f"of the questions without an answer {before.refused:.2f} before, {after.refused:.2f} with this."
    )
    values = ({"extends": base} if base is not None else {}) | nest({THRESHOLD: after.threshold})
    return "".join(f"# {line}\n" for line in head.splitlines()) + yaml.safe_dump(
        values, sort_keys=False, allow_unicode=True
    )


def _confidence(result: QuestionResult) -> float:
    return result.confidence or 0.0


def _split(results: Sequence[QuestionResult]) -> tuple[list[QuestionResult], list[QuestionResult]]:
    ordered = sorted(results, key=lambda result: hashlib.sha256(result.question_id.encode()).hexdigest())
    return ordered[::2], ordered[1::2]


def _is_above(one: float, other: float) -> float:
    return 0.5 if one == other else float(one > other)


def _refusals(threshold: float, yes: Sequence[QuestionResult], no: Sequence[QuestionResult]) -> Refusals:
    return Refusals(
        threshold=threshold,
        refused=statistics.fmean(_confidence(result) < threshold for result in no),
        wrongly_refused=statistics.fmean(_confidence(result) < threshold for result in yes),
    )


def _bins(results: Sequence[QuestionResult]) -> list[ReliabilityBin]:
    by_bin: dict[int, list[QuestionResult]] = {}
    for result in results:
        by_bin.setdefault(min(_BINS - 1, int(_confidence(result) * _BINS)), []).append(result)
    return [
        ReliabilityBin(
            low=number / _BINS,
            high=(number + 1) / _BINS,
            questions=len(members),
            confidence=statistics.fmean(map(_confidence, members)),
            answerable=statistics.fmean(bool(result.judged) for result in members),
        )
        for number, members in sorted(by_bin.items())
    ]
