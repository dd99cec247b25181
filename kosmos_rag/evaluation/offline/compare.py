"""Compare evaluations of one question set, with significance tests."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.significance import bootstrap_interval, holm, randomisation_p
from kosmos_rag.evaluation.offline.types import DEGRADED, LOWER_IS_BETTER, Evaluation

ALPHA = 0.05
"""Corrected p-value below which a difference is significant."""
_TIE = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Difference between an evaluation and the baseline in one measure."""

    measure: str
    evaluation: str
    baseline_mean: float
    mean: float
    questions: int
    """Number of questions with the measure in both evaluations."""
    low: float
    high: float
    """The 95 % interval of the mean difference, by bootstrap."""
    p: float
    """p-value of the paired randomisation test."""
    corrected_p: float
    """p-value corrected by Holm for all differences of the comparison."""
    wins: int
    losses: int

    @property
    def difference(self) -> float:
        """Difference of the means."""
        return self.mean - self.baseline_mean

    @property
    def significant(self) -> bool:
        """Whether the difference is statistically significant."""
        return self.corrected_p < ALPHA

    @property
    def worse(self) -> bool:
        """Whether the evaluation is significantly worse."""
        is_loss = self.difference > 0 if self.measure in LOWER_IS_BETTER else self.difference < 0
        return is_loss and self.significant


def compare(baseline: Evaluation, others: Sequence[Evaluation]) -> list[Difference]:
    """Compare evaluations with the baseline, measure by measure.

    Raises RequestError if their questions or judgements differ.
    """
    for other in others:
        if other.set_sha256 != baseline.set_sha256:
            raise RequestError(
                f"{other.name} asked {other.set_name!r} and {baseline.name} {baseline.set_name!r}, or their questions "
                "changed in between; only evaluations of the same questions can be compared"
            )
    differences = [
        _difference(baseline, other, measure)
        for measure in baseline.measures
        for other in others
        if measure != DEGRADED and baseline.values(measure).keys() & other.values(measure).keys()
    ]
    corrected = holm([difference.p for difference in differences])
    return [replace(difference, corrected_p=p) for difference, p in zip(differences, corrected, strict=True)]


def _difference(baseline: Evaluation, other: Evaluation, measure: str) -> Difference:
    before, after = baseline.values(measure), other.values(measure)
    both = sorted(before.keys() & after.keys())
    gains = [after[key] - before[key] for key in both]
    better = -1 if measure in LOWER_IS_BETTER else 1
    low, high = bootstrap_interval(gains)
    p = randomisation_p(gains)
    return Difference(
        measure=measure,
        evaluation=other.name,
        baseline_mean=statistics.fmean(before[key] for key in both),
        mean=statistics.fmean(after[key] for key in both),
        questions=len(both),
        low=low,
        high=high,
        p=p,
        corrected_p=p,
        wins=sum(gain * better > _TIE for gain in gains),
        losses=sum(gain * better < -_TIE for gain in gains),
    )


def list_changes(before: Evaluation, after: Evaluation) -> list[tuple[str, str, str]]:
    """Return changed settings, models, chunks and code as (key, before, after).

    Values are JSON.
    """
    return _diff(_configuration(before), _configuration(after))


def _configuration(evaluation: Evaluation) -> dict[str, Any]:
    state = {name: evaluation.index_state.get(name) for name in ("model", "language_model", "chunks")}
    return {"rag": dict(evaluation.settings), **state, "code": evaluation.code_version}


def _diff(before: Any, after: Any, key: str = "") -> list[tuple[str, str, str]]:
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            change
            for name in dict.fromkeys([*before, *after])
            for change in _diff(before.get(name), after.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if before == after else [(key, json.dumps(before), json.dumps(after))]
