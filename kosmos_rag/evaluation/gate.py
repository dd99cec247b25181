"""Is what was measured good enough?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kosmos_rag.core.config import EvaluationSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.types import LOWER_IS_BETTER, Evaluation

State = Literal["reached", "below target", "alert"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """One measure against what it has to reach. Of measures that are better low, both are upper bounds."""

    measure: str
    value: float
    target: float | None
    alert: float | None

    @property
    def state(self) -> State:
        """Where it stands."""
        if self._misses(self.alert):
            return "alert"
        return "below target" if self._misses(self.target) else "reached"

    def _misses(self, bound: float | None) -> bool:
        if bound is None:
            return False
        return self.value > bound if self.measure in LOWER_IS_BETTER else self.value < bound


def verdicts(evaluation: Evaluation, settings: EvaluationSettings, *, alerts_only: bool = False) -> list[Verdict]:
    """Return how each measure stands that the settings have a target or an alert for.

    Raises RequestError where the evaluation lacks one of them, or where nothing is asked for: that would always pass.
    """
    wanted = _wanted(settings.targets, settings.alerts)
    if not (settings.alerts if alerts_only else wanted):
        empty = "evaluation.alerts is" if alerts_only else "evaluation.targets and evaluation.alerts are"
        raise RequestError(f"{empty} empty; name what is to be reached, R@10: 0.8")
    if missing := [name for name in wanted if name not in evaluation.measures]:
        raise RequestError(
            f"the evaluation {evaluation.name} has no {missing[0]}, but {', '.join(evaluation.measures)}; "
            "put it into evaluation.measures, or run with --answers, and evaluate again"
        )
    return [
        Verdict(
            measure=name,
            value=evaluation.measures[name],
            target=settings.targets.get(name),
            alert=settings.alerts.get(name),
        )
        for name in wanted
    ]


def _wanted(*bounds: Mapping[str, float]) -> list[str]:
    return list(dict.fromkeys(name for given in bounds for name in given))
