"""What wings add to the handling of queries: experiments, samples, observers and a meter.

The handler calls the protocols of this module. An engine gets its hooks by `Engine(..., query_hooks=)`; without them
it gets those of the wings that `kosmos_rag.wings` names and that are present.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol, cast

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.core.mounting import QUERY_HOOKS, load_present
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import (
    Answer,
    Arm,
    Context,
    ExperimentAssignment,
    ExperimentMode,
    Filter,
    RunningExperiment,
    SearchResult,
)
from kosmos_rag.retrieval.outcome import IndexedSearch, SearchOutcome
from kosmos_rag.retrieval.pipeline import RoutingChanged, SearchPipeline
from kosmos_rag.retrieval.query import Query
from kosmos_rag.retrieval.snapshot import Routing
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.tenants import TenantRef

__all__ = [
    "Assignment",
    "AuditContext",
    "Charge",
    "DeliveredResult",
    "Directory",
    "ExperimentRouter",
    "HookContext",
    "HookFactory",
    "IndexedQuery",
    "Membership",
    "Meter",
    "OpenTransaction",
    "QueryHooks",
    "ResultObserver",
    "RoutedQuery",
    "SearchSampler",
    "TenantRef",
    "Treatment",
    "charge_nobody",
    "load_query_hooks",
]

OpenTransaction = Callable[[TenantRef], AbstractContextManager[psycopg.Connection]]


@dataclass(frozen=True, kw_only=True, slots=True)
class RoutedQuery:
    """A query with the stored settings that it was routed by."""

    query: Query
    routing: Routing
    experiment: RunningExperiment
    """The experiment of the routing."""
    settings: Settings
    """Those of the control."""


class Treatment:
    """The second configuration of an experiment. Thread-safe."""

    def __init__(self, pipeline: SearchPipeline, shadow: SearchPipeline, settings_hash: str) -> None:
        """Create the treatment.

        Args:
            pipeline: Answers queries.
            shadow: The same for background queries.
        """
        self._pipeline = pipeline
        self._shadow = shadow
        self.settings_hash = settings_hash

    def search(self, routed: RoutedQuery) -> SearchOutcome:
        """Answer a query."""
        return self._pipeline.search(routed.query, routed.routing)

    def repeat(self, routed: RoutedQuery, k: int) -> SearchResult | None:
        """Answer a query again in the background.

        The result is None if the stored settings have changed: the experiment was stopped, or the control is another
        one by now.

        Args:
            k: Number of hits.
        """
        try:
            return self._shadow.search(replace(routed.query, k=k), routed.routing).result
        except RoutingChanged:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """The part of one query in an experiment."""

    routed: RoutedQuery
    treatment: Treatment | None
    """None for queries of the control arm."""
    error: str | None = None
    """Type of the error of the treatment, after which the control answered."""

    @property
    def serving(self) -> Treatment | None:
        """The treatment if it answers the query; None if the control does."""
        return None if self.routed.experiment.mode is ExperimentMode.SHADOW else self.treatment

    @property
    def arm(self) -> Arm:
        """The arm of the query."""
        return Arm.CONTROL if self.treatment is None else Arm.TREATMENT

    def annotate(self, result: SearchResult) -> SearchResult:
        """Return the result with its arm.

        With a warning if a treatment answered or failed.
        """
        experiment = self.routed.experiment
        if experiment.mode is ExperimentMode.SHADOW:
            return result
        name = f"the second configuration of the experiment {experiment.name}"
        warnings = result.warnings
        if self.error is not None:
            warnings = (*warnings, f"{name} failed ({self.error}), and the first one answered")
        elif self.treatment is not None:
            warnings = (*warnings, f"answered by {name}")
        assignment = ExperimentAssignment(experiment=experiment.name, arm=self.arm)
        return replace(result, experiment=assignment, warnings=warnings)


class ExperimentRouter(Protocol):
    """Assigns queries to experiments and records their results. Thread-safe."""

    def assign(self, routed: RoutedQuery) -> Assignment | None:
        """Return the part of a query in the running experiment; None if it has none."""
        ...

    def fail(self, assignment: Assignment, error: Exception) -> Assignment:
        """Return the assignment after its treatment failed: the control answers."""
        ...

    def needs_record(self, assignment: Assignment, result: SearchResult) -> bool:
        """Return whether `record` has work to do for a query."""
        ...

    def record(self, assignment: Assignment, result: SearchResult) -> None:
        """Store the outcome of a query. For background threads.

        Args:
            assignment: The part of the query in the experiment.
        """
        ...

    def count_dropped(self) -> None:
        """Count a query whose outcome is not recorded."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedQuery:
    """A query whose dense part only the vector index decided."""

    query: Query
    search: IndexedSearch


class SearchSampler(Protocol):
    """Selects searches, to repeat them later. Thread-safe."""

    def select(self, indexed: IndexedQuery) -> Callable[[], None] | None:
        """Return the task that stores a search, for background threads; None where it is not selected."""
        ...

    def count_dropped(self) -> None:
        """Count a sample that is not written."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveredResult:
    """A result that a reader got."""

    reader: AuditContext
    result: SearchResult | Context | Answer
    filter: Filter
    keeps_questions: bool
    """Whether the audit settings let the text of the question be stored."""
    had_evidence: bool
    """Of a refusal: whether the language model refused, although the evidence was sufficient."""
    citation_format: str
    """The format of the citation markers of an answer, `rag.context.citation_format`."""


class ResultObserver(Protocol):
    """Stores something about results. Thread-safe."""

    def observe(self, delivered: DeliveredResult) -> Callable[[], None] | None:
        """Return the task that stores it, for background threads; None where there is none."""
        ...

    def count_dropped(self) -> None:
        """Count a task that is not run."""
        ...


class Charge(Protocol):
    """Charges what a block uses to a reader."""

    def __call__(self, reader: AuditContext, quantity: usage.Quantity | None = None) -> AbstractContextManager[None]:
        """Return the context of the block. Args: see `Meter.charge`."""
        ...


def charge_nobody(reader: AuditContext, quantity: usage.Quantity | None = None) -> AbstractContextManager[None]:  # noqa: ARG001
    """Return the context of a block where nothing is measured."""
    return nullcontext()


class Meter(Protocol):
    """Measures what the readers of an engine use. Thread-safe."""

    def charge(self, reader: AuditContext, quantity: usage.Quantity | None = None) -> AbstractContextManager[None]:
        """Charge what the block uses to a reader. Raises LimitReached.

        Args:
            quantity: What is going to be used, for the limits; None for work that has been admitted.
        """
        ...

    def close(self) -> None:
        """Write what is recorded. The connections of the engine are still open."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Membership:
    """What a directory knows of a reader."""

    active: bool
    """Whether the reader may ask at all."""
    principals: tuple[str, ...]
    """Of its groups."""


class Directory(Protocol):
    """Knows the groups of readers. Thread-safe."""

    def find(self, connection: psycopg.Connection, owner: TenantRef, subject: str) -> Membership | None:
        """Return the groups of a subject; None where it is unknown.

        Args:
            connection: A transaction of the app role for the tenant.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryHooks:
    """What wings add to the handling of queries."""

    router: ExperimentRouter | None = None
    sampler: SearchSampler | None = None
    observers: tuple[ResultObserver, ...] = ()
    meter: Meter | None = None
    directory: Directory | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HookContext:
    """What an engine offers to its hooks."""

    settings: Settings
    telemetry: Telemetry
    create_treatment: Callable[[Settings], Treatment]
    """Creates the second configuration from its settings; it shares models and caches with the first."""
    reranks: bool
    """Whether a treatment can rerank without a reranker in its settings: the process has one."""
    write: OpenTransaction
    """Opens a transaction of the worker role. Raises ConfigError without `database.worker_url`."""
    append: OpenTransaction
    """Opens a transaction of the app role that only appends, on a connection of background work."""
    read: OpenTransaction
    """Opens a transaction of the app role that reads what all readers may, on the same connection."""


HookFactory = Callable[[HookContext], QueryHooks]


def load_query_hooks(context: HookContext) -> QueryHooks:
    """Create the hooks of the wings that are present.

    Observers of all wings see each result. Of two wings that add the same otherwise, the first has it.
    """
    hooks = [cast("HookFactory", factory)(context) for factory in load_present(QUERY_HOOKS).values()]
    return QueryHooks(
        router=next((wing.router for wing in hooks if wing.router is not None), None),
        sampler=next((wing.sampler for wing in hooks if wing.sampler is not None), None),
        observers=tuple(observer for wing in hooks for observer in wing.observers),
        meter=next((wing.meter for wing in hooks if wing.meter is not None), None),
        directory=next((wing.directory for wing in hooks if wing.directory is not None), None),
    )
