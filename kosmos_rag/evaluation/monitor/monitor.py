"""The recall monitor.

It measures live recall, known answers and isolation, has low recall repaired, and stores each run.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from kosmos_rag.core.errors import DatabaseUnavailable, IndexLocked, KosmosError, StatementFailed
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.judging.questions import JUDGED, JudgedQuestions
from kosmos_rag.evaluation.monitor import isolation_canary
from kosmos_rag.evaluation.monitor.labels import drop_gone_labels, find_stale_labels_as_asked
from kosmos_rag.evaluation.monitor.recall import Sample, measure_live_recall
from kosmos_rag.evaluation.monitor.records import MonitorKind, MonitorRun, MonitorState
from kosmos_rag.evaluation.monitor.store import MonitorStore
from kosmos_rag.evaluation.monitor.verdict import (
    MEASURES,
    MIN_SAMPLES,
    MonitorVerdict,
    add_stale_labels,
    insufficient_samples,
    judge_answers,
    judge_isolation,
    judge_recall,
)
from kosmos_rag.evaluation.offline.questions import read_questions
from kosmos_rag.evaluation.offline.runner import Plan, evaluate
from kosmos_rag.evaluation.settings import EvaluationSettings, MonitorSettings

Progress = Callable[[str], None]
"""Called with one line for each step."""

BUSY = "busy"
"""The repair of a run during which other maintenance of the tenant held the lock: none, the next run tries again."""
SKIPPED = "skipped"
"""A repair that was due and could not be done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measurement:
    """What is stored of one run."""

    verdict: MonitorVerdict
    index_id: uuid.UUID | None = None
    scores: tuple[float, ...] = ()
    milliseconds: float = 0.0


class RecallMonitor:
    """Monitors the tenants of one database and has low recall repaired. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings.section(MonitorSettings)

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
        tenant, report = self._engine.tenant(name), progress or _discard

        def is_due(_store: MonitorStore, kind: MonitorKind) -> bool:
            return kind in kinds

        return [*self._measure_tenant(tenant, report, is_due), *self._check_isolation(report, is_due)]

    def run_due(self, name: str, progress: Progress) -> Iterator[MonitorRun]:
        """Measure what is due by its interval, and yield each run as it ends.

        Raises what `run` raises.
        """
        if (interval_s := self._settings.isolation_interval_s) is not None:
            # First of all: a leak has to be reported even if nothing else can be measured.
            yield from self._check_isolation(progress, lambda store, kind: _is_older(store, kind, interval_s))
        yield from self._measure_tenant(self._engine.tenant(name), progress, partial(self._is_due, name))

    def status(self, name: str, *, limit: int = 20) -> list[MonitorRun]:
        """Return the latest runs of a tenant, the newest first.

        Raises what `run` raises. Runs of the isolation canary belong to its own tenant.
        """
        return MonitorStore(self._engine.tenant(name)).list_runs(limit=limit)

    def next_run_in_s(self, name: str, run: MonitorRun) -> float:
        """Return the seconds between two runs of a kind.

        Raises what `run` raises.
        """
        if run.kind is MonitorKind.ISOLATION:
            return self._settings.isolation_interval_s or 0.0
        return self._interval_s(MonitorStore(self._engine.tenant(name)), name, run.kind)

    def count_samples(self, name: str) -> int:
        """Count the samples for the next run, up to `monitor.samples_per_run`.

        Raises what `run` raises.
        """
        tenant = self._engine.tenant(name)
        if (space_id := tenant.spaces.live_id()) is None:
            return 0
        store = MonitorStore(tenant)
        return len(store.list_samples(space_id, limit=self._settings.samples_per_run))

    # --- what is due -------------------------------------------------------------------------------------------------

    def _measure_tenant(
        self, tenant: Tenant, report: Progress, is_due: Callable[[MonitorStore, MonitorKind], bool]
    ) -> Iterator[MonitorRun]:
        store, space_id = MonitorStore(tenant), tenant.spaces.live_id()
        if space_id is None:
            return
        index = tenant.indexes.live_vector_index()
        if index is not None and is_due(store, MonitorKind.RECALL):
            yield self._measure_recall(store, tenant, space_id, *index, report)
        files = self._question_files(tenant.name)
        if files and is_due(store, MonitorKind.QUESTIONS):
            for collection, path in files:
                reader = self._engine.tenant(tenant.name, collection=collection, subject=EVALUATOR)
                yield self._measure_answers(store, reader, path, report)

    def _question_files(self, name: str) -> list[tuple[str | None, Path]]:
        files = ((*key.partition("/"), path) for key, path in self._settings.questions.items())
        return [(collection or None, path) for tenant, _, collection, path in files if tenant == name]

    def _is_due(self, name: str, store: MonitorStore, kind: MonitorKind) -> bool:
        last = next(iter(store.list_runs(kind, limit=1)), None)
        return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=self._interval_s(store, name, kind))

    def _interval_s(self, store: MonitorStore, name: str, kind: MonitorKind) -> float:
        """Return the interval that keeps all tenants together within `monitor.database_share`."""
        # A round has a run for each question file.
        runs = len(self._question_files(name)) if kind is MonitorKind.QUESTIONS else 1
        milliseconds = sum(run.milliseconds for run in store.list_runs(kind, limit=max(1, runs)))
        share_s = milliseconds / 1000 * max(1, store.count_vector_indexes()) / self._settings.database_share
        return max(self._settings.interval_s, share_s)

    # --- measurements ------------------------------------------------------------------------------------------------

    def _measure_recall(
        self,
        store: MonitorStore,
        tenant: Tenant,
        space_id: uuid.UUID,
        index_id: uuid.UUID,
        tuned_at: datetime,
        report: Progress,
    ) -> MonitorRun:
        samples = store.list_samples(space_id, limit=self._settings.samples_per_run)
        if len(samples) < MIN_SAMPLES:
            store.delete_samples(space_id, ())
            verdict = insufficient_samples(len(samples))
            return self._store(store, MonitorKind.RECALL, _Measurement(verdict=verdict, index_id=index_id))
        report(f"measuring recall with {len(samples)} live queries")
        try:
            live = measure_live_recall(self._engine, tenant.name, samples)
        except StatementFailed as error:
            verdict = MonitorVerdict(state=MonitorState.UNKNOWN, reason=f"the samples cannot be searched: {error}")
            return self._store(store, MonitorKind.RECALL, _Measurement(verdict=verdict, index_id=index_id))
        target = self._engine.settings.indexes.recall_target
        baseline = store.read_baseline(index_id, tuned_at)
        verdict = judge_recall(live, baseline, target, indexes=store.count_vector_indexes())
        if verdict.state is not MonitorState.UNKNOWN:
            alarms = _consecutive_alarms(store) + 1 if verdict.state is MonitorState.ALARM else 0
            verdict = replace(verdict, figures={**verdict.figures, "consecutive_alarms": alarms})
        if verdict.state is MonitorState.ALARM and self._settings.auto_repair:
            verdict = self._repair(verdict, tenant, samples, report)
        run = self._store(
            store,
            MonitorKind.RECALL,
            _Measurement(verdict=verdict, index_id=index_id, scores=live.scores, milliseconds=live.milliseconds),
        )
        store.delete_samples(space_id, samples)
        return run

    def _repair(
        self, verdict: MonitorVerdict, tenant: Tenant, samples: Sequence[Sample], report: Progress
    ) -> MonitorVerdict:
        report(f"{verdict.reason}: repairing the index")
        vectors = [sample.vector for sample in samples]
        try:
            action = tenant.indexes.repair_recall(vectors, verdict.reason, report)
        except IndexLocked as error:
            report(str(error))
            action = BUSY
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = replace(verdict, reason=f"{verdict.reason}; the repair failed: {error}")
            action = SKIPPED
        return replace(verdict, figures={**verdict.figures, "action": action or SKIPPED})

    def _measure_answers(self, store: MonitorStore, tenant: Tenant, path: Path, report: Progress) -> MonitorRun:
        started = time.perf_counter()
        try:
            judged = path == Path(JUDGED) and not path.exists()
            question_set = JudgedQuestions(tenant).build_set() if judged else read_questions(path)
            answerable = question_set.part(question_set.name, lambda question: question.answerable)
            open_reader = partial(self._open_reader, tenant)
            stale = find_stale_labels_as_asked(tenant, answerable.questions, open_reader)
            remaining = drop_gone_labels(answerable.questions, stale)
            report(f"evaluating {len(remaining)} questions of {question_set.name}")
            verdict = judge_answers({}, 0, {})
            if remaining:
                settings = self._engine.settings
                section = settings.section(EvaluationSettings)
                measures = section.model_copy(update={"measures": MEASURES})
                plan = Plan(
                    label="monitor",
                    settings=settings.model_copy(update={"evaluation": measures}),
                    collection=tenant.collection,
                    open_reader=open_reader,
                )
                evaluation = evaluate(tenant, replace(question_set, questions=remaining), plan)
                verdict = judge_answers(evaluation.measures, evaluation.questions, section.alerts)
            verdict = add_stale_labels(verdict, [label.describe() for label in stale])
        except KosmosError as error:
            verdict = MonitorVerdict(state=MonitorState.UNKNOWN, reason=str(error))
        figures = {**verdict.figures, "collection": tenant.collection, "set": path.stem}
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        measurement = _Measurement(verdict=replace(verdict, figures=figures), milliseconds=milliseconds)
        return self._store(store, MonitorKind.QUESTIONS, measurement)

    def _open_reader(self, tenant: Tenant, principals: tuple[str, ...]) -> Tenant:
        return self._engine.tenant(tenant.name, principals=principals, collection=tenant.collection, subject=EVALUATOR)

    def _check_isolation(
        self, report: Progress, is_due: Callable[[MonitorStore, MonitorKind], bool]
    ) -> Iterator[MonitorRun]:
        tenant = self._engine.tenant(isolation_canary.TENANTS[0])
        store = MonitorStore(tenant)
        if not is_due(store, MonitorKind.ISOLATION):
            return
        report("searching two tenants for each other's secrets")
        started = time.perf_counter()
        try:
            verdict = isolation_canary.check_isolation(self._engine.tenant)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = judge_isolation([], [f"the secrets could not be searched: {error}"])
            with tenant.sessions.write() as connection:
                tenant.sessions.create_tenant(connection)
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
        store.add_run(run, measurement.scores, keep_days=self._engine.settings.worker.keep_dead_days)
        return run


def _is_older(store: MonitorStore, kind: MonitorKind, seconds: float) -> bool:
    last = next(iter(store.list_runs(kind, limit=1)), None)
    return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=seconds)


def _consecutive_alarms(store: MonitorStore) -> int:
    """Return the number of alarms of the latest measurements in a row.

    Unknown ones do not count.
    """
    last = next(iter(store.list_runs(MonitorKind.RECALL, limit=1, with_unknown=False)), None)
    return 0 if last is None else int(last.figures.get("consecutive_alarms", 0))


def _discard(*_: object) -> None:
    """Ignore progress."""
