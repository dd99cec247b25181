"""Check an evaluation against the targets and alerts of the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.types import LOWER_IS_BETTER, Evaluation
from kosmos_rag.evaluation.settings import EvaluationSettings

State = Literal["reached", "below target", "alert"]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """One measure against its target and alert.

    Both are upper bounds if lower is better.
    """

    measure: str
    value: float
    target: float | None
    alert: float | None

    @property
    def state(self) -> State:
        """State of the measure."""
        if self._misses(self.alert):
            return "alert"
        return "below target" if self._misses(self.target) else "reached"

    def _misses(self, bound: float | None) -> bool:
        if bound is None:
            return False
        return self.value > bound if self.measure in LOWER_IS_BETTER else self.value < bound


def check_thresholds(
    evaluation: Evaluation, settings: EvaluationSettings, *, alerts_only: bool = False
) -> list[GateResult]:
    """Check each measure with a target or alert in the settings.

    Raises RequestError if the evaluation lacks a measure, or without bounds: such a check would always pass.

    Args:
        settings: Targets and alerts.
        alerts_only: Whether to require alerts, whatever the targets are.
    """
    names = _list_bounded_measures(settings.targets, settings.alerts)
    if not (settings.alerts if alerts_only else names):
        empty = "evaluation.alerts is" if alerts_only else "evaluation.targets and evaluation.alerts are"
        raise RequestError(f"{empty} empty; set a bound, such as R@10: 0.8")
    if missing := [name for name in names if name not in evaluation.measures]:
        raise RequestError(
            f"the evaluation {evaluation.name} has no {missing[0]}, but {', '.join(evaluation.measures)}; "
            "put it into evaluation.measures, or run with --answers, and evaluate again"
        )
    return [
        GateResult(
            measure=name,
            value=evaluation.measures[name],
            target=settings.targets.get(name),
            alert=settings.alerts.get(name),
        )
        for name in names
    ]


def _list_bounded_measures(*bounds: Mapping[str, float]) -> list[str]:
    return list(dict.fromkeys(name for mapping in bounds for name in mapping))
