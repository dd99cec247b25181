"""Runs of the guard over a tenant: measure, judge, have the indexes put right, write down what was seen and done."""

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kosmos_rag.core.errors import DatabaseUnavailable, IndexLocked, KosmosError
from kosmos_rag.core.types import EVERYONE, MonitorKind, MonitorRun, MonitorState, Space
from kosmos_rag.engine.engine import Engine
from kosmos_rag.evaluation import Plan, evaluate, for_evaluation, read_questions
from kosmos_rag.evaluation.monitor import isolation_canary as permission
from kosmos_rag.evaluation.monitor.recall import Sample, remeasure
from kosmos_rag.evaluation.monitor.store import Stored
from kosmos_rag.evaluation.monitor.verdict import (
    MEASURES,
    MIN_SAMPLES,
    Verdict,
    judged_answers,
    judged_permission,
    judged_recall,
    too_few,
)
from kosmos_rag.indexing import history as log
from kosmos_rag.storage.tenants import TenantRef, create_tenant, live_space, tenant

Progress = Callable[[str], None]
"""Told what is being done, one line a step."""

BUSY = "busy"
"""What was done about low recall while other maintenance of the tenant ran: nothing, and the next run tries again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What one look came to."""

    verdict: Verdict
    index_id: uuid.UUID | None = None
    scores: tuple[float, ...] = ()
    milliseconds: float = 0.0


class RecallMonitor:
    """Watches the recall of the tenants of one engine's database, and acts on it. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings.guard
        self._database = engine.parts.database

    def run(
        self, name: str, kinds: Collection[MonitorKind] = tuple(MonitorKind), *, progress: Progress | None = None
    ) -> list[MonitorRun]:
        """Look at a tenant now, and at the secrets of the permission canary; or at these kinds of it.

        Raises ConfigError without `database.worker_url`, DatabaseError.
        """
        owner, tell = tenant(name), progress or _silent

        def due(_stored: Stored, kind: MonitorKind) -> bool:
            return kind in kinds

        return [*self._looked_at(owner, tell, due=due), *self._permission(tell, due=due)]

    def run_due(self, owner: TenantRef, progress: Progress) -> list[MonitorRun]:
        """Look at what has not been looked at for long enough. Raises what `run` raises."""
        runs: list[MonitorRun] = []
        if (every_s := self._settings.permission_every_s) is not None:
            # The first of all: a leak must be told though nothing else can be looked at.
            runs += self._permission(progress, due=lambda stored, kind: _older(stored, kind, every_s))
        return [*runs, *self._looked_at(owner, progress, due=self._is_due)]

    def status(self, name: str, *, limit: int = 20) -> list[MonitorRun]:
        """Return the latest runs, the newest first; the permission canary's are of its own tenant. Raises as `run`."""
        return Stored(self._database, tenant(name)).runs(limit=limit)

    def wait_s(self, owner: TenantRef, run: MonitorRun) -> float:
        """Return how long a tenant waits after a run. Raises as `run`."""
        if run.kind is MonitorKind.ISOLATION:
            return self._settings.permission_every_s or 0.0
        return self._wait_s(Stored(self._database, owner), run)

    def waiting(self, name: str) -> int:
        """Return how many samples wait to be measured, up to as many as one run takes. Raises as `run`."""
        owner = tenant(name)
        if (space := self._space(owner)) is None:
            return 0
        return len(Stored(self._database, owner).samples(space.id, limit=self._settings.samples))

    # --- what there is to look at ------------------------------------------------------------------------------------

    def _looked_at(
        self, owner: TenantRef, tell: Progress, *, due: Callable[[Stored, MonitorKind], bool]
    ) -> Iterator[MonitorRun]:
        stored, space = Stored(self._database, owner), self._space(owner)
        if space is None:
            return
        index = self._index(owner)
        if index is not None and due(stored, MonitorKind.RECALL):
            yield self._recall(stored, owner, space, *index, tell)
        files = self._question_files(owner)
        if files and due(stored, MonitorKind.QUESTIONS):
            for collection, path in files:
                yield self._questions(stored, owner, collection, path, tell)

    def _space(self, owner: TenantRef) -> Space | None:
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            return live_space(connection, owner.id)

    def _index(self, owner: TenantRef) -> tuple[uuid.UUID, datetime] | None:
        """Return the index that questions are answered by, and when it was last measured."""
        return self._engine.parts.indexes.in_use(owner)

    def _question_files(self, owner: TenantRef) -> list[tuple[str | None, Path]]:
        named = ((*key.partition("/"), path) for key, path in self._settings.questions.items())
        return [(collection or None, path) for name, _, collection, path in named if name == owner.name]

    def _is_due(self, stored: Stored, kind: MonitorKind) -> bool:
        last = next(iter(stored.runs(kind, limit=1)), None)
        return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=self._wait_s(stored, last))

    def _wait_s(self, stored: Stored, run: MonitorRun) -> float:
        """Keep to the guard's share of the database, which all tenants with an index share."""
        share_s = run.milliseconds / 1000 * max(1, stored.vector_indexes()) / self._settings.database_share
        return max(self._settings.every_s, share_s)

    # --- looks -------------------------------------------------------------------------------------------------------

    def _recall(
        self, stored: Stored, owner: TenantRef, space: Space, index_id: uuid.UUID, since: datetime, tell: Progress
    ) -> MonitorRun:
        samples = stored.samples(space.id, limit=self._settings.samples)
        if len(samples) < MIN_SAMPLES:
            stored.forget(space.id, ())
            return self._kept(stored, MonitorKind.RECALL, _Seen(verdict=too_few(len(samples)), index_id=index_id))
        tell(f"searching {len(samples)} questions again, by index and exactly")
        found = remeasure(self._database.app, owner, samples, self._settings)
        target = self._engine.settings.indexes.recall_target
        verdict = judged_recall(found, stored.baseline(index_id, since), target, indexes=stored.vector_indexes())
        if verdict.state is not MonitorState.UNKNOWN:
            row = _alarms_in_a_row(stored) + 1 if verdict.state is MonitorState.ALARM else 0
            verdict = replace(verdict, figures={**verdict.figures, "alarms_in_a_row": row})
        if verdict.state is MonitorState.ALARM and self._settings.act:
            verdict = self._acted_on(verdict, owner, samples, tell)
        run = self._kept(
            stored,
            MonitorKind.RECALL,
            _Seen(verdict=verdict, index_id=index_id, scores=found.scores, milliseconds=found.milliseconds),
        )
        stored.forget(space.id, samples)
        return run

    def _acted_on(self, verdict: Verdict, owner: TenantRef, samples: Sequence[Sample], tell: Progress) -> Verdict:
        tell(f"{verdict.reason}: putting it right")
        vectors = [sample.vector for sample in samples]
        try:
            action = self._engine.parts.indexes.restore(owner, vectors, verdict.reason, tell)
        except IndexLocked as error:
            tell(str(error))
            action = BUSY
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = replace(verdict, reason=f"{verdict.reason}; it could not be put right: {error}")
            action = log.SKIPPED
        return replace(verdict, figures={**verdict.figures, "action": action or log.SKIPPED})

    def _questions(
        self, stored: Stored, owner: TenantRef, collection: str | None, path: Path, tell: Progress
    ) -> MonitorRun:
        started = time.perf_counter()
        try:
            asked = read_questions(path)
            answerable = asked.part(asked.name, lambda question: question.answerable)
            tell(f"asking the {len(answerable.questions)} questions of {asked.name}")
            verdict = judged_answers({}, 0, {})
            if answerable.questions:
                settings = for_evaluation(self._engine.settings)
                measured = settings.evaluation.model_copy(update={"measures": MEASURES})
                plan = Plan(
                    label="guard",
                    settings=settings.model_copy(update={"evaluation": measured}),
                    collection=collection,
                )
                found = evaluate(self._engine.tenant(owner.name, collection=collection), answerable, plan)
                verdict = judged_answers(found.measures, found.questions, settings.evaluation.alerts)
        except KosmosError as error:
            verdict = Verdict(state=MonitorState.UNKNOWN, reason=str(error))
        figures = {**verdict.figures, "collection": collection, "set": path.stem}
        seen = _Seen(
            verdict=replace(verdict, figures=figures), milliseconds=round((time.perf_counter() - started) * 1000, 1)
        )
        return self._kept(stored, MonitorKind.QUESTIONS, seen)

    def _permission(self, tell: Progress, *, due: Callable[[Stored, MonitorKind], bool]) -> Iterator[MonitorRun]:
        owner = tenant(permission.TENANTS[0])
        stored = Stored(self._database, owner)
        if not due(stored, MonitorKind.ISOLATION):
            return
        tell("asking two tenants for each other's secrets")
        started = time.perf_counter()
        try:
            verdict = permission.check(self._engine.tenant)
        except DatabaseUnavailable:
            raise
        except KosmosError as error:
            verdict = judged_permission([], [f"the secrets could not be asked for: {error}"])
            with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
                create_tenant(connection, owner, now=datetime.now(UTC))
        milliseconds = round((time.perf_counter() - started) * 1000, 1)
        yield self._kept(stored, MonitorKind.ISOLATION, _Seen(verdict=verdict, milliseconds=milliseconds))

    def _kept(self, stored: Stored, kind: MonitorKind, seen: _Seen) -> MonitorRun:
        run = MonitorRun(
            id=uuid.uuid4(),
            at=datetime.now(UTC),
            kind=kind,
            state=seen.verdict.state,
            reason=seen.verdict.reason,
            index_id=seen.index_id,
            figures=seen.verdict.figures,
            milliseconds=seen.milliseconds,
        )
        stored.keep(run, seen.scores, keep_days=self._engine.settings.worker.keep_dead_days)
        return run


def _older(stored: Stored, kind: MonitorKind, seconds: float) -> bool:
    last = next(iter(stored.runs(kind, limit=1)), None)
    return last is None or datetime.now(UTC) - last.at >= timedelta(seconds=seconds)


def _alarms_in_a_row(stored: Stored) -> int:
    """Return how many of the latest measurements came to an alarm; those that came to nothing do not count."""
    known = (run for run in stored.runs(MonitorKind.RECALL, limit=20) if run.state is not MonitorState.UNKNOWN)
    last = next(known, None)
    return 0 if last is None else int(last.figures.get("alarms_in_a_row", 0))


def _silent(*_: object) -> None:
    """Tell nobody."""
