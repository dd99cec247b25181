"""View models of the page Monitor: measures, alerts, experiments."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kosmos_rag.apps.http.console.trends import Measurement, Trend, build_trend
from kosmos_rag.core.types import Arm, ExperimentMode
from kosmos_rag.evaluation.experiments.records import ExperimentReport
from kosmos_rag.evaluation.experiments.store import Rated
from kosmos_rag.evaluation.monitor.records import MonitorRun, MonitorState

_MAX_GROUPS = 30
"""Points of the trend of an experiment."""
_NO_PROOF = "A reader did not find its own secret, or could not search."
_NOT_EVALUATED = "The questions could not be evaluated; `kosmos-rag monitor status` has the reason."


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A figure with its goal and its trend."""

    name: str
    meaning: str
    value: str
    """The latest value; empty without one."""
    goal: str
    state: MonitorState
    """The latest verdict."""
    last_run: datetime
    reason: str
    """The reason of the latest verdict; empty where the value says it all."""
    trend: Trend | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Alert:
    """A verdict that a person has to act on."""

    name: str
    since: datetime
    """Time of the first run of the present series."""
    reason: str
    remedy: str
    command: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentView:
    """The report of an experiment, and its trends."""

    report: ExperimentReport
    changes: tuple[tuple[str, str], ...]
    """Changed settings of the treatment, by dotted key, as JSON."""
    similarity: Trend | None
    """Rank-biased overlap; None in serve mode."""
    latency: Trend | None
    """Median of the treatment; the goal is that of the control."""


def build_recall_measures(runs: Sequence[MonitorRun]) -> list[Measure]:
    """Build the measures of live recall; runs are newest first."""
    if not runs:
        return []
    newest, judged = runs[0], [run for run in reversed(runs) if "ann_recall_at_10" in run.figures]
    recall = Measure(
        name="Recall of live questions",
        meaning="The share of the ten nearest passages that the vector index finds, for samples of live questions.",
        value=f"{judged[-1].figures['ann_recall_at_10']:.3f}" if judged else "",
        goal=f"at least {judged[-1].figures['recall_target']:g}" if judged else "",
        state=newest.state,
        last_run=newest.at,
        reason=newest.reason,
        trend=build_trend(
            [
                Measurement(
                    at=run.at,
                    value=run.figures["ann_recall_at_10"],
                    goal=run.figures["recall_target"],
                    error=run.figures["standard_error"],
                    alarm=run.state is MonitorState.ALARM,
                )
                for run in judged
            ],
            low=0.8,
            high=1.0,
        ),
    )
    compared = [run for run in judged if "drift" in run.figures]
    if not compared:
        return [recall]
    last = compared[-1]
    drift = Measure(
        name="Drift",
        meaning="How far the best scores of live questions have moved since the index was built or tuned: "
        "0 is equal, 1 is apart.",
        value=f"{last.figures['drift']:.3f}",
        goal=f"at most {last.figures['drift_limit']:.3f}, the most that chance explains",
        state=MonitorState.ALARM if _has_drifted(last) else MonitorState.OK,
        last_run=last.at,
        reason="",
        trend=build_trend(
            [
                Measurement(
                    at=run.at, value=run.figures["drift"], goal=run.figures["drift_limit"], alarm=_has_drifted(run)
                )
                for run in compared
            ],
            low=0.0,
            high=0.1,
            higher_is_better=False,
        ),
    )
    return [recall, drift]


def build_answer_measures(runs: Sequence[MonitorRun], alerts: Mapping[str, float]) -> list[Measure]:
    """Build the measures of questions with known answers, of each question set.

    Args:
        runs: the runs, newest first.
        alerts: `evaluation.alerts`.
    """
    return [
        Measure(
            name=f"{title} of {label}",
            meaning=meaning,
            value="" if not judged else f"{judged[-1].figures[figure]:.3f}",
            goal=f"at least {alerts.get(measure, 0.0):g}",
            state=_measure_state(series[0], figure, alerts.get(measure, 0.0)),
            last_run=series[0].at,
            reason=_NOT_EVALUATED if series[0].state is MonitorState.UNKNOWN else "",
            trend=build_trend(
                [
                    Measurement(
                        at=run.at,
                        value=run.figures[figure],
                        goal=alerts.get(measure, 0.0),
                        alarm=run.figures[figure] < alerts.get(measure, 0.0),
                    )
                    for run in judged
                ],
                low=0.0,
                high=1.0,
            ),
        )
        for label, series in _group_by_question_set(runs).items()
        for title, figure, measure, meaning in (
            ("Recall@10", "recall_at_10", "R@10", "The share of known answers among the first ten passages."),
            ("Mean reciprocal rank", "mrr", "RR@10", "1 if a known answer comes first, 1/2 if it comes second."),
        )
        for judged in [[run for run in reversed(series) if run.figures.get(figure) is not None]]
    ]


def _measure_state(run: MonitorRun, figure: str, goal: float) -> MonitorState:
    if run.state is MonitorState.UNKNOWN or run.figures.get(figure) is None:
        return MonitorState.UNKNOWN
    return MonitorState.ALARM if run.figures[figure] < goal else MonitorState.OK


def build_isolation_measure(runs: Sequence[MonitorRun]) -> Measure | None:
    """Build the measure of the isolation canary; runs are newest first."""
    if not runs:
        return None
    leaks = sum(run.figures["leaks"] for run in runs)
    judged = [run for run in reversed(runs) if run.state is not MonitorState.UNKNOWN]
    return Measure(
        name="Isolation canary",
        meaning="Secrets that a reader of another tenant or department found: two tenants of the monitor have four "
        "secrets, and each of their readers searches for all of them.",
        value=f"{leaks} {'leak' if leaks == 1 else 'leaks'}",
        goal="0 leaks",
        state=runs[0].state,
        last_run=runs[0].at,
        # The stored reason may name what only the operator of the database may know.
        reason=_NO_PROOF if runs[0].state is MonitorState.UNKNOWN else "",
        trend=build_trend(
            [
                Measurement(at=run.at, value=run.figures["leaks"], goal=0, alarm=run.state is MonitorState.ALARM)
                for run in judged
            ],
            low=0.0,
            high=1.0,
            higher_is_better=False,
            form="g",
        ),
    )


def list_alerts(
    tenant: str, recall: Sequence[MonitorRun], questions: Sequence[MonitorRun], isolation: Sequence[MonitorRun]
) -> list[Alert]:
    """Return the alerts of the latest verdicts, the most severe first.

    Args:
        tenant: name of the tenant, for commands.
        recall: runs of that kind, newest first.
        questions: runs of that kind.
        isolation: runs of that kind.
    """
    runs = [run for run in recall if run.state is not MonitorState.UNKNOWN]
    return [
        *_alert_of_isolation(isolation),
        *_alert_of_recall(tenant, runs),
        *_alert_of_drift(tenant, [run for run in runs if "drift" in run.figures]),
        *(
            _alert_of_questions(tenant, label, series)
            for label, series in _group_by_question_set(questions).items()
            if series[0].state is not MonitorState.OK
        ),
    ]


def _alert_of_isolation(runs: Sequence[MonitorRun]) -> Iterator[Alert]:
    if runs and runs[0].state is not MonitorState.OK:
        leaked = runs[0].state is MonitorState.ALARM
        yield Alert(
            name="Permission leak" if leaked else "The isolation canary has no verdict",
            since=_since(runs),
            reason="A search returned a secret of another tenant or department." if leaked else _NO_PROOF,
            remedy="Stop the service; the status names the secret." if leaked else "The status has the reason.",
            command="kosmos-rag monitor status --tenant kosmos-canary-a",
        )


def _alert_of_recall(tenant: str, runs: Sequence[MonitorRun]) -> Iterator[Alert]:
    if runs and runs[0].state is MonitorState.ALARM:
        action = str(runs[0].figures.get("action", ""))
        yield Alert(
            name="Recall of live questions is below its goal",
            since=_since(runs),
            reason=runs[0].reason,
            remedy=_REPAIRS.get(
                action, "No repair was tried, because monitor.auto_repair is off. Build the index again:"
            ),
            command=f"kosmos-rag index {'log' if action else 'rebuild'} --tenant {tenant}",
        )


def _alert_of_drift(tenant: str, compared: Sequence[MonitorRun]) -> Iterator[Alert]:
    drifted = next((index for index, run in enumerate(compared) if not _has_drifted(run)), len(compared))
    if drifted:
        yield Alert(
            name="The best scores have drifted",
            since=compared[drifted - 1].at,
            reason="Questions or documents differ from those that the index was tuned with.",
            remedy="Tune the index with the present ones:",
            command=f"kosmos-rag index tune --tenant {tenant}",
        )


def _alert_of_questions(tenant: str, label: str, runs: Sequence[MonitorRun]) -> Alert:
    if runs[0].state is MonitorState.ALARM:
        return Alert(
            name=f"Known answers of {label} are below their goal",
            since=_since(runs),
            reason=runs[0].reason,
            remedy="Compare the settings and the documents with those of an earlier evaluation:",
            command=f"kosmos-rag eval list --tenant {tenant}",
        )
    return Alert(
        name=f"Known answers of {label} have no verdict",
        since=_since(runs),
        # The stored reason may quote a question, and operators read none.
        reason=_NOT_EVALUATED,
        remedy="Correct the question file that monitor.questions names, and measure again:",
        command=f"kosmos-rag monitor run --tenant {tenant}",
    )


_REPAIRS = {
    "search_widened": "The search was widened; the next run shows the effect. Changes to the index:",
    "rebuilt": "The index was rebuilt; the next run shows the effect. Changes to the index:",
    "skipped": "The repair was skipped; the log has the reason:",
    "busy": "Other maintenance was running; the next run repairs. Changes to the index:",
}
"""What a run did about low recall."""


def _has_drifted(run: MonitorRun) -> bool:
    return bool(run.figures["drift"] > run.figures["drift_limit"])


def _since(runs: Sequence[MonitorRun]) -> datetime:
    """Return when the latest series of one state began."""
    series = next((index for index, run in enumerate(runs) if run.state is not runs[0].state), len(runs))
    return runs[series - 1].at


def _group_by_question_set(runs: Sequence[MonitorRun]) -> dict[str, list[MonitorRun]]:
    """Group runs, newest first, by question set and collection."""
    groups: dict[str, list[MonitorRun]] = {}
    for run in runs:
        name, collection = run.figures.get("set") or "the question file", run.figures.get("collection")
        groups.setdefault(f"{name} ({collection})" if collection else name, []).append(run)
    return groups


def build_experiment_view(report: ExperimentReport, results: Sequence[Rated]) -> ExperimentView:
    """Build the trends of an experiment.

    Args:
        results: its results, newest first.
    """
    groups = list(_groups(results))
    similarity = [
        Measurement(at=group[-1].at, value=statistics.fmean(values))
        for group in groups
        if (values := [result.rbo for result in group if result.rbo is not None])
    ]
    medians = (
        (
            group[-1].at,
            _median([result.control_ms for result in group]),
            _median([result.treatment_ms for result in group]),
        )
        for group in groups
    )
    latency = [
        Measurement(at=at, value=treatment, goal=control) for at, control, treatment in medians if treatment is not None
    ]
    shadow = report.experiment.mode is ExperimentMode.SHADOW
    return ExperimentView(
        report=report,
        changes=tuple(_flatten(report.experiment.settings)),
        similarity=build_trend(similarity, low=0.5, high=1.0) if shadow else None,
        latency=build_trend(latency, low=0.0, high=1.0, higher_is_better=False, form=".1f"),
    )


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value)


def _groups(results: Sequence[Rated]) -> Iterator[Sequence[Rated]]:
    """Yield the results, oldest first, in groups of one size."""
    oldest_first = list(reversed(results))
    size = max(1, -(-len(oldest_first) // _MAX_GROUPS))
    for start in range(0, len(oldest_first), size):
        yield oldest_first[start : start + size]


def _median(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


ARM_NAMES = {Arm.CONTROL: "control (the present settings)", Arm.TREATMENT: "treatment (with the changes)"}
