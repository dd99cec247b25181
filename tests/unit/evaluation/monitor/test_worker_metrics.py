"""What a worker shows and counts of runs."""

import uuid
from datetime import UTC, datetime
from typing import Any

from kosmos_rag.core.telemetry.metrics import load_wing_metrics
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.evaluation.jobs import gauges, run_counters
from kosmos_rag.evaluation.metrics import (
    CANARY_MRR,
    CANARY_RECALL,
    RECALL_MONITOR_ALARMS,
    RECALL_MONITOR_DRIFT,
    RECALL_MONITOR_INCOMPLETE,
    RECALL_MONITOR_RECALL,
)
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState


def run(kind: MonitorKind, state: MonitorState, **figures: Any) -> MonitorRun:
    return MonitorRun(
        id=uuid.uuid4(), at=datetime.now(UTC), kind=kind, state=state, reason="", index_id=None, figures=figures,
        milliseconds=1.0,
    )  # fmt: skip


RECALL = {"ann_recall_at_10": 0.6, "incomplete_share": 0.1, "drift": 0.6, "drift_limit": 0.4, "consecutive_alarms": 2}


def test_gauges__show_the_worst_of_what_is_known() -> None:
    values = gauges(
        [
            run(MonitorKind.RECALL, MonitorState.ALARM, **RECALL),
            run(MonitorKind.QUESTIONS, MonitorState.OK, recall_at_10=0.9, mrr=0.7),
            run(MonitorKind.QUESTIONS, MonitorState.ALARM, recall_at_10=0.6, mrr=0.8),
            run(MonitorKind.ISOLATION, MonitorState.OK, leaks=0, missed=0),
        ]
    )
    assert values.pop(RECALL_MONITOR_DRIFT) > 1
    assert values == {
        RECALL_MONITOR_RECALL: 0.6, RECALL_MONITOR_INCOMPLETE: 0.1, RECALL_MONITOR_ALARMS: 2,
        CANARY_RECALL: 0.6, CANARY_MRR: 0.7,
    }  # fmt: skip


def test_gauges__show_nothing_of_what_is_not_known() -> None:
    unknown = [run(kind, MonitorState.UNKNOWN, samples=3) for kind in MonitorKind]
    assert gauges(unknown) == {}
    good = run(MonitorKind.RECALL, MonitorState.OK, ann_recall_at_10=1.0, incomplete_share=0.0, consecutive_alarms=0)
    assert RECALL_MONITOR_DRIFT not in gauges([good])


def test_counts__tell_states_steps_and_leaks() -> None:
    assert run_counters(
        [
            run(MonitorKind.RECALL, MonitorState.ALARM, **RECALL, action="search_widened"),
            run(MonitorKind.RECALL, MonitorState.UNKNOWN, samples=3),
            run(MonitorKind.QUESTIONS, MonitorState.UNKNOWN),
            run(MonitorKind.ISOLATION, MonitorState.ALARM, leaks=2, missed=0),
        ]
    ) == {
        ("kosmos_recall_monitor_runs", "alarm"): 1,
        ("kosmos_recall_monitor_runs", "unknown"): 1,
        ("kosmos_recall_monitor_repairs", "search_widened"): 1,
        ("kosmos_canary_runs", "unknown"): 1,
        ("kosmos_permission_checks", "alarm"): 1,
        ("kosmos_permission_leaks", ""): 2,
    }


def test_counters_that_alerts_rise_by__are_zero_before_the_first() -> None:
    observer = PrometheusObserver(load_wing_metrics("worker"))
    assert observer.registry.get_sample_value("kosmos_recall_monitor_repairs_total", {"action": "skipped"}) == 0
