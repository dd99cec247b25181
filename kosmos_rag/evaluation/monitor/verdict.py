"""What the figures of a run come to. No alarm is raised by too few of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kosmos_rag.core.types import MonitorState
from kosmos_rag.evaluation.monitor import verdict as drift
from kosmos_rag.evaluation.monitor.recall import Remeasured

_ALPHA = 0.001
"""Chance of an alarm where nothing has changed, in a round over all indexes: every ten minutes, one a week."""


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest difference of the shares of two samples that lie below a value."""
    one, other = np.sort(first), np.sort(second)
    values = np.concatenate([one, other])
    shares = [np.searchsorted(sample, values, side="right") / len(sample) for sample in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def limit(first: int, second: int, *, among: int = 1) -> float:
    """Return the distance that two samples of one distribution, of so many values, hardly ever exceed.

    Where so many pairs are compared in a round, hardly ever any of them (Bonferroni).

    Source: Smirnov, "Table for estimating the goodness of fit of empirical distributions" (1948), by the first term of
    its series.
    """
    return math.sqrt(-math.log(_ALPHA / max(1, among) / 2) / 2) * math.sqrt((first + second) / (first * second))


MIN_SAMPLES = 30
MIN_QUESTIONS = 10
_ERRORS = 2.0
"""Standard errors below the target from which on it is not chance."""
_RECALL, _MRR = "R@10", "RR@10"
MEASURES = (_RECALL, _MRR)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A state, why, and what it goes by."""

    state: MonitorState
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def too_few(samples: int) -> Verdict:
    """Return the verdict on samples that are not worth to be searched yet."""
    return Verdict(
        state=MonitorState.UNKNOWN, reason=f"{samples} samples, {MIN_SAMPLES} are needed", figures={"samples": samples}
    )


def judged_recall(seen: Remeasured, before: Sequence[float], target: float, *, indexes: int = 1) -> Verdict:
    """Judge samples that were searched again; `before` are their best scores at the last build or tuning, if known.

    `indexes` are all that are watched: the drift of one is not to be told because there are many.
    """
    if seen.recall is None or seen.samples < MIN_SAMPLES:
        reason = too_few(seen.samples).reason + (f"; {seen.given_up} took too long" if seen.given_up else "")
        return Verdict(
            state=MonitorState.UNKNOWN, reason=reason, figures={"samples": seen.samples, "given_up": seen.given_up}
        )
    recall, error = seen.recall.recall_at_10, seen.recall.error
    figures: dict[str, Any] = {
        "samples": seen.samples,
        "given_up": seen.given_up,
        "ann_recall_at_10": round(recall, 4),
        "error": round(error, 4),
        "ann_recall_at_100": round(seen.recall.recall_at_100, 4),
        "recall_target": target,
        "short_of_k": round(seen.short / seen.samples, 4),
        "p50_ms": round(seen.recall.p50_ms, 2),
    }
    reason = f"{recall:.3f} ± {error:.3f} of the ten nearest are found, the target is {target}"
    if len(before) >= MIN_SAMPLES and len(seen.scores) >= MIN_SAMPLES:
        figures["drift"] = round(drift.distance(before, seen.scores), 4)
        figures["drift_limit"] = round(drift.limit(len(before), len(seen.scores), among=indexes), 4)
        if figures["drift"] > figures["drift_limit"]:
            reason += "; the best scores are others than at the last build or tuning"
    low = recall + _ERRORS * error < target
    return Verdict(state=MonitorState.ALARM if low else MonitorState.OK, reason=reason, figures=figures)


def judged_answers(measures: Mapping[str, float], questions: int, alerts: Mapping[str, float]) -> Verdict:
    """Judge questions with known answers by `evaluation.alerts`."""
    figures = {"questions": questions, "recall_at_10": measures.get(_RECALL), "mrr": measures.get(_MRR)}
    if questions < MIN_QUESTIONS:
        reason = f"{questions} questions with an answer, {MIN_QUESTIONS} are needed"
        return Verdict(state=MonitorState.UNKNOWN, reason=reason, figures={"questions": questions})
    low = [name for name in MEASURES if measures[name] < alerts.get(name, 0.0)]
    reason = ", ".join(f"{name} {measures[name]:.3f} (alert below {alerts.get(name, 0.0)})" for name in MEASURES)
    return Verdict(state=MonitorState.ALARM if low else MonitorState.OK, reason=reason, figures=figures)


def judged_permission(leaks: Sequence[str], missed: Sequence[str]) -> Verdict:
    """Judge what readers found of secrets: of others', and of their own that they should find."""
    figures = {"leaks": len(leaks), "missed": len(missed)}
    if leaks:
        return Verdict(state=MonitorState.ALARM, reason="; ".join(leaks), figures=figures)
    if missed:
        return Verdict(state=MonitorState.UNKNOWN, reason="; ".join(missed), figures=figures)
    return Verdict(state=MonitorState.OK, reason="no reader found a secret of others", figures=figures)
