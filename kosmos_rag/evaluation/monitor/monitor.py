"""The recall monitor.

It measures live recall, known answers and isolation, has low recall repaired, and stores each run.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseUnavailable, IndexLocked, KosmosError
from kosmos_rag.core.types import EVERYONE, MonitorKind, MonitorRun, MonitorState, Space
from kosmos_rag.core.types.questions import read_questions
from kosmos_rag.evaluation.monitor import isolation_canary
from kosmos_rag.evaluation.monitor.recall import Sample, measure_live_recall
from kosmos_rag.evaluation.monitor.store import MonitorStore
from kosmos_rag.evaluation.monitor.verdict import (
    MEASURES,
    MIN_SAMPLES,
    Verdict,
    insufficient_samples,
    judge_answers,
    judge_isolation,
    judge_recall,
)
from kosmos_rag.evaluation.runner import EvaluatedTenant, Plan, evaluate, for_evaluation
from kosmos_rag.indexing import history
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import TenantRef, create_tenant, find_live_space, tenant

Progress = Callable[[str], None]
"""Called with one line for each step."""

BUSY = "busy"
"""The repair of a run during which other maintenance of the tenant held the lock: none, the next run tries again."""


class MonitoredTenant(EvaluatedTenant, isolation_canary.CanaryTenant, Protocol):
    """One tenant as one reader sees it: a Tenant is one."""


class OpenTenant(Protocol):
    """Opens tenants: an Engine's `tenant` does."""

    def __call__(
        self, name: str, *, principals: Sequence[str] = (EVERYONE,), collection: str | None = None
    ) -> MonitoredTenant:
        """Return a tenant, or one collection, for these principals."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measurement:
    """What is stored of one run."""

    verdict: Verdict
    index_id: uuid.UUID | None = None
    scores: tuple[float, ...] = ()
    milliseconds: float = 0.0


class RecallMonitor:
    """Monitors the tenants of one database and has low recall repaired. Thread-safe."""

    def __init__(
        self, database: Database, maintenance: IndexMaintenance, settings: Settings, open_tenant: OpenTenant
    ) -> None:
        """Create a monitor.

        Args:
            database: Connections: samples are searched as the app role, the rest is done as the worker role.
            maintenance: Repairs indexes.
            settings: `monitor`, `evaluation`, `indexes` and `worker`.
            open_tenant: Opens a tenant for the questions with known answers and for the isolation canary.
        """
        self._database = database
        self._maintenance = maintenance
        self._all_settings = settings
        self._settings = settings.monitor
        self._open_tenant = open_tenant

    def run(
        self, name: str, kinds: Collection[MonitorKind] = tuple(MonitorKind), *, progress: Progress | None = None
    ) -> list[MonitorRun]:
        """Measure a tenant now, and run the isolation canary.

        Args:
            name: Name of the tenant.
            kinds: What to measure; all by default.
            progress: Called with one line for each step.

        Raises ConfigError without `database.worker_url`, DatabaseError.
        """
        owner, report = tenant(name), progress or _discard

        def is_due(_store: MonitorStore, kind: MonitorKind) -> bool:
            return kind in kinds

        return [*self._measure_tenant(owner, report, is_due), *self._check_isolation(report, is_due)]

    def run_due(self, owner: TenantRef, progress: Progress) -> list[MonitorRun]:
        """Measure what is due by its interval. Raises what `run` raises."""
        runs: list[MonitorRun] = []
        if (interval_s := self._settings.isolation_interval_s) is not None:
            # First of all: a leak has to be reported even if nothing else can be measured.
            runs += self._check_isolation(progress, lambda store, kind: _is_older(store, kind, interval_s))
        return [*runs, *self._measure_tenant(owner, progress, self._is_due)]

    def status(self, name: str, *, limit: int = 20) -> list[MonitorRun]:
        """Return the latest runs of a tenant, the newest first.

        Raises what `run` raises. Runs of the isolation canary belong to its own tenant.
        """
        return MonitorStore(self._database, tenant(name)).list_runs(limit=limit)

    def next_run_in_s(self, owner: TenantRef, run: MonitorRun) -> float:
        """Return the seconds between two runs of a kind.

        Raises what `run` raises.
        """
        if run.kind is MonitorKind.ISOLATION:
            return self._settings.isolation_interval_s or 0.0
        return self._interval_s(MonitorStore(self._database, owner), run)

    def count_samples(self, name: str) -> int:
        """Count the samples for the next run, up to `monitor.samples_per_run`.

        Raises what `run` raises.
        """
        owner = tenant(name)
        if (space := self._live_space(owner)) is None:
            return 0
        store = MonitorStore(self._database, owner)
        return len(store.list_samples(space.id, limit=self._settings.samples_per_run))

    # --- what is due -------------------------------------------------------------------------------------------------

    def _measure_tenant(
        self, owner: TenantRef, report: Progress, is_due: Callable[[MonitorStore, MonitorKind], bool]
    ) -> Iterator[MonitorRun]:
        store, space = MonitorStore(self._database, owner), self._live_space(owner)
        if space is None:
            return
        index = self._maintenance.live_vector_index(owner)
        if index is not None and is_due(store, MonitorKind.RECALL):
            yield self._measure_recall(store, owner, space, *index, report)
        files = self._question_files(owner)
        if files and is_due(store, MonitorKind.QUESTIONS):
            for collection, path in files:
                yield self._measure_answers(store, owner, collection, path, report)

    def _live_space(self, owner: TenantRef) -> Space | None:
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            return find_live_space(connection, owner.id)

    def _question_files(self, owner: TenantRef) -> list[tuple[str | None, Path]]:
        files = ((*key.partition("/"), path) for key, path in self._settings.questions.items())
        return [(collection or None, path) for name, _, collection, path in files if name == owner.name]

    def _is_due(self, store: MonitorStore, kind: MonitorKind) -> bool:
        last = next(iter(store.list_runs(kind, limit=1)), None)
        return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=self._interval_s(store, last))

    def _interval_s(self, store: MonitorStore, run: MonitorRun) -> float:
        """Return the interval that keeps all tenants together within `monitor.database_share`."""
        share_s = run.milliseconds / 1000 * max(1, store.count_vector_indexes()) / self._settings.database_share
        return max(self._settings.interval_s, share_s)

    # --- measurements ------------------------------------------------------------------------------------------------

    def _measure_recall(
        self,
        store: MonitorStore,
        owner: TenantRef,
        space: Space,
        index_id: uuid.UUID,
        tuned_at: datetime,
        report: Progress,
    ) -> MonitorRun:
        samples = store.list_samples(space.id, limit=self._settings.samples_per_run)
        if len(samples) < MIN_SAMPLES:
            store.delete_samples(space.id, ())
            verdict = insufficient_samples(len(samples))
            return self._store(store, MonitorKind.RECALL, _Measurement(verdict=verdict, index_id=index_id))
        report(f"measuring recall with {len(samples)} live queries")
        live = measure_live_recall(self._database.app, owner, samples, self._settings)
        target = self._all_settings.indexes.recall_target
        baseline = store.read_baseline(index_id, tuned_at)
        verdict = judge_recall(live, baseline, target, indexes=store.count_vector_indexes())
        if verdict.state is not MonitorState.UNKNOWN:
            alarms = _consecutive_alarms(store) + 1 if verdict.state is MonitorState.ALARM else 0
            verdict = replace(verdict, figures={**verdict.figures, "consecutive_alarms": alarms})
        if verdict.state is MonitorState.ALARM and self._settings.auto_repair:
            verdict = self._repair(verdict, owner, samples, report)
        run = self._store(
            store,
            MonitorKind.RECALL,
            _Measurement(verdict=verdict, index_id=index_id, scores=live.scores, milliseconds=live.milliseconds),
        )
        store.delete_samples(space.id, samples)
        return run

    def _repair(self, verdict: Verdict, owner: TenantRef, samples: Sequence[Sample], report: Progress) -> Verdict:
        report(f"{verdict.reason}: repairing the index")
        vectors = [sample.vector for sample in samples]
        try:
            action = self._maintenance.repair_recall(owner, vectors, verdict.reason, report)
        except IndexLocked as error:
            report(str(error))
            action = BUSY
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = replace(verdict, reason=f"{verdict.reason}; the repair failed: {error}")
            action = history.SKIPPED
        return replace(verdict, figures={**verdict.figures, "action": action or history.SKIPPED})

    def _measure_answers(
        self, store: MonitorStore, owner: TenantRef, collection: str | None, path: Path, report: Progress
    ) -> MonitorRun:
        started = time.perf_counter()
        try:
            question_set = read_questions(path)
            answerable = question_set.part(question_set.name, lambda question: question.answerable)
            report(f"evaluating the {len(answerable.questions)} questions of {question_set.name}")
            verdict = judge_answers({}, 0, {})
            if answerable.questions:
                settings = for_evaluation(self._all_settings)
                measures = settings.evaluation.model_copy(update={"measures": MEASURES})
                plan = Plan(
                    label="monitor",
                    settings=settings.model_copy(update={"evaluation": measures}),
                    collection=collection,
                )
                evaluation = evaluate(self._open_tenant(owner.name, collection=collection), answerable, plan)
                verdict = judge_answers(evaluation.measures, evaluation.questions, settings.evaluation.alerts)
        except KosmosError as error:
            verdict = Verdict(state=MonitorState.UNKNOWN, reason=str(error))
        figures = {**verdict.figures, "collection": collection, "set": path.stem}
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        measurement = _Measurement(verdict=replace(verdict, figures=figures), milliseconds=milliseconds)
        return self._store(store, MonitorKind.QUESTIONS, measurement)

    def _check_isolation(
        self, report: Progress, is_due: Callable[[MonitorStore, MonitorKind], bool]
    ) -> Iterator[MonitorRun]:
        owner = tenant(isolation_canary.TENANTS[0])
        store = MonitorStore(self._database, owner)
        if not is_due(store, MonitorKind.ISOLATION):
            return
        report("searching two tenants for each other's secrets")
        started = time.perf_counter()
        try:
            verdict = isolation_canary.check_isolation(self._open_tenant)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = judge_isolation([], [f"the secrets could not be searched: {error}"])
            with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
                create_tenant(connection, owner, now=datetime.now(UTC))
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        yield self._store(store, MonitorKind.ISOLATION, _Measurement(verdict=verdict, milliseconds=milliseconds))

    def _store(self, store: MonitorStore, kind: MonitorKind, measurement: _Measurement) -> MonitorRun:
        run = MonitorRun(
            id=uuid.uuid4(),
            at=datetime.now(UTC),
            kind=kind,
            state=measurement.verdict.state,
            reason=measurement.verdict.reason,
            index_id=measurement.index_id,
            figures=measurement.verdict.figures,
            milliseconds=measurement.milliseconds,
        )
        store.add_run(run, measurement.scores, keep_days=self._all_settings.worker.keep_dead_days)
        return run


def _is_older(store: MonitorStore, kind: MonitorKind, seconds: float) -> bool:
    last = next(iter(store.list_runs(kind, limit=1)), None)
    return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=seconds)


def _consecutive_alarms(store: MonitorStore) -> int:
    """Return the number of alarms of the latest measurements in a row.

    Unknown ones do not count.
    """
    runs = (run for run in store.list_runs(MonitorKind.RECALL, limit=20) if run.state is not MonitorState.UNKNOWN)
    last = next(runs, None)
    return 0 if last is None else int(last.figures.get("consecutive_alarms", 0))


def _discard(*_: object) -> None:
    """Ignore progress."""
