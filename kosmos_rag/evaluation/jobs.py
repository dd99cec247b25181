"""The parts of maintenance for experiments, the recall monitor, gaps and checks of answers."""

import logging
import math
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import EventType
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.engine.jobs import ALL_COLLECTIONS
from kosmos_rag.evaluation.answer_checks.checks import AnswerChecks, check_answers
from kosmos_rag.evaluation.answer_checks.records import AnswerVerdict
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.evaluation.gaps.gaps import Gaps, check_unanswered
from kosmos_rag.evaluation.metrics import (
    ANSWER_CHECKS,
    CANARY_MRR,
    CANARY_RECALL,
    CANARY_RUNS,
    DISPUTED_REFUSALS,
    KNOWLEDGE_GAPS,
    PERMISSION_CHECKS,
    PERMISSION_LEAKS,
    RECALL_MONITOR_ALARMS,
    RECALL_MONITOR_DRIFT,
    RECALL_MONITOR_INCOMPLETE,
    RECALL_MONITOR_RECALL,
    RECALL_MONITOR_REPAIRS,
    RECALL_MONITOR_RUNS,
    STALE_LABELS,
)
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.sql import statement

log = logging.getLogger("kosmos_rag.worker")

RUN_TIMEOUT_S = 6 * 3600.0
"""Heartbeat timeout of a round: it may build an index."""
GAP_TIMEOUT_S = 600.0
"""Heartbeat timeout of a round over the unanswered questions, or the sampled answers, of a tenant."""
_GAUGE_INTERVALS = 3.0
"""Intervals between two runs for which a gauge keeps its value."""
_RUNS_OF_SETS = 100
"""Latest runs among which `doctor` looks for the last one of each question file."""
_LEVEL = {MonitorState.OK: logging.INFO, MonitorState.UNKNOWN: logging.INFO, MonitorState.ALARM: logging.ERROR}


class ExperimentMaintenance:
    """Removes old results of experiments."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:  # noqa: ARG002 — takes no time to report
        """Remove the results that `worker.keep_experiment_days` no longer keeps."""
        Experiments(self._engine.tenant(tenant)).prune(keep_days=self._engine.settings.worker.keep_experiment_days)
        return {}


class MonitorMaintenance:
    """Runs the recall monitor for one tenant at a time.

    Runs that are due are reported as logs and metrics.
    """

    def __init__(self, engine: Engine, interval_s: float | None = None) -> None:
        """Create the handler.

        Args:
            interval_s: Seconds between two rounds of maintenance; None for the setting.
        """
        self._engine = engine
        self._monitor = RecallMonitor(engine)
        self._interval_s = engine.settings.worker.maintenance_every_s if interval_s is None else interval_s

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        """Run what is due.

        A failed run is logged, and the rest of maintenance continues.
        """

        def report(step: str) -> None:
            channel.report_progress()
            log.info("%s", step, extra={"action": "monitor_step", "tenant": tenant})

        runs: list[MonitorRun] = []
        try:
            with channel.heartbeat(RUN_TIMEOUT_S):
                for run in self._monitor.run_due(tenant, report):
                    # One by one: a leak is not lost where the next run fails, and it is not due again for minutes.
                    runs.append(run)
                    _log_run(tenant, run)
                    channel.report_counts(run_counters([run]))
                    self._record_events(tenant, run)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            log.warning(
                "the recall monitor failed",
                extra={
                    "action": "monitor_failed", "tenant": tenant, "code": type(error).__name__,
                    "texts": {"error": str(error)},
                },
            )  # fmt: skip
        if values := gauges(runs):
            longest_interval_s = max(self._monitor.next_run_in_s(tenant, run) for run in runs)
            channel.report_gauges(tenant, values, hold_s=_GAUGE_INTERVALS * (longest_interval_s + self._interval_s))
        return {}

    def _record_events(self, tenant: str, run: MonitorRun) -> None:
        """Record an alarm and drift as events, without texts of questions."""
        sessions = self._engine.tenant(tenant).sessions
        data = {"run_id": str(run.id), "kind": str(run.kind), "figures": dict(run.figures)}
        if run.state is MonitorState.ALARM:
            sessions.record_event(ALL_COLLECTIONS, EventType.MONITOR_ALARM, data)
        if run.figures.get("drift", 0.0) > run.figures.get("drift_limit", math.inf):
            sessions.record_event(ALL_COLLECTIONS, EventType.MONITOR_DRIFT, data)


def _log_run(tenant: str, run: MonitorRun) -> None:
    log.log(
        _LEVEL[run.state], "%s: %s", run.kind, run.state,
        extra={
            "action": f"monitor_{run.kind}", "tenant": tenant, "state": str(run.state),
            "figures": dict(run.figures), "texts": {"reason": run.reason},
        },
    )  # fmt: skip


class GapMaintenance:
    """Groups unanswered questions, asks open ones again, and deletes old ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._interval_s = engine.settings.worker.maintenance_every_s

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        """Maintain the questions of a tenant. A failure is logged, and the rest of maintenance continues."""
        owner = self._engine.tenant(tenant)
        gaps = Gaps(owner)
        try:
            with channel.heartbeat(GAP_TIMEOUT_S):
                gaps.prune()
                gaps.group()
                check_unanswered(self._engine, owner, progress=channel.report_progress)
                report = gaps.report()
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            log.warning(
                "unanswered questions were not grouped: %s", type(error).__name__,
                extra={"action": "gaps_failed", "tenant": tenant},
            )  # fmt: skip
            return {}
        if report.recorded:
            count = sum(gap.closed_at is None for gap in report.gaps)
            channel.report_gauges(tenant, {KNOWLEDGE_GAPS: float(count)}, hold_s=_GAUGE_INTERVALS * self._interval_s)
        return {}


class AnswerMaintenance:
    """Checks sampled answers, and deletes old ones."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._interval_s = engine.settings.worker.maintenance_every_s

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        """Check the answers of a tenant. A failure is logged, and the rest of maintenance continues."""
        owner = self._engine.tenant(tenant)
        checks, verdicts = AnswerChecks(owner), Counter[AnswerVerdict]()
        try:
            with channel.heartbeat(GAP_TIMEOUT_S):
                checks.prune()
                check_answers(self._engine, owner, progress=channel.report_progress, verdicts=verdicts)
                report = checks.report()
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            log.warning(
                "sampled answers were not checked: %s", type(error).__name__,
                extra={"action": "answer_checks_failed", "tenant": tenant},
            )  # fmt: skip
            return _count_checks(verdicts)
        if report.collections:
            disputed = sum(counts.disputed for counts in report.collections)
            hold_s = _GAUGE_INTERVALS * self._interval_s
            channel.report_gauges(tenant, {DISPUTED_REFUSALS: float(disputed)}, hold_s=hold_s)
        return _count_checks(verdicts)


def _count_checks(verdicts: Counter[AnswerVerdict]) -> JobCounts:
    return {(ANSWER_CHECKS.name, str(verdict)): count for verdict, count in verdicts.items()}


def gauges(runs: Iterable[MonitorRun]) -> dict[Metric, float]:
    """Return the gauges of a tenant; unknown runs set that of stale labels alone."""
    values: dict[Metric, float] = {}
    for run in runs:
        if "stale_labels" in run.figures:  # also where too few questions are left
            values[STALE_LABELS] = max(values.get(STALE_LABELS, 0.0), run.figures["stale_labels"])
        if run.state is MonitorState.UNKNOWN:
            continue
        if run.kind is MonitorKind.RECALL:
            values[RECALL_MONITOR_RECALL] = run.figures["ann_recall_at_10"]
            values[RECALL_MONITOR_INCOMPLETE] = run.figures["incomplete_share"]
            values[RECALL_MONITOR_ALARMS] = run.figures["consecutive_alarms"]
            if "drift" in run.figures:
                values[RECALL_MONITOR_DRIFT] = run.figures["drift"] / run.figures["drift_limit"]
        elif run.kind is MonitorKind.QUESTIONS:
            values[CANARY_RECALL] = min(values.get(CANARY_RECALL, 1.0), run.figures["recall_at_10"])
            values[CANARY_MRR] = min(values.get(CANARY_MRR, 1.0), run.figures["mrr"])
    return values


def run_counters(runs: Iterable[MonitorRun]) -> JobCounts:
    """Return the counters of runs."""
    counts = Counter[tuple[str, str]]()
    for run in runs:
        if run.kind is MonitorKind.RECALL:
            counts[RECALL_MONITOR_RUNS.name, str(run.state)] += 1
            if action := run.figures.get("action"):
                counts[RECALL_MONITOR_REPAIRS.name, action] += 1
        elif run.kind is MonitorKind.QUESTIONS:
            counts[CANARY_RUNS.name, str(run.state)] += 1
        else:
            counts[PERMISSION_CHECKS.name, str(run.state)] += 1
            counts[PERMISSION_LEAKS.name, ""] += run.figures["leaks"]
    return counts


def list_warnings(connection: psycopg.Connection, tenant_id: uuid.UUID, _: Settings) -> Iterator[str]:
    """Yield the labels that no longer describe the documents, for `doctor`."""
    values = {"tenant_id": tenant_id, "kind": str(MonitorKind.QUESTIONS), "with_unknown": True, "limit": _RUNS_OF_SETS}
    evaluated = set[tuple[str | None, str | None]]()
    with connection.cursor(row_factory=dict_row) as cursor:
        for run in cursor.execute(statement("list_monitor_runs"), values):
            figures = run["figures"]
            key = (figures.get("collection"), figures.get("set"))
            if key not in evaluated and figures.get("stale_labels"):
                yield f"questions {figures['set']}: {run['reason']}"
            evaluated.add(key)
