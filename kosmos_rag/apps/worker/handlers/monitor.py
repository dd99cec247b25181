"""The guard within a round of maintenance: what is due of it is looked at, told as metrics, and acted on."""

import logging
from collections.abc import Iterable

from kosmos_rag.apps.worker.channel import CounterBuffer, Desk
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

log = logging.getLogger("kosmos_rag.apps.worker")

LOOKING_S = 6 * 3600.0
"""How long a round may take: it may build an index."""
_HOLDS = 3.0
"""Times that a tenant waits for the next look, for which a figure is shown unless it is measured again."""
_LEVEL = {MonitorState.OK: logging.INFO, MonitorState.UNKNOWN: logging.INFO, MonitorState.ALARM: logging.ERROR}


class Guarding:
    """Runs the guard for one tenant at a time."""

    def __init__(self, guard: RecallMonitor, *, round_s: float) -> None:
        """Look with the guard in rounds of maintenance, one every `round_s` seconds."""
        self._guard = guard
        self._round_s = round_s

    def round(self, owner: TenantRef, desk: Desk) -> CounterBuffer:
        """Look at what is due. A look that fails is logged: the rest of maintenance goes on."""

        def said(step: str) -> None:
            desk.progress()
            log.info("%s", step, extra={"action": "guard_step", "tenant": owner.name})

        try:
            with desk.heartbeat(LOOKING_S):
                runs = self._guard.run_due(owner, said)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            log.warning(
                "the guard could not look",
                extra={
                    "action": "guard_failed", "tenant": owner.name, "code": type(error).__name__,
                    "texts": {"error": str(error)},
                },
            )  # fmt: skip
            return CounterBuffer()
        for run in runs:
            log.log(
                _LEVEL[run.state], "%s: %s", run.kind, run.state,
                extra={
                    "action": f"guard_{run.kind}", "tenant": owner.name, "state": str(run.state),
                    "figures": dict(run.figures), "texts": {"reason": run.reason},
                },
            )  # fmt: skip
        if values := gauges(runs):
            wait_s = max(self._guard.wait_s(owner, run) for run in runs)
            desk.measured(owner.name, values, hold_s=_HOLDS * (wait_s + self._round_s))
        return counted(runs)


def gauges(runs: Iterable[MonitorRun]) -> dict[Metric, float]:
    """Return what is shown of a tenant; of what is not known, nothing."""
    values: dict[Metric, float] = {}
    for run in runs:
        if run.state is MonitorState.UNKNOWN:
            continue
        if run.kind is MonitorKind.RECALL:
            values[RECALL_MONITOR_RECALL] = run.figures["ann_recall_at_10"]
            values[RECALL_MONITOR_INCOMPLETE] = run.figures["short_of_k"]
            values[RECALL_MONITOR_ALARMS] = run.figures["alarms_in_a_row"]
            if "drift" in run.figures:
                values[RECALL_MONITOR_DRIFT] = run.figures["drift"] / run.figures["drift_limit"]
        elif run.kind is MonitorKind.QUESTIONS:
            values[CANARY_RECALL] = min(values.get(CANARY_RECALL, 1.0), run.figures["recall_at_10"])
            values[CANARY_MRR] = min(values.get(CANARY_MRR, 1.0), run.figures["mrr"])
    return values


def counted(runs: Iterable[MonitorRun]) -> CounterBuffer:
    """Return what is counted of runs."""
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
