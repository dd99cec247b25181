"""Trends of stored measurements, as positions in a chart."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

_MAX_POINTS = 40
"""More measurements are merged: each point is then the worst of several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """A value at a time, with the goal of that time."""

    at: datetime
    value: float
    goal: float | None = None
    error: float = 0.0
    """Standard error; 0 where the value has none."""
    alarm: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A measurement in a chart.

    Coordinates from 0 to 100: time to the right, small values at the bottom.
    """

    at: datetime
    x: float
    y: float
    low: float
    """One standard error below; `high` is one above."""
    high: float
    alarm: bool
    text: str
    goal: str
    """Empty without a goal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """Measurements over time, the oldest first."""

    points: tuple[Point, ...]
    path: str
    goal_path: str
    """The goal over time; empty without one."""
    low: float
    """Value at the lower end of the axis."""
    high: float
    merged: int
    """Measurements of a point; it shows the worst one."""
    alarms: int
    """Measurements that are alarms."""

    @property
    def since(self) -> datetime:
        """Time of the first point."""
        return self.points[0].at

    @property
    def until(self) -> datetime:
        """Time of the last point."""
        return self.points[-1].at


def build_trend(
    measurements: Sequence[Measurement],
    *,
    low: float,
    high: float,
    higher_is_better: bool = True,
    form: str = ".3f",
) -> Trend | None:
    """Build the chart of measurements, oldest first.

    Returns None without any.

    Args:
        low: lower end of the axis, unless a value or a goal is below.
        high: upper end, unless one is above.
        higher_is_better: whether the worst of several is the lowest.
        form: format of a value.
    """
    if not measurements:
        return None
    merged = math.ceil(len(measurements) / _MAX_POINTS)
    visible = list(_worst(measurements, merged, higher_is_better=higher_is_better))
    goals = [measurement.goal for measurement in visible if measurement.goal is not None]
    low = min(
        low, math.floor(10 * min([measurement.value - measurement.error for measurement in visible] + goals)) / 10
    )
    low = max(0.0, low)
    high = max(high, math.ceil(10 * max([measurement.value for measurement in visible] + goals)) / 10)
    since, duration = visible[0].at, visible[-1].at - visible[0].at

    def x(at: datetime) -> float:
        return round(100 * (at - since) / duration, 2) if duration else 50.0

    def y(value: float) -> float:
        return round(100 * (high - min(high, max(low, value))) / (high - low), 2)

    points = tuple(
        Point(
            at=measurement.at,
            x=x(measurement.at),
            y=y(measurement.value),
            low=y(measurement.value - measurement.error),
            high=y(measurement.value + measurement.error),
            alarm=measurement.alarm,
            text=f"{measurement.value:{form}} ± {measurement.error:{form}}"
            if measurement.error
            else f"{measurement.value:{form}}",
            goal="" if measurement.goal is None else f"{measurement.goal:{form}}",
        )
        for measurement in visible
    )
    goal_points = [(x(measurement.at), y(measurement.goal)) for measurement in visible if measurement.goal is not None]
    if len(goal_points) == 1:  # of one measurement: a line over the whole chart
        goal_points = [(0.0, goal_points[0][1]), (100.0, goal_points[0][1])]
    return Trend(
        points=points,
        path=_path([(point.x, point.y) for point in points]),
        goal_path=_path(goal_points),
        low=low,
        high=high,
        merged=merged,
        alarms=sum(measurement.alarm for measurement in measurements),
    )


def _worst(measurements: Sequence[Measurement], size: int, *, higher_is_better: bool) -> Iterator[Measurement]:
    """Yield the worst of each `size` measurements, counted from the newest."""
    sign = 1 if higher_is_better else -1
    for start in range(len(measurements) % size - size if len(measurements) % size else 0, len(measurements), size):
        group = measurements[max(0, start) : start + size]
        yield min(group, key=lambda measurement: (not measurement.alarm, sign * measurement.value))


def _path(positions: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in positions) if positions else ""
