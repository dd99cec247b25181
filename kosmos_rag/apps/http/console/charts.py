"""What the health page draws: where durations fall, and how much of the truth an index finds, now and over time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kosmos_rag.core.types import IndexInfo, MonitorRun, MonitorState

CELL = 26
"""Width of a bucket, in units of the drawing."""
_LOWEST = 0.8
"""Where the axis of recall begins, unless something lies below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """A bucket of a histogram."""

    x: float
    width: float
    share: float
    told: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Durations:
    """How long something took, as often as it was done since the process began."""

    name: str
    count: int
    mean_ms: float
    p50_ms: float | None
    p95_ms: float | None
    """None above the last bucket."""
    cells: tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """What was measured of a vector index when it was tuned, on an axis of 0 to 100."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One run of the recall monitor, on axes of 0 to 100: time to the right, recall upwards."""

    x: float
    y: float
    low: float
    """One standard error below; `high` is one above."""
    high: float
    alarm: bool
    told: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """Recall of live questions over time, as the recall monitor measured it."""

    points: tuple[Point, ...]
    path: str
    target: float
    """Where the latest target lies, on the axis of recall."""
    lowest: float
    """Recall at the lower end of the axis."""
    since: datetime
    until: datetime


def durations(
    bounds: Sequence[float], counts: Mapping[str, tuple[Sequence[int], float]], *, axis: Sequence[float]
) -> list[Durations]:
    """Return rows of a chart, the most frequent first: `counts` has how many fell into each bucket, and their seconds.

    `bounds` are the upper bounds of the buckets in seconds; the last bucket has none. They are among those of the
    `axis`, so that several charts have one.
    """
    rows = [_durations(name, bounds, each, seconds, axis) for name, (each, seconds) in counts.items() if sum(each)]
    return sorted(rows, key=lambda row: -row.count)


def _durations(
    name: str, bounds: Sequence[float], each: Sequence[int], seconds: float, axis: Sequence[float]
) -> Durations:
    count = sum(each)
    most = max(each)
    edges = [0, *(CELL * (axis.index(bound) + 1) for bound in bounds), width_of(axis)]
    cells = tuple(
        Cell(
            x=edges[index],
            width=edges[index + 1] - edges[index] - 1,
            share=round(0.12 + 0.88 * number / most, 3),
            told=f"{_label(bounds, index)}: {number}",
        )
        for index, number in enumerate(each)
        if number
    )
    return Durations(
        name=name,
        count=count,
        mean_ms=1000 * seconds / count,
        p50_ms=_quantile(0.5, bounds, each),
        p95_ms=_quantile(0.95, bounds, each),
        cells=cells,
    )


def _label(bounds: Sequence[float], index: int) -> str:
    if index == len(bounds):
        return f"over {1000 * bounds[-1]:g} ms"
    return f"up to {1000 * bounds[index]:g} ms"


def _quantile(share: float, bounds: Sequence[float], each: Sequence[int]) -> float | None:
    """Return milliseconds by linear interpolation within the bucket, as Prometheus does; None in the last bucket."""
    wanted, seen, low = share * sum(each), 0, 0.0
    for bound, number in zip(bounds, each, strict=False):
        if number and seen + number >= wanted:
            return 1000 * (low + (bound - low) * (wanted - seen) / number)
        seen, low = seen + number, bound
    return None


def width_of(axis: Sequence[float]) -> int:
    """Return how wide a chart is."""
    return CELL * (len(axis) + 1)


def ticks(bounds: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Yield places and labels of the axis under buckets: every second bound."""
    for index, bound in enumerate(bounds):
        if index % 2:
            told = f"{bound:g} s" if bound >= 1 else f"{1000 * bound:g}"
            yield (index + 1) * CELL, told


def recalls(indexes: Sequence[IndexInfo]) -> tuple[float, list[Recall]]:
    """Return where the axis begins, and what was measured of each index that was tuned, and of the rejected one."""
    measured = [
        (name, info, health)
        for info in indexes
        for name, health in _measured(info)
        if health.get("recall_at_10") is not None
    ]
    lowest = min([_LOWEST, *(min(health["recall_at_10"], health.get("recall_at_100", 1)) for _, _, health in measured)])
    lowest = int(lowest * 10) / 10

    def x(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - lowest) / (1 - lowest), 2)

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
    return lowest, rows


def _measured(info: IndexInfo) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield info.kind, info.health
    if (rejected := info.health.get("rejected")) is not None:
        yield f"{rejected['kind']}, not chosen", rejected


def course(runs: Sequence[MonitorRun]) -> Course | None:
    """Return recall over time by runs, of which the newest is the first; None where nothing was measured."""
    measured = [run for run in reversed(runs) if "ann_recall_at_10" in run.figures]
    if not measured:
        return None
    figures = [run.figures for run in measured]
    lowest = min(
        [_LOWEST, *(min(one["ann_recall_at_10"] - one["standard_error"], one["recall_target"]) for one in figures)]
    )
    lowest = max(0, int(lowest * 10)) / 10
    since, until = measured[0].at, measured[-1].at

    def y(value: float) -> float:
        return round(100 * (1 - min(1.0, max(lowest, value))) / (1 - lowest), 2)

    points = tuple(
        Point(
            x=round(100 * (run.at - since) / (until - since), 2) if until > since else 50.0,
            y=y(one["ann_recall_at_10"]),
            low=y(one["ann_recall_at_10"] - one["standard_error"]),
            high=y(one["ann_recall_at_10"] + one["standard_error"]),
            alarm=run.state is MonitorState.ALARM,
            told=f"{one['ann_recall_at_10']:.3f} ± {one['standard_error']:.3f}",
        )
        for run, one in zip(measured, figures, strict=True)
    )
    return Course(
        points=points,
        path="M" + "L".join(f"{point.x:g} {point.y:g}" for point in points),
        target=y(figures[-1]["recall_target"]),
        lowest=lowest,
        since=since,
        until=until,
    )


def latest(runs: Sequence[MonitorRun]) -> list[MonitorRun]:
    """Return the newest run of each kind, by runs of which the newest is the first."""
    by_kind: dict[str, MonitorRun] = {}
    for run in runs:
        by_kind.setdefault(run.kind, run)
    return list(by_kind.values())
