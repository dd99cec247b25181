"""What the page Monitor draws, and which verdicts are alerts."""

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from kosmos_rag.apps.http.console.trends import Measurement, build_trend
from kosmos_rag.evaluation.experiments.report import build_report
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.pages.monitoring import (
    build_answer_measures,
    build_experiment_view,
    build_isolation_measure,
    build_recall_measures,
    list_alerts,
)
from tests.unit.evaluation.experiments.compared import PAIR, SHADOW

START = datetime(2026, 11, 1, tzinfo=UTC)
OK, ALARM, UNKNOWN = MonitorState.OK, MonitorState.ALARM, MonitorState.UNKNOWN
KNOWN: dict[str, Any] = {"set": "leave", "collection": None}


def _run(
    hours: int, state: MonitorState = OK, kind: MonitorKind = MonitorKind.RECALL, reason: str = "why", **figures: Any
) -> MonitorRun:
    return MonitorRun(
        id=uuid.uuid4(),
        at=START + timedelta(hours=hours),
        kind=kind,
        state=state,
        reason=reason,
        index_id=None,
        figures=figures,
        milliseconds=1.0,
    )


def _recall(hours: int, value: float, state: MonitorState = OK, **figures: Any) -> MonitorRun:
    return _run(hours, state, ann_recall_at_10=value, standard_error=0.02, recall_target=0.9, **figures)


def _series(*values: float) -> list[Measurement]:
    return [Measurement(at=START + timedelta(hours=hour), value=value) for hour, value in enumerate(values)]


def test_trend__goes_from_the_first_measurement_to_the_last() -> None:
    low = Measurement(at=START + timedelta(hours=10), value=0.8, goal=0.95, error=0.1, alarm=True)
    fine = Measurement(at=START, value=0.99, goal=0.9, error=0.02)
    trend = build_trend([fine, Measurement(at=START + timedelta(hours=2), value=1.0, goal=0.9), low], low=0.8, high=1.0)
    assert trend is not None
    assert (trend.low, trend.since, trend.until, trend.alarms) == (0.7, fine.at, low.at, 1)
    assert [point.x for point in trend.points] == [0, 20, 100]
    assert [point.y for point in trend.points] == [3.33, 0, 66.67]
    assert (trend.points[0].high, trend.points[2].low) == (0, 100), "an error ends at the axis"
    assert trend.goal_path == "M0 33.33L20 33.33L100 16.67", "the goal of each time"
    assert trend.points[2].text == "0.800 ± 0.100"


def test_trend__of_one_measurement_is_in_the_middle_and_of_none_is_not_drawn() -> None:
    trend = build_trend([Measurement(at=START, value=0.97, goal=0.95)], low=0.8, high=1.0)
    assert trend is not None
    assert [point.x for point in trend.points] == [50]
    assert trend.goal_path == "M0 25L100 25"
    assert build_trend([], low=0, high=1) is None


def test_trend__of_many_measurements_keeps_the_worst() -> None:
    values = [1.0] * 200
    values[57], values[199] = 0.2, 0.4
    trend = build_trend(_series(*values), low=0.8, high=1.0)
    assert trend is not None
    assert (trend.merged, len(trend.points)) == (5, 40)
    assert sorted(point.text for point in trend.points)[:3] == ["0.200", "0.400", "1.000"]
    drift = build_trend(_series(*[0.1] * 60, 0.9), low=0, high=0.1, higher_is_better=False)
    assert drift is not None
    assert (drift.points[-1].text, drift.high) == ("0.900", 0.9)


def test_recall__without_samples_keeps_the_last_value_and_says_why() -> None:
    recall, drift = build_recall_measures(
        [
            _run(3, UNKNOWN, reason="3 samples, 30 are needed", samples=3),
            _recall(2, 0.97, drift=0.5, drift_limit=0.4),
            _recall(1, 0.99),
        ]
    )
    assert (recall.value, recall.goal, recall.state) == ("0.970", "at least 0.9", UNKNOWN)
    assert recall.reason == "3 samples, 30 are needed"
    assert recall.last_run == START + timedelta(hours=3)
    assert recall.trend is not None
    assert len(recall.trend.points) == 2
    assert (drift.value, drift.state) == ("0.500", ALARM)
    assert build_recall_measures([]) == []
    (only,) = build_recall_measures([_run(0, UNKNOWN, samples=0)])
    assert (only.value, only.trend) == ("", None)


def test_known_answers__are_measured_by_question_set() -> None:
    good: dict[str, Any] = {"questions": 12, "recall_at_10": 0.9, "mrr": 0.4}
    measures = build_answer_measures(
        [
            _run(2, ALARM, MonitorKind.QUESTIONS, **KNOWN, **good),
            _run(1, UNKNOWN, MonitorKind.QUESTIONS, set="other", collection="wiki"),
        ],
        {"R@10": 0.7, "RR@10": 0.5},
    )
    assert [(item.name, item.value, item.state) for item in measures] == [
        ("Recall@10 of leave", "0.900", OK),
        ("Mean reciprocal rank of leave", "0.400", ALARM),
        ("Recall@10 of other (wiki)", "", UNKNOWN),
        ("Mean reciprocal rank of other (wiki)", "", UNKNOWN),
    ]


def test_isolation__counts_leaks_and_keeps_the_reason_of_an_error() -> None:
    secret = "the secrets could not be searched: cannot connect to 10.0.0.1"
    measure = build_isolation_measure(
        [
            _run(2, UNKNOWN, MonitorKind.ISOLATION, reason=secret, leaks=0, missed=4),
            _run(1, ALARM, MonitorKind.ISOLATION, leaks=1, missed=0),
        ]
    )
    assert measure is not None
    assert (measure.value, measure.state) == ("1 leak", UNKNOWN)
    assert "10.0.0.1" not in measure.reason
    assert build_isolation_measure([]) is None


def test_alerts__are_of_the_latest_verdicts_and_begin_with_their_series() -> None:
    recall = [
        _run(9, UNKNOWN, samples=2),
        _recall(8, 0.7, ALARM, action="skipped", drift=0.5, drift_limit=0.4),
        _recall(7, 0.7, ALARM, drift=0.3, drift_limit=0.4),
        _recall(6, 0.99),
    ]
    questions = [
        _run(5, UNKNOWN, MonitorKind.QUESTIONS, **KNOWN, reason="the question 'Was Ann dismissed?' occurs twice"),
        _run(4, ALARM, MonitorKind.QUESTIONS, set="other", recall_at_10=0.1, mrr=0.1),
        _run(3, OK, MonitorKind.QUESTIONS, **KNOWN, recall_at_10=1.0, mrr=1.0),
    ]
    isolation = [_run(hour, ALARM, MonitorKind.ISOLATION, leaks=1, missed=0) for hour in (2, 1)]
    alerts = list_alerts("acme", recall, questions, isolation)
    assert [(alert.name, (alert.since - START).seconds // 3600) for alert in alerts] == [
        ("Permission leak", 1),
        ("Recall of live questions is below its goal", 7),
        ("The best scores have drifted", 8),
        ("Known answers of leave have no verdict", 5),
        ("Known answers of other are below their goal", 4),
    ]
    assert alerts[1].remedy.startswith("The repair was skipped")
    measures = build_answer_measures(questions, {})
    assert not any(
        "Ann" in reason for reason in [*(alert.reason for alert in alerts), *(measure.reason for measure in measures)]
    )
    assert list_alerts("acme", recall[3:], questions[2:], []) == []


def test_experiment__draws_similarity_in_shadow_mode_and_latency_against_the_control() -> None:
    results = [
        PAIR._replace(
            at=START + timedelta(minutes=minute), control_ms=10.0 + minute, treatment_ms=20.0, treatment_hits=10
        )
        for minute in reversed(range(60))
    ]
    changes = {"rag": {"retrieval": {"fusion": "score"}}}
    info = replace(SHADOW, name="deeper", settings=changes, started_at=START)
    view = build_experiment_view(build_report(info, results), results)
    assert view.changes == (("rag.retrieval.fusion", '"score"'),)
    assert view.similarity is not None
    assert view.latency is not None
    assert [len(trend.points) for trend in (view.similarity, view.latency)] == [30, 30]
    assert (view.latency.points[0].text, view.latency.points[0].goal) == ("20.0", "10.5")
    empty = build_experiment_view(build_report(info, []), [])
    assert (empty.similarity, empty.latency) == (None, None)
