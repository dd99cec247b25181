"""The plots of a report, as SVG that stands in the page itself."""

import re
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

from kosmos_rag.errors import ConfigError
from kosmos_rag.evaluation.records import Evaluation, percentile
from kosmos_rag.evaluation.significance import bootstrap_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
"""Told apart by the colour-blind. Source: Paul Tol, "Colour schemes" (2021), the bright one."""
_STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.fonttype": "none"}


def quality(evaluations: Sequence[Evaluation], measures: Sequence[str]) -> str:
    """Draw the means with their 95 % intervals, side by side."""
    figure, axes = _figure(max(6.0, 1.3 * len(measures)), 3.2)
    width = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        places, heights, below, above = [], [], [], []
        for place, measure in enumerate(measures):
            if values := list(evaluation.values(measure).values()):
                mean = evaluation.measures[measure]
                low, high = bootstrap_interval(values)
                places.append(place + (number - (len(evaluations) - 1) / 2) * width)
                heights.append(mean)
                below.append(max(0.0, mean - low))
                above.append(max(0.0, high - mean))
        axes.bar(
            places,
            heights,
            width * 0.9,
            yerr=[below, above],
            color=_colour(number),
            label=evaluation.label,
            error_kw={"elinewidth": 0.8, "ecolor": "#444444"},
        )
    axes.set_xticks(range(len(measures)), measures)
    axes.set_ylim(0, 1)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return _svg(figure)


def latency(evaluations: Sequence[Evaluation]) -> str:
    """Draw the median of each stage as a bar, and what 95 % stay below as a mark."""
    stages = list(dict.fromkeys(stage for evaluation in evaluations for stage in evaluation.timings()))
    figure, axes = _figure(6.5, 0.6 + 0.28 * len(stages) * max(1, len(evaluations) * 0.7))
    height = 0.8 / len(evaluations)
    for number, evaluation in enumerate(evaluations):
        timings = evaluation.timings()
        held = [(place, timings[stage]) for place, stage in enumerate(stages) if stage in timings]
        places = [place + (number - (len(evaluations) - 1) / 2) * height for place, _ in held]
        axes.barh(
            places,
            [percentile(times, 0.5) for _, times in held],
            height * 0.9,
            color=_colour(number),
            label=evaluation.label,
        )
        axes.plot([percentile(times, 0.95) for _, times in held], places, "|", color="#222222", markersize=9)
    axes.set_yticks(range(len(stages)), stages)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds: bar p50, mark p95")
    return _svg(figure)


def gains(baseline: Evaluation, other: Evaluation, measure: str) -> str:
    """Draw the gain of each question, the largest first."""
    before, after = baseline.values(measure), other.values(measure)
    values = sorted((after[key] - before[key] for key in before.keys() & after.keys()), reverse=True)
    figure, axes = _figure(6.5, 2.4)
    axes.bar(range(len(values)), values, 1.0, color=[_COLOURS[2] if value > 0 else _COLOURS[1] for value in values])
    axes.axhline(0, color="#444444", linewidth=0.6)
    axes.set_ylabel(f"gain in {measure}")
    axes.set_xlabel("questions, the most gained first")
    return _svg(figure)


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a report needs matplotlib: pip install 'kosmos-rag[eval]'") from error
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots()


def _svg(figure: "Figure") -> str:
    """Return the picture for the page: without the head of a file, the same whenever it is drawn."""
    import matplotlib

    out = StringIO()
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": "kosmos-rag"}):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
