"""Verdicts on the measurements of a run.

Too few measurements never raise an alarm.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kosmos_rag.evaluation.monitor.recall import LiveRecall
from kosmos_rag.evaluation.monitor.records import MonitorState

_ALPHA = 0.001
"""Probability of a false drift signal in one round over all indexes: every ten minutes, one a week."""

MIN_SAMPLES = 30
MIN_QUESTIONS = 10
_STANDARD_ERRORS = 2.0
"""How many standard errors recall must lie below the target to raise an alarm."""
_NAMED_LABELS = 3
_RECALL, _MRR = "R@10", "RR@10"
MEASURES = (_RECALL, _MRR)


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorVerdict:
    """A state with its reason and the figures behind it."""

    state: MonitorState
    reason: str
    figures: Mapping[str, Any] = field(default_factory=dict)


def ks_distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sample Kolmogorov-Smirnov distance."""
    samples = np.sort(first), np.sort(second)
    values = np.concatenate(samples)
    cumulative = [np.searchsorted(sample, values, side="right") / len(sample) for sample in samples]
    return float(np.max(np.abs(cumulative[0] - cumulative[1])))


def ks_critical_distance(first: int, second: int, *, comparisons: int = 1) -> float:
    """Return the critical distance of the Kolmogorov-Smirnov test at p = 0.001.

    Source: Smirnov, "Table for estimating the goodness of fit of empirical distributions" (1948), by the first term of
    its series.

    Args:
        first: Size of one sample.
        second: Size of the other.
        comparisons: Number of pairs compared in one round; the probability is for any of them (Bonferroni).
    """
    return math.sqrt(-math.log(_ALPHA / max(1, comparisons) / 2) / 2) * math.sqrt((first + second) / (first * second))


def insufficient_samples(samples: int) -> MonitorVerdict:
    """Return the verdict on a number of samples below MIN_SAMPLES."""
    return MonitorVerdict(
        state=MonitorState.UNKNOWN, reason=f"{samples} samples, {MIN_SAMPLES} are needed", figures={"samples": samples}
    )


def judge_recall(live: LiveRecall, baseline: Sequence[float], target: float, *, indexes: int = 1) -> MonitorVerdict:
    """Judge the recall and the score drift of live samples.

    Args:
        live: The measurement.
        baseline: Best scores of the first run since the last build or tuning; empty if there was none.
        target: `indexes.recall_target`.
        indexes: Number of monitored indexes, for the Bonferroni correction of the drift limit.
    """
    figures: dict[str, Any] = {"samples": live.samples, "timed_out": live.timed_out}
    if live.recall is None or live.samples < MIN_SAMPLES:
        reason = insufficient_samples(live.samples).reason + (
            f"; {live.timed_out} took too long" if live.timed_out else ""
        )
        return MonitorVerdict(state=MonitorState.UNKNOWN, reason=reason, figures=figures)
    recall, standard_error = live.recall.recall_at_10, live.recall.standard_error
    figures |= {
        "ann_recall_at_10": round(recall, 4),
        "standard_error": round(standard_error, 4),
        "ann_recall_at_100": round(live.recall.recall_at_100, 4),
        "recall_target": target,
        "incomplete_share": round(live.incomplete / live.samples, 4),
        "p50_ms": round(live.recall.p50_ms, 2),
    }
    reason = f"recall@10 is {recall:.3f} ± {standard_error:.3f}, the target is {target}"
    if len(baseline) >= MIN_SAMPLES and len(live.scores) >= MIN_SAMPLES:
        figures["drift"] = round(ks_distance(baseline, live.scores), 4)
        limit = ks_critical_distance(len(baseline), len(live.scores), comparisons=indexes)
        figures["drift_limit"] = round(limit, 4)
        if figures["drift"] > figures["drift_limit"]:
            reason += "; the best scores have drifted since the last build or tuning"
    is_low = recall + _STANDARD_ERRORS * standard_error < target
    return MonitorVerdict(state=MonitorState.ALARM if is_low else MonitorState.OK, reason=reason, figures=figures)


def judge_answers(measures: Mapping[str, float], questions: int, alerts: Mapping[str, float]) -> MonitorVerdict:
    """Judge the measures of questions with known answers.

    Args:
        measures: Mean of each measure.
        alerts: `evaluation.alerts`: lower bound of each measure.
    """
    figures = {"questions": questions, "recall_at_10": measures.get(_RECALL), "mrr": measures.get(_MRR)}
    if questions < MIN_QUESTIONS:
        reason = f"{questions} questions with an answer, {MIN_QUESTIONS} are needed"
        return MonitorVerdict(state=MonitorState.UNKNOWN, reason=reason, figures={"questions": questions})
    is_low = any(measures[name] < alerts.get(name, 0.0) for name in MEASURES)
    reason = ", ".join(f"{name} {measures[name]:.3f} (alert below {alerts.get(name, 0.0)})" for name in MEASURES)
    return MonitorVerdict(state=MonitorState.ALARM if is_low else MonitorState.OK, reason=reason, figures=figures)


def add_stale_labels(verdict: MonitorVerdict, labels: Sequence[str]) -> MonitorVerdict:
    """Add the labels that no longer describe the corpus to a verdict on known answers.

    They do not change its state: the figures are of the other labels.

    Args:
        labels: What is wrong with each; the reason names the first three.
    """
    figures = {**verdict.figures, "stale_labels": len(labels)}
    reason = verdict.reason
    if labels:
        more = f" and {len(labels) - _NAMED_LABELS} more" if len(labels) > _NAMED_LABELS else ""
        reason += f"; labels that do not describe the documents: {', '.join(labels[:_NAMED_LABELS])}{more}"
    return replace(verdict, reason=reason, figures=figures)


def judge_isolation(leaks: Sequence[str], missed: Sequence[str]) -> MonitorVerdict:
    """Judge the isolation canary.

    A leaked secret is an alarm, an own secret that was missed is unknown.
    """
    figures = {"leaks": len(leaks), "missed": len(missed)}
    if leaks:
        return MonitorVerdict(state=MonitorState.ALARM, reason="; ".join(leaks), figures=figures)
    if missed:
        return MonitorVerdict(state=MonitorState.UNKNOWN, reason="; ".join(missed), figures=figures)
    return MonitorVerdict(state=MonitorState.OK, reason="no reader found a secret of others", figures=figures)
