"""The plots of a report, as inline SVG."""

import re
from collections.abc import Callable, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.extras import require_extra
from kosmos_rag.evaluation.offline.calibration import list_answered_questions, reliability_bins
from kosmos_rag.evaluation.offline.significance import bootstrap_interval
from kosmos_rag.evaluation.offline.types import Evaluation, percentile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Colour-blind safe. Source: Paul Tol, "Colour schemes" (2021), scheme "bright"."""
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "kosmos-rag",
}


def quality(evaluations: Sequence[Evaluation], measures: Sequence[str]) -> str:
    """Plot the means of each measure with 95 % intervals."""

    def draw(axes: "Axes") -> None:
        width = 0.8 / len(evaluations)
        for number, evaluation in enumerate(evaluations):
            offset = (number - (len(evaluations) - 1) / 2) * width
            _bars(axes, evaluation, measures, offset, width * 0.9, colour(number))
        axes.set_xticks(range(len(measures)), measures)
        axes.set_ylim(0, 1)

    return _render(draw, width=max(6.5, 1.3 * len(measures)), height=2.8)


def _bars(
    axes: "Axes", evaluation: Evaluation, measures: Sequence[str], offset: float, width: float, shade: str
) -> None:
    measured = [(position, list(evaluation.values(measure).values())) for position, measure in enumerate(measures)]
    measured = [(position, values) for position, values in measured if values]
    means = [evaluation.measures[measures[position]] for position, _ in measured]
    intervals = [bootstrap_interval(values) for _, values in measured]
    axes.bar(
        [position + offset for position, _ in measured],
        means,
        width,
        yerr=[
            [max(0.0, mean - low) for mean, (low, _) in zip(means, intervals, strict=True)],
            [max(0.0, high - mean) for mean, (_, high) in zip(means, intervals, strict=True)],
        ],
        color=shade,
        error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
    )


def latency(evaluations: Sequence[Evaluation]) -> str:
    """Plot the latency of each stage: p50 and p95."""
    stages = list(dict.fromkeys(stage for evaluation in evaluations for stage in evaluation.timings()))

    def draw(axes: "Axes") -> None:
        height = 0.8 / len(evaluations)
        for number, evaluation in enumerate(evaluations):
            timings = evaluation.timings()
            measured = [(position, timings[stage]) for position, stage in enumerate(stages) if stage in timings]
            positions = [position + (number - (len(evaluations) - 1) / 2) * height for position, _ in measured]
            medians = [percentile(times, 0.5) for _, times in measured]
            axes.barh(positions, medians, height * 0.9, color=colour(number))
            axes.plot([percentile(times, 0.95) for _, times in measured], positions, "|", color="#222222", markersize=9)
        axes.set_yticks(range(len(stages)), stages)
        axes.invert_yaxis()
        axes.set_xlabel("milliseconds: bar p50, mark p95")

    return _render(draw, width=6.5, height=0.6 + 0.28 * len(stages) * max(1, len(evaluations) * 0.7))


def reliability(evaluations: Sequence[Evaluation]) -> str:
    """Plot the share of questions with an answer by confidence.

    The result is empty without answers.
    """
    answered = [(number, evaluation) for number, evaluation in enumerate(evaluations) if evaluation.answered]
    if not answered:
        return ""

    def draw(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], color="#bbbbbb", linewidth=0.8)
        for number, evaluation in answered:
            bins = reliability_bins(list_answered_questions(evaluation))
            confidences, shares = [bucket.confidence for bucket in bins], [bucket.answerable for bucket in bins]
            axes.plot(confidences, shares, color=colour(number), linewidth=1)
            sizes = [8 + 120 * bucket.questions / evaluation.questions for bucket in bins]
            axes.scatter(confidences, shares, sizes, color=colour(number))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("mean confidence; the size of a point is the number of questions")
        axes.set_ylabel("have an answer")

    return _render(draw, width=6.5, height=3.2)


def gains(baseline: Evaluation, other: Evaluation, measure: str) -> str:
    """Plot the gain of each question, the largest first, as SVG.

    Args:
        baseline: evaluation before the change.
        other: evaluation after it; questions of both are compared.
        measure: name of the measure, `nDCG@10`.
    """
    before, after = baseline.values(measure), other.values(measure)
    values = sorted((after[key] - before[key] for key in before.keys() & after.keys()), reverse=True)

    def draw(axes: "Axes") -> None:
        axes.bar(range(len(values)), values, 1.0, color=[_COLOURS[2] if value > 0 else _COLOURS[1] for value in values])
        axes.axhline(0, color="#444444", linewidth=0.6)
        axes.set_ylabel(f"gain in {measure}")
        axes.set_xlabel("questions, the most gained first")

    return _render(draw, width=6.5, height=2.4)


def colour(number: int) -> str:
    """Return the colour of the evaluation of this number."""
    return _COLOURS[number % len(_COLOURS)]


def _render(draw: "Callable[[Axes], None]", *, width: float, height: float) -> str:
    """Return SVG without file header and metadata.

    Equal data gives equal text.
    """
    require_extra("eval", "a report", "matplotlib")
    import matplotlib
    from matplotlib.figure import Figure

    out = StringIO()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.subplots())
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
