"""Page of the console for measurements of the monitor and experiments."""

from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.http.console.pages import PageRoute, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleOperator
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.types import IndexEvent
from kosmos_rag.evaluation.experiments.experiments import Experiments
from kosmos_rag.evaluation.experiments.records import ExperimentInfo
from kosmos_rag.evaluation.experiments.report import build_report
from kosmos_rag.evaluation.monitor.isolation_canary import TENANTS
from kosmos_rag.evaluation.monitor.monitor import RecallMonitor
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun
from kosmos_rag.evaluation.monitor.store import MonitorStore
from kosmos_rag.evaluation.pages.monitoring import (
    ARM_NAMES,
    ExperimentView,
    build_answer_measures,
    build_experiment_view,
    build_isolation_measure,
    build_recall_measures,
    list_alerts,
)
from kosmos_rag.evaluation.settings import EvaluationSettings

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_MAX_RUNS, _MAX_EVENTS = 300, 10


class _Stored(NamedTuple):
    """What is stored of a tenant; runs and events are newest first."""

    recall: list[MonitorRun]
    questions: list[MonitorRun]
    isolation: list[MonitorRun]
    samples: int
    """Samples for the next run."""
    events: list[IndexEvent]
    experiments: list[ExperimentInfo]
    experiment: ExperimentView | None


@router.get("/monitor")
async def monitor(request: Request, caller: ConsoleOperator, experiment: str | None = None) -> Response:
    """Show what the monitor and the experiments of the tenant have measured.

    Args:
        experiment: name of the experiment to show; None for the first one.
    """
    settings = caller.service.settings
    try:
        stored = await caller.run(_read, caller, experiment)
    except ConfigError:  # the service may have no credentials of the worker role
        return render_page(request, "monitor.html", stored=None)
    return render_page(
        request,
        "monitor.html",
        stored=stored,
        alerts=list_alerts(caller.identity.tenant, stored.recall, stored.questions, stored.isolation),
        recall=build_recall_measures(stored.recall),
        answers=build_answer_measures(stored.questions, settings.section(EvaluationSettings).alerts),
        isolation=build_isolation_measure(stored.isolation),
        settings=settings,
        arm_names=ARM_NAMES,
    )


def _read(caller: Caller, experiment: str | None) -> _Stored:
    engine, tenant = caller.service.engine.sync_engine, caller.tenant()
    runs, experiments = MonitorStore(tenant), Experiments(tenant)
    infos = experiments.infos()
    chosen = infos[0] if infos else None
    if experiment:
        chosen = next((info for info in infos if info.name == experiment), None)
        if chosen is None:
            raise RequestError(f"there is no experiment {experiment[:80]!r}; choose one from the page Monitor")
    view = None
    if chosen is not None:
        results = experiments.list_results(chosen)
        view = build_experiment_view(build_report(chosen, results), results)
    return _Stored(
        recall=runs.list_runs(MonitorKind.RECALL, limit=_MAX_RUNS),
        questions=runs.list_runs(MonitorKind.QUESTIONS, limit=_MAX_RUNS),
        # The canary has tenants of its own: its verdict is about the isolation of all.
        isolation=MonitorStore(engine.tenant(TENANTS[0])).list_runs(MonitorKind.ISOLATION, limit=_MAX_RUNS),
        samples=RecallMonitor(engine).count_samples(tenant.name),
        events=tenant.indexes.log(_MAX_EVENTS),
        experiments=infos,
        experiment=view,
    )
