"""What a monitor and an experiment of some days have stored, for the pages that show it."""

import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

from kosmos_rag import Engine
from kosmos_rag.core.types import Arm
from kosmos_rag.evaluation.experiments import store as experiments
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.evaluation.monitor.isolation_canary import TENANTS
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.monitor.store import MonitorStore

RUNS, RESULTS = 36, 40
EXPERIMENT = "by-scores"


def store_history(engine: Engine, name: str, *, reason: str = "recall@10 is 0.900 ± 0.012, the target is 0.95") -> None:
    """Store runs of each kind and the results of an experiment.

    The latest run is an alarm of live recall with drift.

    Args:
        engine: the engine.
        name: the tenant.
        reason: reason of the runs of live recall.
    """
    tenant, canary = engine.tenant(name), engine.tenant(TENANTS[0])
    with canary.sessions.write() as connection:
        canary.sessions.create_tenant(connection)
    stores = {kind: MonitorStore(canary if kind is MonitorKind.ISOLATION else tenant) for kind in MonitorKind}
    for number in range(RUNS):
        last = number == RUNS - 1
        recall = 0.90 if last else round(0.975 + 0.015 * math.sin(number / 2), 4)
        drift = 0.46 if last else round(0.12 + 0.06 * math.cos(number / 3), 4)
        figures: dict[MonitorKind, dict[str, Any]] = {
            MonitorKind.RECALL: {
                "ann_recall_at_10": recall, "standard_error": 0.012, "recall_target": 0.95,
                "drift": drift, "drift_limit": 0.41, "incomplete_share": 0.0, "consecutive_alarms": int(last),
            },
            MonitorKind.QUESTIONS: {
                "questions": 40, "recall_at_10": 0.86, "mrr": 0.71, "collection": None, "set": "leave",
            },
            MonitorKind.ISOLATION: {"leaks": 0, "missed": 0},
        }  # fmt: skip
        for kind, store in stores.items():
            run = MonitorRun(
                id=uuid.uuid4(),
                at=datetime.now(UTC) - timedelta(minutes=10 * (RUNS - number)),
                kind=kind,
                state=MonitorState.ALARM if last and kind is MonitorKind.RECALL else MonitorState.OK,
                reason=reason,
                index_id=None,
                figures=figures[kind],
                milliseconds=1.0,
            )
            store.add_run(run, [], keep_days=10)
    started = Experiments(tenant).start(EXPERIMENT, {"rag.retrieval.fusion": "score"}, share=0.2)
    for number in range(RESULTS):
        result = experiments.Result(
            retrieval_id=None,
            arm=Arm.CONTROL,
            requested=10,
            control_ms=24.0 + number % 7,
            treatment_ms=29.0 + number % 5,
            control_hits=10,
            treatment_hits=10,
            overlap=0.8,
            rbo=0.78 + 0.004 * (number % 9),
        )
        with tenant.sessions.write() as connection:
            experiments.add(connection, tenant.id, started.id, result)
