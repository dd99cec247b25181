"""Runs the recall monitor within a round of maintenance.

Runs that are due are reported as logs and metrics.
"""

import logging
from collections.abc import Iterable

from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError
from kosmos_rag.core.telemetry.metrics import (
    CANARY_MRR,
    CANARY_RECALL,
    CANARY_RUNS,
    PERMISSION_CHECKS,
    PERMISSION_LEAKS,
    RECALL_MONITOR_ALARMS,
    RECALL_MONITOR_DRIFT,
    RECALL_MONITOR_INCOMPLETE,
    RECALL_MONITOR_RECALL,
    RECALL_MONITOR_REPAIRS,
    RECALL_MONITOR_RUNS,
    Metric,
)
from kosmos_rag.core.types import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel

log = logging.getLogger("kosmos_rag.worker")

RUN_TIMEOUT_S = 6 * 3600.0
"""Heartbeat timeout of a round: it may build an index."""
_GAUGE_INTERVALS = 3.0
"""Intervals between two runs for which a gauge keeps its value."""
_LEVEL = {MonitorState.OK: logging.INFO, MonitorState.UNKNOWN: logging.INFO, MonitorState.ALARM: logging.ERROR}


class MonitorHandler:
    """Runs the recall monitor for one tenant at a time."""

    def __init__(self, monitor: RecallMonitor, *, interval_s: float) -> None:
        """Create a handler for maintenance every `interval_s` seconds."""
        self._monitor = monitor
        self._interval_s = interval_s

    def run(self, owner: TenantRef, channel: SupervisorChannel) -> CounterBuffer:
        """Run what is due.

        A failed run is logged, and the rest of maintenance continues.
        """

        def report(step: str) -> None:
            channel.report_progress()
            log.info("%s", step, extra={"action": "monitor_step", "tenant": owner.name})

        try:
            with channel.heartbeat(RUN_TIMEOUT_S):
                runs = self._monitor.run_due(owner, report)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            log.warning(
                "the recall monitor failed",
                extra={
                    "action": "monitor_failed", "tenant": owner.name, "code": type(error).__name__,
                    "texts": {"error": str(error)},
                },
            )  # fmt: skip
            return CounterBuffer()
        for run in runs:
            log.log(
                _LEVEL[run.state], "%s: %s", run.kind, run.state,
                extra={
                    "action": f"monitor_{run.kind}", "tenant": owner.name, "state": str(run.state),
                    "figures": dict(run.figures), "texts": {"reason": run.reason},
                },
            )  # fmt: skip
        if values := gauges(runs):
            longest_interval_s = max(self._monitor.next_run_in_s(owner, run) for run in runs)
            channel.report_gauges(owner.name, values, hold_s=_GAUGE_INTERVALS * (longest_interval_s + self._interval_s))
        return run_counters(runs)


def gauges(runs: Iterable[MonitorRun]) -> dict[Metric, float]:
    """Return the gauges of a tenant; unknown runs set none."""
    values: dict[Metric, float] = {}
    for run in runs:
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


def run_counters(runs: Iterable[MonitorRun]) -> CounterBuffer:
    """Return the counters of runs."""
    counts = CounterBuffer()
    for run in runs:
        if run.kind is MonitorKind.RECALL:
            counts.add(RECALL_MONITOR_RUNS.name, 1.0, str(run.state))
            if action := run.figures.get("action"):
                counts.add(RECALL_MONITOR_REPAIRS.name, 1.0, action)
        elif run.kind is MonitorKind.QUESTIONS:
            counts.add(CANARY_RUNS.name, 1.0, str(run.state))
        else:
            counts.add(PERMISSION_CHECKS.name, 1.0, str(run.state))
            counts.add(PERMISSION_LEAKS.name, run.figures["leaks"])
    return counts
