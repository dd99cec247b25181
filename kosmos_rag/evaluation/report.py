"""A report on evaluations: one HTML file that asks nothing of any network."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation import plots
from kosmos_rag.evaluation.compare import Difference, compare, list_changes
from kosmos_rag.evaluation.types import DEGRADED, LOWER_IS_BETTER, Evaluation, QuestionResult, percentile

_SHOWN = 15
"""Questions that are listed of the most won and of the most lost."""


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
    changed: tuple[tuple[str, str, str], ...]
    """What they were of that differs, and both values."""
    measure: str | None
    """What questions are won and lost in; None where they have no measure in common."""
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
    measures = _told(evaluations)
    main = _main(first.measures)
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    # Escaped throughout: questions and sources are others' text. Only the plots, which are drawn here, are not.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(page).render(
        evaluations=evaluations,
        measures=measures,
        colours=[plots.colour(number) for number in range(len(evaluations))],
        quality=plots.quality(evaluations, measures) if measures else "",
        latency=plots.latency(evaluations),
        timings=_timings(evaluations),
        against=[_against(first, other, differences) for other in others],
        settings=json.dumps(first.settings, indent=1, sort_keys=True),
        main=main,
        worst=_worst(first, main) if main else [],
    )


def _told(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the measures that any of them has; that no stage was left out is what is expected."""
    names = dict.fromkeys(name for one in evaluations for name in one.measures)
    return [name for name in names if name != DEGRADED or any(one.measures.get(name) for one in evaluations)]


def _main(names: Iterable[str]) -> str | None:
    """Return what questions are ranked by: the first measure; without judged rankings, whether refusals were right."""
    return next((name for name in names if name not in LOWER_IS_BETTER), None)


def _timings(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[tuple[float, ...]]]]:
    """Return p50, p95 and p99 by stage, of each evaluation; nothing where one has no such stage."""
    timings = [one.timings() for one in evaluations]
    stages = dict.fromkeys(stage for times in timings for stage in times)
    return [(stage, [_percentiles(times.get(stage, ())) for times in timings]) for stage in stages]


def _percentiles(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(percentile(times, share) for share in (0.5, 0.95, 0.99)) if times else ()


def _against(first: Evaluation, other: Evaluation, differences: Sequence[Difference]) -> Against:
    own = tuple(one for one in differences if one.evaluation == other.name)
    measure = _main(one.measure for one in own)
    changes = _changes(first, other, measure) if measure else []
    return Against(
        evaluation=other,
        differences=own,
        changed=tuple(list_changes(first, other)),
        measure=measure,
        plot=plots.gains(first, other, measure) if measure else "",
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
            found_before=before[result.question_id].ranking,
            found=result.ranking,
        )
        for result in other.results
        if measure in result.measures and measure in before[result.question_id].measures
    ]


def _worst(evaluation: Evaluation, measure: str) -> list[tuple[QuestionResult, float]]:
    """Return the questions that are answered worst: what to look at next."""
    valued = [(result, result.measures[measure]) for result in evaluation.results if measure in result.measures]
    return sorted(valued, key=lambda one: one[1])[:_SHOWN]
