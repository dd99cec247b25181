"""View models of the health page: recall of vector indexes at their tuning."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kosmos_rag.apps.http.console.trends import Measurement, Trend, build_trend
from kosmos_rag.core.types import IndexEvent, IndexInfo

_DEFAULT_AXIS_START = 0.8
"""Start of the recall axis, unless a value is below."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallChart:
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


def build_recall_rows(indexes: Sequence[IndexInfo]) -> tuple[float, list[RecallChart]]:
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
        RecallChart(
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
