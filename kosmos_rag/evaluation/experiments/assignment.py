"""What a question needs while an experiment runs: which configuration answers it, and what is compared afterwards."""

import hashlib
import json
import logging
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from cachetools import LRUCache

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.metrics import EXPERIMENT_QUESTIONS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import (
    EVALUATOR,
    Arm,
    ExperimentAssignment,
    ExperimentMode,
    Filter,
    RunningExperiment,
    SearchResult,
)
from kosmos_rag.evaluation.experiments import store as storing
from kosmos_rag.evaluation.experiments.background import Background
from kosmos_rag.evaluation.experiments.rank_overlap import overlap, rank_biased_overlap
from kosmos_rag.evaluation.experiments.store import Result
from kosmos_rag.retrieval.pipeline import Retriever
from kosmos_rag.storage.audit.log import Reader
from kosmos_rag.storage.pool import Database, Role
from kosmos_rag.storage.provision import APP
from kosmos_rag.storage.tenants import TenantRef

_LOG = logging.getLogger(__name__)
_ACTION = "experiment_failed"
_WAITING = 64
_KEPT = 32

KEPT, DROPPED, FAILED = "kept", "dropped", "failed"
"""What may become of a question that takes part."""


class _Ended(Exception):
    """The experiment was stopped before its question's turn came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Second:
    """A second configuration at work."""

    retriever: Retriever
    shadow: Retriever
    """The same for afterwards: it takes nothing from those who ask."""
    version: str
    """Of its settings."""


def takes_part(running: RunningExperiment, reader: Reader, question: str) -> bool:
    """Whether a question is of the experiment's share: by a hash of who asks what, so that it is so the next time."""
    who = sorted(reader.principals) if reader.subject is None else reader.subject
    digest = hashlib.sha256(json.dumps([str(running.id), who, question]).encode()).digest()
    return int.from_bytes(digest[:8]) < running.share * 2**64


class Experiments:
    """The experiments of all tenants, as questions meet them. Thread-safe."""

    def __init__(self, database: Database, retriever: Retriever, settings: Settings, telemetry: Telemetry) -> None:
        """`retriever` is that of the process, which second configurations share models and what is kept with."""
        self._database = database
        self._retriever = retriever
        url = database.urls()["url"]
        assert url is not None, "there is always an address to ask at"
        self._apart = Role(url, role=APP, settings=settings.database.model_copy(update={"pool_size": 1}))
        self._background = Background(places=_WAITING)
        self._lock = threading.Lock()
        self._kept: LRUCache[tuple[str, str], _Second] = LRUCache(_KEPT)
        self._told: set[type[Exception]] = set()
        self._telemetry = telemetry

    def trial(self, reader: Reader, settings: Settings, version: str) -> "Trial":
        """Return what goes along with one question, under these settings of that version."""
        return Trial(self, reader, settings, version)

    def second(self, running: RunningExperiment, settings: Settings, version: str) -> _Second:
        """Return the second configuration of an experiment over these settings. Raises ConfigError."""
        preset = Preset(name=running.name, content=running.content)
        with self._lock:
            if (version, preset.version) not in self._kept:
                laid = preset.over(settings)
                if laid.rag.reranking.enabled and not (settings.rag.reranking.enabled or self._retriever.reranks):
                    raise ConfigError(
                        f"rag.reranking.enabled ({running.name}) needs a reranker, and this process has none; set it "
                        "for the process, and false in the presets of collections that are to go without"
                    )
                # No preset has such a version: what is kept of one configuration is never found by the other.
                retriever = self._retriever.under(laid, f"experiment {laid.settings_hash}")
                self._kept[version, preset.version] = _Second(
                    retriever=retriever, shadow=retriever.beside(self._apart), version=laid.settings_hash
                )
            return self._kept[version, preset.version]

    def later(self, call: Callable[[], None]) -> None:
        """Have something done when nobody waits for it; it is dropped where too much of it is waiting."""
        if not self._background.submit(call):
            self.count(DROPPED)

    def store(self, owner: TenantRef, experiment_id: uuid.UUID, result: Result) -> None:
        """Keep a result, and count it. What goes wrong is logged."""
        try:
            storing.add(self._database.worker, owner, experiment_id, result)
        except Exception as error:  # noqa: BLE001 — of no question's concern
            self.count(FAILED)
            self.tell(error)
        else:
            self.count(KEPT if result.error is None else FAILED)

    def tell(self, error: Exception) -> None:
        """Log the first error of its kind: there may be one for each question, and messages may hold what was asked."""
        with self._lock:
            if type(error) in self._told:
                return
            self._told.add(type(error))
        what = first_line(error) if isinstance(error, ConfigError) else type(error).__name__
        _LOG.warning("an experiment failed, the next ones are only counted: %s", what, extra={"action": _ACTION})

    def count(self, outcome: str) -> None:
        """Count what became of a question."""
        self._telemetry.record(EXPERIMENT_QUESTIONS, 1.0, outcome)

    def drain(self, timeout_s: float) -> bool:
        """Wait until what is to be done afterwards has been. Returns whether it has."""
        return self._background.drain(timeout_s)

    def close(self) -> None:
        """Drop what waits, and close the connection."""
        self._background.close()
        self._apart.close()


class Trial:
    """One question of one reader, and the experiment that it meets, if any. Not shared between threads."""

    def __init__(self, experiments: Experiments, reader: Reader, settings: Settings, version: str) -> None:
        self._experiments = experiments
        self._reader = reader
        self._settings = settings
        self._running: RunningExperiment | None = None
        self._second: _Second | None = None
        self._fault: str | None = None
        self._first_version = version
        self.version = version
        """That of the settings that the question was answered by."""

    def choose(self, running: RunningExperiment | None, question: str) -> Retriever | None:
        """Return who answers in the place of the first configuration; None where that one does.

        A second configuration that cannot be is no reason to leave a question without an answer: the first one answers.
        Questions of an evaluation are of no reader, and take no part.
        """
        if running is None or self._reader.subject == EVALUATOR:
            return None
        if takes_part(running, self._reader, question):
            try:
                self._second = self._experiments.second(running, self._settings, self._first_version)
            except Exception as error:  # noqa: BLE001 — of no question's concern
                self.failed(error)
        elif running.mode is ExperimentMode.SHADOW:
            return None
        self._running = running
        if running.mode is ExperimentMode.SHADOW or self._second is None:
            return None
        self.version = self._second.version
        return self._second.retriever

    def failed(self, error: Exception) -> None:
        """Have the first configuration answer: the second one cannot be, or could not answer."""
        self._experiments.tell(error)
        self._second, self._fault = None, type(error).__name__
        self.version = self._first_version

    def told(self, retrieval: SearchResult) -> SearchResult:
        """Return the retrieval with who answered, where an experiment may have changed that."""
        running = self._running
        if running is None or running.mode is ExperimentMode.SHADOW:
            return retrieval
        what = f"the second configuration of the experiment {running.name}"
        notes = retrieval.warnings
        if self._fault is not None:
            notes = (*notes, f"{what} failed ({self._fault}), and the first one answered")
        elif self._second is not None:
            notes = (*notes, f"answered by {what}")
        return replace(
            retrieval, experiment=ExperimentAssignment(experiment=running.name, arm=self._arm), warnings=notes
        )

    @property
    def _arm(self) -> Arm:
        return Arm.CONTROL if self._second is None else Arm.TREATMENT

    def given_out(self, retrieval: SearchResult, filter: Filter | None) -> None:  # noqa: A002 — the word that callers expect
        """Have the question compared, or counted, afterwards. Does not wait, and raises nothing."""
        running, second = self._running, self._second
        if running is None:
            return
        if running.mode is ExperimentMode.SERVE or self._fault is not None:
            result = replace(_served(retrieval, self._arm), error=self._fault)
            self._experiments.later(partial(self._experiments.store, self._reader.tenant, running.id, result))
        elif second is not None and not retrieval.cached:
            ids = [hit.chunk_id for hit in retrieval.hits]
            first = replace(_served(retrieval, Arm.CONTROL), control_ms=_after_embedding(retrieval))
            self._experiments.later(partial(self._compare, running, second, retrieval.question, filter, first, ids))

    @tracing.start_span("kosmos.experiment")
    def _compare(
        self,
        running: RunningExperiment,
        second: _Second,
        question: str,
        filter: Filter | None,  # noqa: A002
        first: Result,
        ids: list[uuid.UUID],
    ) -> None:
        """Ask the second configuration the same, as the same reader, and keep how like the two answers are."""
        reader = self._reader
        try:
            found = second.shadow.search(
                reader.tenant,
                reader.principals,
                question,
                k=first.requested,
                filter=filter,
                collection=reader.collection,
                choose=partial(_unless_ended, running.id),
            ).retrieval
        except _Ended:
            return
        except Exception as error:  # noqa: BLE001 — of no question's concern
            self._experiments.tell(error)
            result = replace(first, error=type(error).__name__)
        else:
            result = _compared(first, ids, found)
        self._experiments.store(reader.tenant, running.id, result)


def _unless_ended(experiment_id: uuid.UUID, running: RunningExperiment | None, question: str) -> None:  # noqa: ARG001 — as it is called
    if running is None or running.id != experiment_id:
        raise _Ended


def _served(retrieval: SearchResult, arm: Arm) -> Result:
    milliseconds = None if retrieval.cached else retrieval.timings_ms["total"]
    first = arm is Arm.CONTROL
    return Result(
        retrieval_id=retrieval.id,
        arm=arm,
        requested=retrieval.requested,
        control_ms=milliseconds if first else None,
        treatment_ms=None if first else milliseconds,
        control_hits=retrieval.returned if first else None,
        treatment_hits=None if first else retrieval.returned,
        degraded=bool(retrieval.degraded_stages),
    )


def _after_embedding(retrieval: SearchResult) -> float:
    """Return the milliseconds without the question's vector: the second one finds that of the first."""
    return round(retrieval.timings_ms["total"] - retrieval.timings_ms.get("embed", 0.0), 3)


def _compared(first: Result, ids: list[uuid.UUID], second: SearchResult) -> Result:
    others = [hit.chunk_id for hit in second.hits]
    return replace(
        first,
        treatment_ms=_after_embedding(second),
        treatment_hits=second.returned,
        overlap=overlap(ids, others),
        rbo=rank_biased_overlap(ids, others),
        degraded=first.degraded or bool(second.degraded_stages),
    )
