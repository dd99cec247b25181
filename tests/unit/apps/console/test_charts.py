"""What the health page draws."""

import math
import uuid
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.apps.http.console.charts import build_recall_rows, build_tuning_trend
from kosmos_rag.core.types import IndexEvent, IndexInfo


def _index(**health: Any) -> IndexInfo:
    return IndexInfo(
        kind="ivfflat",
        state="ready",
        collection=None,
        rows=1,
        rows_now=1,
        bytes=0,
        settings={},
        health=health,
        checked_at=None,
        due=None,
    )


def test_recalls__of_the_index_and_the_rejected_one() -> None:
    rejected = {"kind": "hnsw", "recall_at_10": 0.9, "recall_at_100": 0.88, "p50_ms": 2.0}
    axis_start, rows = build_recall_rows(
        [_index(), _index(recall_at_10=1.0, recall_at_100=0.95, recall_target=0.9, p50_ms=4.0, rejected=rejected)]
    )
    assert axis_start == 0.8
    assert [row.name for row in rows] == ["ivfflat", "hnsw, not chosen"]
    assert [row.x_10 for row in rows] == [100, 50]
    assert rows[0].x_target == 50
    assert rows[1].x_target is None


def test_tuning__is_drawn_from_the_log_of_the_indexes() -> None:
    def event(day: int, action: str, **after: Any) -> IndexEvent:
        at = datetime(2026, 11, day, tzinfo=UTC)
        return IndexEvent(at=at, index_id=uuid.uuid4(), action=action, reason="", before={}, after=after)

    first = event(1, "rebuilt", recall_at_10=0.99, recall_target=0.95)
    newest_first = [event(9, "tuned", recall_at_10=0.9, recall_target=0.95), event(5, "dropped"), first]
    trend = build_tuning_trend(newest_first)
    assert trend is not None
    assert [(point.text, point.goal, point.alarm) for point in trend.points] == [
        ("0.990", "0.950", False),
        ("0.900", "0.950", True),
    ]
    assert build_tuning_trend([first]) is None


def test_recalls__begin_below_what_is_lowest() -> None:
    axis_start, (row,) = build_recall_rows([_index(recall_at_10=0.45, recall_at_100=0.4, p50_ms=1.0)])
    assert axis_start == 0.4
    assert math.isclose(row.x_10, 100 * 0.05 / 0.6, abs_tol=0.01)
