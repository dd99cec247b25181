"""A report on evaluations: one HTML file that asks nothing of any network."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from kosmos_rag.errors import RequestError
from kosmos_rag.evaluation import plots
from kosmos_rag.evaluation.comparing import Difference, compare
from kosmos_rag.evaluation.records import DEGRADED, Evaluation, percentile

_SHOWN = 15
"""Questions that are listed of the most won and of the most lost."""
_FOUND = 5
"""What is shown of a ranking."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A question that two evaluations differ in."""

    question: str
    before: float
    after: float
    judged: tuple[str, ...]
    found_before: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Against:
    """One evaluation against the first."""

    evaluation: Evaluation
    differences: tuple[Difference, ...]
    changed_settings: tuple[tuple[str, str, str], ...]
    measure: str
    plot: str
    won: tuple[Change, ...]
    lost: tuple[Change, ...]


def report(evaluations: Sequence[Evaluation]) -> str:
    """Return the page: quality, time by stage, and what each evaluation wins and loses against the first.

    Raises RequestError where they did not ask the same questions, ConfigError without the extra.
    """
    from jinja2 import Environment, StrictUndefined

    if not evaluations:
        raise RequestError("nothing to report on; name an evaluation, latest")
    first, *others = evaluations
    differences = compare(first, others)
    measures = [name for name in first.measures if name != DEGRADED or any(one.measures[name] for one in evaluations)]
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    # Escaped throughout: questions and sources are others' text. Only the plots, which are drawn here, are not.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(page).render(
        evaluations=evaluations,
        measures=measures,
        quality=plots.quality(evaluations, measures),
        latency=plots.latency(evaluations),
        timings=[(one, [(stage, *_times(times)) for stage, times in one.timings().items()]) for one in evaluations],
        against=[_against(first, other, differences) for other in others],
        settings=json.dumps(first.settings, indent=1, sort_keys=True),
        worst=_worst(first, measures),
    )


def _times(times: Sequence[float]) -> tuple[float, float, float]:
    return percentile(times, 0.5), percentile(times, 0.95), percentile(times, 0.99)


def _against(first: Evaluation, other: Evaluation, differences: Sequence[Difference]) -> Against:
    own = tuple(one for one in differences if one.evaluation == other.name)
    # What is ranked by is the first measure: of a set without judged rankings, whether refusals were right.
    measure = own[0].measure
    changes = _changes(first, other, measure)
    return Against(
        evaluation=other,
        differences=own,
        changed_settings=tuple(_changed(first.settings, other.settings)),
        measure=measure,
        plot=plots.gains(first, other, measure),
        won=tuple(sorted((one for one in changes if one.after > one.before), key=_loss))[:_SHOWN],
        lost=tuple(sorted((one for one in changes if one.after < one.before), key=_loss, reverse=True))[:_SHOWN],
    )


def _loss(change: Change) -> float:
    return change.before - change.after


def _changes(first: Evaluation, other: Evaluation, measure: str) -> list[Change]:
    before = {result.question_id: result for result in first.results}
    return [
        Change(
            question=result.question,
            before=before[result.question_id].measures[measure],
            after=result.measures[measure],
            judged=tuple(result.judged),
            found_before=before[result.question_id].ranking[:_FOUND],
            found=result.ranking[:_FOUND],
        )
        for result in other.results
        if measure in result.measures and measure in before[result.question_id].measures
    ]


def _worst(evaluation: Evaluation, measures: Sequence[str]) -> list[Change]:
    """Return the questions that are answered worst, by the first measure: what to look at next."""
    changes = _changes(evaluation, evaluation, measures[0])
    return sorted(changes, key=lambda change: change.after)[:_SHOWN]


def _changed(before: Any, after: Any, key: str = "rag") -> "list[tuple[str, str, str]]":
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            found
            for name in dict.fromkeys([*before, *after])
            for found in _changed(before.get(name), after.get(name), f"{key}.{name}")
        ]
    return [] if before == after else [(key, json.dumps(before), json.dumps(after))]
