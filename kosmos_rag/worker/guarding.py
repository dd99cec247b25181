"""The guard within a round of maintenance: what is due of it is looked at, told as metrics, and acted on."""

import logging
from collections.abc import Iterable

from kosmos_rag.errors import DatabaseUnavailable, KosmosError
from kosmos_rag.guard import Guard
from kosmos_rag.metrics import (
    CANARY_MRR,
    CANARY_RECALL,
    GUARD_DRIFT,
    GUARD_RECALL,
    GUARD_RUNS,
    GUARD_SHORT,
    GUARD_STEPS,
    PERMISSION_CHECKS,
    PERMISSION_LEAKS,
    Metric,
)
from kosmos_rag.records import GuardKind, GuardRun, GuardState
from kosmos_rag.storage.tenancy import Tenant
from kosmos_rag.worker.desk import Counts, Desk

log = logging.getLogger("kosmos_rag.worker")

LOOKING_S = 6 * 3600.0
"""How long a round may take: it may build an index."""
_HOLDS = 3.0
"""Times `guard.every_s` for which a figure is shown, unless it is measured again."""
_LEVEL = {GuardState.OK: logging.INFO, GuardState.UNKNOWN: logging.INFO, GuardState.ALARM: logging.ERROR}


class Guarding:
    """Runs the guard for one tenant at a time."""

    def __init__(self, guard: Guard, *, every_s: float) -> None:
        self._guard = guard
        self._hold_s = _HOLDS * every_s

    def round(self, owner: Tenant, desk: Desk) -> Counts:
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
            log.warning("the guard could not look", extra={"action": "guard_failed", "texts": {"error": str(error)}})
            return Counts()
        for run in runs:
            named = {"action": f"guard_{run.kind}", "tenant": owner.name, "state": str(run.state)}
            log.log(_LEVEL[run.state], "%s: %s", run.kind, run.state, extra={**named, "texts": {"why": run.why}})
        if values := gauges(runs):
            desk.measured(owner.name, values, hold_s=self._hold_s)
        return counted(runs)


def gauges(runs: Iterable[GuardRun]) -> dict[Metric, float]:
    """Return what is shown of a tenant; of what is not known, nothing."""
    values: dict[Metric, float] = {}
    for run in runs:
        if run.state is GuardState.UNKNOWN:
            continue
        if run.kind is GuardKind.RECALL:
            values[GUARD_RECALL] = run.figures["ann_recall_at_10"]
            values[GUARD_SHORT] = run.figures["short_of_k"]
            if "drift" in run.figures:
                values[GUARD_DRIFT] = run.figures["drift"] / run.figures["drift_limit"]
        elif run.kind is GuardKind.QUESTIONS:
            values[CANARY_RECALL] = min(values.get(CANARY_RECALL, 1.0), run.figures["recall_at_10"])
            values[CANARY_MRR] = min(values.get(CANARY_MRR, 1.0), run.figures["mrr"])
    return values


def counted(runs: Iterable[GuardRun]) -> Counts:
    """Return what is counted of runs."""
    counts = Counts()
    for run in runs:
        if run.kind is GuardKind.RECALL:
            counts.add(GUARD_RUNS.name, 1.0, str(run.state))
            if action := run.figures.get("action"):
                counts.add(GUARD_STEPS.name, 1.0, action)
        elif run.kind is GuardKind.PERMISSION:
            counts.add(PERMISSION_CHECKS.name, 1.0, str(run.state))
            counts.add(PERMISSION_LEAKS.name, run.figures["leaks"])
    return counts
