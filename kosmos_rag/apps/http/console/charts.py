"""View models of the health page.

They are histograms of durations, and recall of vector indexes at their tuning.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kosmos_rag.apps.http.console.trends import Measurement, Trend, build_trend
from kosmos_rag.core.types import IndexEvent, IndexInfo

CELL_WIDTH = 26
"""Width of a bucket, in units of the drawing."""
STAGE_NAMES = {
    "total": "the whole search",
    "cache": "take a result from the cache",
    "expand": "rewrite the question",
    "embed": "embed the question",
    "plan": "choose the plan",
    "dense": "search vectors",
    "lexical": "search words",
    "fuse": "fuse both rankings",
    "prf": "add words of the best passages",
    "fetch": "read passages",
    "rerank": "rerank",
    "signals": "apply signals",
    "context": "assemble the context",
}
"""What each stage of a search does."""
_DEFAULT_AXIS_START = 0.8
"""Start of the recall axis, unless a value is below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A bucket of a histogram."""

    x: float
    width: float
    share: float
    tooltip: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """Histogram of durations since the start of the process."""

    name: str
    count: int
    mean_ms: float
    p50_ms: float | None
    p95_ms: float | None
    """None in the last bucket, which has no upper bound."""
    p99_ms: float | None
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """Recall of a vector index at its tuning.

    The x coordinates are from 0 to 100.
    """

    name: str
    at_10: float
    at_100: float | None
    target: float | None
    x_10: float
    x_100: float | None
    x_target: float | None
    p50_ms: float
    exact_p50_ms: float | None
    checked: IndexInfo


def build_histograms(
    bounds: Sequence[float], counts: Mapping[str, tuple[Sequence[int], float]], *, axis: Sequence[float]
) -> list[Histogram]:
    """Build histograms, the most frequent first.

    Args:
        bounds: upper bounds of the buckets in seconds; the last bucket has none. A subset of `axis`.
        counts: counts of the buckets and sum of all values in seconds, by name.
        axis: bounds of the axis, shared by several charts.
    """
    rows = [
        _histogram(name, bounds, bucket_counts, seconds, axis)
        for name, (bucket_counts, seconds) in counts.items()
        if sum(bucket_counts)
    ]
    return sorted(rows, key=lambda row: -row.count)


def _histogram(
    name: str, bounds: Sequence[float], bucket_counts: Sequence[int], seconds: float, axis: Sequence[float]
) -> Histogram:
    count = sum(bucket_counts)
    max_count = max(bucket_counts)
    edges = [0, *(CELL_WIDTH * (axis.index(bound) + 1) for bound in bounds), chart_width(axis)]
    cells = tuple(
        Cell(
            x=edges[index],
            width=edges[index + 1] - edges[index] - 1,
            share=round(0.12 + 0.88 * bucket_count / max_count, 3),
            tooltip=f"{_label(bounds, index)}: {bucket_count}",
        )
        for index, bucket_count in enumerate(bucket_counts)
        if bucket_count
    )
    return Histogram(
        name=name,
        count=count,
        mean_ms=1000 * seconds / count,
        p50_ms=_quantile(0.5, bounds, bucket_counts),
        p95_ms=_quantile(0.95, bounds, bucket_counts),
        p99_ms=_quantile(0.99, bounds, bucket_counts),
        cells=cells,
    )


def _label(bounds: Sequence[float], index: int) -> str:
    if index == len(bounds):
        return f"over {1000 * bounds[-1]:g} ms"
    return f"up to {1000 * bounds[index]:g} ms"


def _quantile(share: float, bounds: Sequence[float], bucket_counts: Sequence[int]) -> float | None:
    """Return milliseconds by linear interpolation within the bucket.

    As Prometheus does. None in the last bucket.
    """
    target_rank, cumulative, low = share * sum(bucket_counts), 0, 0.0
    for bound, bucket_count in zip(bounds, bucket_counts, strict=False):
        if bucket_count and cumulative + bucket_count >= target_rank:
            return 1000 * (low + (bound - low) * (target_rank - cumulative) / bucket_count)
        cumulative, low = cumulative + bucket_count, bound
    return None


def chart_width(axis: Sequence[float]) -> int:
    """Return the width of a chart."""
    return CELL_WIDTH * (len(axis) + 1)


def axis_ticks(bounds: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Yield x coordinate and label of every second bound."""
    for index, bound in enumerate(bounds):
        if index % 2:
            label = f"{bound:g} s" if bound >= 1 else f"{1000 * bound:g}"
            yield (index + 1) * CELL_WIDTH, label


def build_recall_rows(indexes: Sequence[IndexInfo]) -> tuple[float, list[Recall]]:
    """Return the start of the axis, and the rows of recall.

    Each tuned index has a row, and the rejected candidate.
    """
    measured = [
        (name, info, health)
        for info in indexes
        for name, health in _health_records(info)
        if health.get("recall_at_10") is not None
    ]
    axis_start = min(
        [
            _DEFAULT_AXIS_START,
            *(min(health["recall_at_10"], health.get("recall_at_100", 1)) for _, _, health in measured),
        ]
    )
    axis_start = int(axis_start * 10) / 10

    def x(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - axis_start) / (1 - axis_start), 2)

    rows = [
        Recall(
            name=name,
            at_10=health["recall_at_10"],
            at_100=health.get("recall_at_100"),
            target=health.get("recall_target"),
            x_10=x(health["recall_at_10"]) or 0.0,
            x_100=x(health.get("recall_at_100")),
            x_target=x(health.get("recall_target")),
            p50_ms=health["p50_ms"],
            exact_p50_ms=health.get("exact_p50_ms"),
            checked=info,
        )
        for name, info, health in measured
    ]
    return axis_start, rows


def build_tuning_trend(events: Sequence[IndexEvent]) -> Trend | None:
    """Build the recall of each build and tuning of a vector index.

    Returns None with fewer than two: the present one has a row.

    Args:
        events: the log of the indexes, newest first.
    """
    measured = [
        Measurement(
            at=event.at,
            value=event.after["recall_at_10"],
            goal=target,
            alarm=target is not None and event.after["recall_at_10"] < target,
        )
        for event in reversed(events)
        if event.after.get("recall_at_10") is not None
        for target in [event.after.get("recall_target")]
    ]
    return build_trend(measured, low=_DEFAULT_AXIS_START, high=1.0) if len(measured) > 1 else None


def _health_records(info: IndexInfo) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield info.kind, info.health
    if (rejected := info.health.get("rejected")) is not None:
        yield f"{rejected['kind']}, not chosen", rejected
