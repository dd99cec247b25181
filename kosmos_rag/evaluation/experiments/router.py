"""Assign queries to the arms of an experiment, and record results."""

import hashlib
import json
import logging
import threading
import uuid
from dataclasses import replace

from cachetools import LRUCache

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import EVALUATOR, Arm, ExperimentMode, RunningExperiment, SearchResult
from kosmos_rag.engine.query_hooks import Assignment, HookContext, RoutedQuery, Treatment
from kosmos_rag.evaluation.experiments import store
from kosmos_rag.evaluation.experiments.rank_similarity import overlap, rank_biased_overlap
from kosmos_rag.evaluation.experiments.store import Result
from kosmos_rag.evaluation.metrics import EXPERIMENT_QUESTIONS

_LOG = logging.getLogger(__name__)
_ACTION = "experiment_failed"
_TREATMENTS = 32

KEPT, DROPPED, FAILED = "kept", "dropped", "failed"
"""Outcomes of a sampled query, as the metric counts them."""


def is_sampled(routed: RoutedQuery) -> bool:
    """Return whether a query is sampled, by a deterministic hash.

    hash(experiment, subject or principals, text) < share.
    """
    experiment, query = routed.experiment, routed.query
    reader = sorted(query.principals) if query.subject is None else query.subject
    digest = hashlib.sha256(json.dumps([str(experiment.id), reader, query.text]).encode()).digest()
    return int.from_bytes(digest[:8]) < experiment.share * 2**64


class StoredExperimentRouter:
    """Assigns queries to the experiments of their tenants and stores the results. Thread-safe."""

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._treatments: LRUCache[tuple[str, str], Treatment] = LRUCache(_TREATMENTS)
        self._logged: set[type[Exception]] = set()

    def assign(self, routed: RoutedQuery) -> Assignment | None:
        """Return the part of a query in the running experiment.

        The result is None if it has none. Queries of an evaluation have no part. If the treatment cannot be built, the
        control answers.
        """
        if routed.query.subject == EVALUATOR:
            return None
        if not is_sampled(routed):
            if routed.experiment.mode is ExperimentMode.SHADOW:
                return None
            return Assignment(routed=routed, treatment=None)
        try:
            treatment = self._treatment(routed.experiment, routed.settings)
        except Exception as error:  # noqa: BLE001 — an experiment never fails a query
            return self.fail(Assignment(routed=routed, treatment=None), error)
        return Assignment(routed=routed, treatment=treatment)

    def fail(self, assignment: Assignment, error: Exception) -> Assignment:
        """Return the assignment after its treatment failed: the control answers."""
        self._log_once(error)
        return replace(assignment, treatment=None, error=type(error).__name__)

    def needs_record(self, assignment: Assignment, result: SearchResult) -> bool:
        """Return whether `record` has work to do for a query."""
        if assignment.routed.experiment.mode is ExperimentMode.SERVE or assignment.error is not None:
            return True
        return assignment.treatment is not None and not result.cached

    def record(self, assignment: Assignment, result: SearchResult) -> None:
        """Store the outcome of a query.

        In shadow mode run the treatment first. For background threads.

        Args: see `ExperimentRouter.record`.
        """
        routed, treatment = assignment.routed, assignment.treatment
        if routed.experiment.mode is ExperimentMode.SERVE or assignment.error is not None:
            served = _build_result(result, assignment.arm)
            self._store(routed, replace(served, error=assignment.error))
        elif treatment is not None:
            self._compare(routed, treatment, result)

    def count_dropped(self) -> None:
        """Count a query whose outcome is not recorded."""
        self._count(DROPPED)

    def _treatment(self, experiment: RunningExperiment, settings: Settings) -> Treatment:
        """Return the treatment over the settings of the control. Raises ConfigError."""
        preset = Preset(name=experiment.name, content=experiment.content)
        key = (settings.settings_hash, preset.version)
        with self._lock:
            if key not in self._treatments:
                merged = preset.apply(settings)
                if merged.rag.reranking.enabled and not (settings.rag.reranking.enabled or self._context.reranks):
                    raise ConfigError(
                        f"rag.reranking.enabled ({experiment.name}) needs a reranker, and this process has none; set "
                        "it for the process, and false in the presets of collections that are to go without"
                    )
                self._treatments[key] = self._context.create_treatment(merged)
            return self._treatments[key]

    @tracing.start_span("kosmos.experiment")
    def _compare(self, routed: RoutedQuery, treatment: Treatment, result: SearchResult) -> None:
        """Run the treatment for the same query, and store the rank similarity."""
        control = replace(_build_result(result, Arm.CONTROL), control_ms=_subtract_embedding_ms(result))
        try:
            treatment_result = treatment.repeat(routed, result.requested)
        except Exception as error:  # noqa: BLE001 — an experiment never fails a query
            self._log_once(error)
            compared = replace(control, error=type(error).__name__)
        else:
            if treatment_result is None:
                return
            compared = _add_comparison(control, [hit.chunk_id for hit in result.hits], treatment_result)
        self._store(routed, compared)

    def _store(self, routed: RoutedQuery, result: Result) -> None:
        owner = routed.query.tenant
        try:
            with self._context.write(owner) as connection:
                store.add(connection, owner.id, routed.experiment.id, result)
        except Exception as error:  # noqa: BLE001 — an experiment never fails a query
            self._count(FAILED)
            self._log_once(error)
        else:
            self._count(KEPT if result.error is None else FAILED)

    def _log_once(self, error: Exception) -> None:
        """Log the first error of each type.

        There may be one for each query, and messages may contain its text.
        """
        with self._lock:
            if type(error) in self._logged:
                return
            self._logged.add(type(error))
        message = first_line(error) if isinstance(error, ConfigError) else type(error).__name__
        _LOG.warning("an experiment failed, the next ones are only counted: %s", message, extra={"action": _ACTION})

    def _count(self, outcome: str) -> None:
        self._context.telemetry.record(EXPERIMENT_QUESTIONS, 1.0, outcome)


def _build_result(result: SearchResult, arm: Arm) -> Result:
    milliseconds = None if result.cached else result.timings_ms["total"]
    control = arm is Arm.CONTROL
    return Result(
        retrieval_id=result.id,
        arm=arm,
        requested=result.requested,
        control_ms=milliseconds if control else None,
        treatment_ms=None if control else milliseconds,
        control_hits=result.returned if control else None,
        treatment_hits=None if control else result.returned,
        degraded=bool(result.degraded_stages),
    )


def _subtract_embedding_ms(result: SearchResult) -> float:
    """Return the milliseconds without embedding, which the treatment has cached."""
    return round(result.timings_ms["total"] - result.timings_ms.get("embed", 0.0), 3)


def _add_comparison(control: Result, control_ids: list[uuid.UUID], treatment_result: SearchResult) -> Result:
    treated_ids = [hit.chunk_id for hit in treatment_result.hits]
    return replace(
        control,
        treatment_ms=_subtract_embedding_ms(treatment_result),
        treatment_hits=treatment_result.returned,
        overlap=overlap(control_ids, treated_ids),
        rbo=rank_biased_overlap(control_ids, treated_ids),
        degraded=control.degraded or bool(treatment_result.degraded_stages),
    )
