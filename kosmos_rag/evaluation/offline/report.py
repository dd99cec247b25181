"""Report on evaluations: one HTML file without external resources."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.evaluation.offline import plots
from kosmos_rag.evaluation.offline.compare import Difference, compare, list_changes
from kosmos_rag.evaluation.offline.types import DEGRADED, LOWER_IS_BETTER, Evaluation, QuestionResult, percentile

_LISTED = 15
"""Number of listed questions with the largest gains, and of those with the largest losses."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedQuestion:
    """A question with different values in two evaluations."""

    question: str
    before: float
    after: float
    judged: tuple[str, ...]
    ranking_before: tuple[str, ...]
    ranking: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One evaluation compared with the first."""

    evaluation: Evaluation
    differences: tuple[Difference, ...]
    changed: tuple[tuple[str, str, str], ...]
    """Changed settings, models, chunks and code, with both values."""
    measure: str | None
    """The measure that questions are compared by; None without a common one."""
    plot: str
    won: tuple[ChangedQuestion, ...]
    lost: tuple[ChangedQuestion, ...]


def report(evaluations: Sequence[Evaluation]) -> str:
    """Return an HTML page that compares each evaluation with the first.

    It shows quality, latency by stage, the reliability of the confidence, gains and losses.

    Raises RequestError if their questions differ, ConfigError without the extra `eval`.
    """
    require_extra("eval", "a report", "jinja2")
    from jinja2 import Environment, StrictUndefined

    if not evaluations:
        raise RequestError("nothing to report on; name an evaluation, latest")
    first, *others = evaluations
    differences = compare(first, others)
    measures = _select_measures(evaluations)
    main = _main_measure(first.measures)
    page = files(__package__).joinpath("report.html").read_text(encoding="utf-8")
    # Autoescape: questions and sources are untrusted text. Only the plots, which are drawn here, are marked safe.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(page).render(
        evaluations=evaluations,
        measures=measures,
        colours=[plots.colour(number) for number in range(len(evaluations))],
        quality=plots.quality(evaluations, measures) if measures else "",
        latency=plots.latency(evaluations),
        timings=_timings(evaluations),
        reliability=plots.reliability(evaluations),
        comparisons=[_compare(first, other, differences) for other in others],
        settings=json.dumps(first.settings, indent=1, sort_keys=True),
        main=main,
        worst=_worst(first, main) if main else [],
    )


def _select_measures(evaluations: Sequence[Evaluation]) -> list[str]:
    """Return the measures of any evaluation.

    DEGRADED only if it is not 0.
    """
    names = dict.fromkeys(name for evaluation in evaluations for name in evaluation.measures)
    return [
        name for name in names if name != DEGRADED or any(evaluation.measures.get(name) for evaluation in evaluations)
    ]


def _main_measure(names: Iterable[str]) -> str | None:
    """Return the first measure for which higher is better."""
    return next((name for name in names if name not in LOWER_IS_BETTER), None)


def _timings(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[tuple[float, ...]]]]:
    """Return p50, p95 and p99 in milliseconds by stage and evaluation.

    The result is empty if it lacks the stage.
    """
    timings = [evaluation.timings() for evaluation in evaluations]
    stages = dict.fromkeys(stage for times in timings for stage in times)
    return [(stage, [_percentiles(times.get(stage, ())) for times in timings]) for stage in stages]


def _percentiles(times: Sequence[float]) -> tuple[float, ...]:
    return tuple(percentile(times, share) for share in (0.5, 0.95, 0.99)) if times else ()


def _compare(first: Evaluation, other: Evaluation, differences: Sequence[Difference]) -> Comparison:
    differences_of_other = tuple(difference for difference in differences if difference.evaluation == other.name)
    measure = _main_measure(difference.measure for difference in differences_of_other)
    changes = _changes(first, other, measure) if measure else []
    wins = (change for change in changes if change.after > change.before)
    losses = (change for change in changes if change.after < change.before)
    return Comparison(
        evaluation=other,
        differences=differences_of_other,
        changed=tuple(list_changes(first, other)),
        measure=measure,
        plot=plots.gains(first, other, measure) if measure else "",
        won=tuple(sorted(wins, key=_loss))[:_LISTED],
        lost=tuple(sorted(losses, key=_loss, reverse=True))[:_LISTED],
    )


def _loss(change: ChangedQuestion) -> float:
    return change.before - change.after


def _changes(first: Evaluation, other: Evaluation, measure: str) -> list[ChangedQuestion]:
    before = {result.question_id: result for result in first.results}
    return [
        ChangedQuestion(
            question=result.question,
            before=before[result.question_id].measures[measure],
            after=result.measures[measure],
            judged=tuple(result.judged),
            ranking_before=before[result.question_id].ranking,
            ranking=result.ranking,
        )
        for result in other.results
        if measure in result.measures and measure in before[result.question_id].measures
    ]


def _worst(evaluation: Evaluation, measure: str) -> list[tuple[QuestionResult, float]]:
    """Return the questions with the lowest values."""
    pairs = [(result, result.measures[measure]) for result in evaluation.results if measure in result.measures]
    return sorted(pairs, key=lambda entry: entry[1])[:_LISTED]
