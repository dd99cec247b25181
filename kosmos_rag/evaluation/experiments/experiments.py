"""The experiments of one tenant, for those who run them."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import ExperimentMode
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.experiments import store
from kosmos_rag.evaluation.experiments.records import ExperimentInfo, ExperimentReport
from kosmos_rag.evaluation.experiments.report import build_report
from kosmos_rag.evaluation.experiments.store import Rated


class Experiments:
    """Experiments of one tenant, or of one of its collections. Thread-safe."""

    def __init__(self, tenant: Tenant) -> None:
        """`tenant` has the scope: all collections, or one."""
        self._tenant = tenant

    def start(
        self,
        name: str,
        settings: str | Path | Mapping[str, Any],
        *,
        share: float = 0.1,
        mode: ExperimentMode | str = ExperimentMode.SHADOW,
    ) -> ExperimentInfo:
        """Start an experiment on a share of the questions.

        It applies to questions to this collection, or to all, from the next question on, in every process.

        Args:
            settings: The treatment: path of a YAML file like that of a preset, or values by dotted key.
            share: Share of the questions, above 0 and up to 1.
            mode: `shadow` answers by the control and runs the treatment afterwards, `serve` answers by the treatment.

        Raises:
            RequestError: Name, share or mode is invalid, or another experiment runs.
            ConfigError: The settings are invalid.
            DatabaseError: The experiment cannot be stored.
        """
        validate_name("experiment", name)
        if mode not in list(ExperimentMode):
            raise RequestError(f"the mode is {str(mode)[:80]!r}; use {' or '.join(ExperimentMode)}")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise RequestError(f"the share is {share!r}; give a number above 0 and up to 1")
        preset = self._tenant.parse_changes(name, settings)
        info = ExperimentInfo(
            id=uuid.uuid4(),
            name=name,
            collection=self._tenant.collection,
            mode=ExperimentMode(mode),
            share=float(share),
            settings=preset.values,
            started_at=datetime.now(UTC),
            stopped_at=None,
        )
        with self._tenant.sessions.write() as connection:
            self._tenant.sessions.create_tenant(connection)
            started = store.start(connection, self._tenant.id, info, preset)
        if not started:
            raise self._conflict_error(name)
        return info

    def _conflict_error(self, name: str) -> RequestError:
        collection = self._tenant.collection
        scope = "all collections" if collection is None else f"the collection {collection}"
        for other in self.infos():
            if other.name == name:
                return RequestError(f"there is an experiment {name} already; give this one another name")
            if other.stopped_at is None and other.collection == collection:
                return RequestError(f"the experiment {other.name} runs for questions to {scope}; stop it first")
        return RequestError(f"another experiment for questions to {scope} started at the same time; try again")

    def infos(self) -> list[ExperimentInfo]:
        """Return the tenant's experiments, those that run first, then the latest.

        Raises DatabaseError.
        """
        with self._tenant.sessions.write() as connection:
            return store.list_experiments(connection, self._tenant.id)

    def status(self, name: str) -> ExperimentReport:
        """Return how the two configurations compare so far.

        Raises RequestError where there is none, DatabaseError.
        """
        experiment = self._require_experiment(name)
        return build_report(experiment, self.list_results(experiment))

    def list_results(self, experiment: ExperimentInfo) -> list[Rated]:
        """Return the newest results of an experiment with their feedback. Raises DatabaseError."""
        with self._tenant.sessions.write() as connection:
            return store.list_results(connection, self._tenant.id, experiment.id)

    def stop(self, name: str) -> ExperimentReport:
        """Stop an experiment, and return its report.

        From the next question on. It may have ended before.

        Raises RequestError where there is none, DatabaseError.
        """
        with self._tenant.sessions.write() as connection:
            store.stop(connection, self._tenant.id, name, now=datetime.now(UTC))
        return self.status(name)

    def prune(self, *, keep_days: int) -> int:
        """Delete old results and stopped experiments; return their number.

        The worker does it by `worker.keep_experiment_days`. Raises DatabaseError.
        """
        with self._tenant.sessions.write() as connection:
            return store.prune(connection, self._tenant.id, keep_days=keep_days)

    def _require_experiment(self, name: str) -> ExperimentInfo:
        experiment = next((info for info in self.infos() if info.name == name), None)
        if experiment is None:
            raise RequestError(
                f"tenant {self._tenant.name} has no experiment {str(name)[:80]!r}; "
                f"`kosmos-rag experiment status -t {self._tenant.name}` lists them"
            )
        return experiment
