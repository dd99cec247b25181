"""Page of the console for stored evaluations, and the comparison of two."""

from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.http.console.pages import PageRoute, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleAdministrator
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.evaluation.offline.compare import Difference, compare, list_changes
from kosmos_rag.evaluation.offline.store import Evaluations
from kosmos_rag.evaluation.offline.types import LOWER_IS_BETTER, Evaluation

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_EVALUATIONS = 50
_QUESTIONS = 20
"""Questions on each side of a comparison."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionChange:
    """The measure of one question in two evaluations."""

    question: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineComparison:
    """An evaluation compared with a baseline, as the page shows it."""

    baseline: Evaluation
    other: Evaluation
    differences: tuple[Difference, ...]
    changes: tuple[tuple[str, str, str], ...]
    """Setting, its value in the baseline, its value in the other."""
    measure: str
    """The measure of `wins` and `losses`."""
    wins: tuple[QuestionChange, ...]
    losses: tuple[QuestionChange, ...]


@router.get("/evaluations")
async def evaluations(
    request: Request,
    caller: ConsoleAdministrator,
    baseline: str | None = None,
    other: str | None = None,
    measure: str | None = None,
) -> Response:
    """List the evaluations of the tenant, and compare two.

    Args:
        baseline: the beginning of the id of the first evaluation of a comparison.
        other: that of the second.
        measure: the measure whose questions are listed; None for the first one.
    """
    tenant = caller.tenant()

    def read() -> tuple[list[Evaluation] | None, BaselineComparison | None]:
        try:
            store = Evaluations(tenant)
            evaluations = store.recent(_EVALUATIONS)
        except ConfigError:
            return None, None  # the service may have no credentials of the worker role
        if not (baseline and other):
            return evaluations, None
        return evaluations, build_comparison(store.get(baseline), store.get(other), measure)

    evaluations, comparison = await caller.run(read)
    measures = list(dict.fromkeys(name for evaluation in evaluations or () for name in evaluation.measures))
    return render_page(
        request, "evaluations.html", evaluations=evaluations, measures=measures[:4], comparison=comparison
    )


def build_comparison(baseline: Evaluation, other: Evaluation, measure: str | None) -> BaselineComparison:
    """Compare two evaluations, and list the questions that changed most.

    Raises RequestError if their questions differ.

    Args:
        baseline: the first evaluation, with its results.
        other: the second one, with its results.
        measure: the measure whose questions are listed; None, or an unknown one, for the first.
    """
    differences = compare(baseline, [other])
    names = [difference.measure for difference in differences]
    chosen = measure if measure in names else next(iter(names), "")
    better = -1 if chosen in LOWER_IS_BETTER else 1
    before, after = baseline.values(chosen), other.values(chosen)
    questions = {result.question_id: result.question for result in other.results}
    changed = sorted(
        (
            QuestionChange(question=questions[key], before=before[key], after=after[key])
            for key in before.keys() & after.keys()
            if before[key] != after[key]
        ),
        key=lambda change: ((change.before - change.after) * better, change.question),
    )
    wins = [change for change in changed if (change.after - change.before) * better > 0]
    losses = [change for change in reversed(changed) if (change.after - change.before) * better < 0]
    return BaselineComparison(
        baseline=baseline,
        other=other,
        differences=tuple(differences),
        changes=tuple(list_changes(baseline, other)),
        measure=chosen,
        wins=tuple(wins[:_QUESTIONS]),
        losses=tuple(losses[:_QUESTIONS]),
    )
