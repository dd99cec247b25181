"""The kinds of jobs, and what a wing gives to add jobs and maintenance."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import Job
from kosmos_rag.storage.queue import kinds

if TYPE_CHECKING:  # the supervisor of a worker needs no engine
    from kosmos_rag.engine.engine import Engine

__all__ = [
    "KERNEL",
    "OPERATORS_ONLY",
    "SYNC",
    "UPKEEP",
    "JobChannel",
    "JobCounts",
    "JobKind",
    "LazyFunction",
    "WingJobHandler",
]

KERNEL, UPKEEP, OPERATORS_ONLY, SYNC = kinds.KERNEL, kinds.UPKEEP, kinds.OPERATORS_ONLY, kinds.SYNC
JobCounts = Mapping[tuple[str, str], float]
"""What to add to the counters of the worker, by name and label; the label is empty where a counter has none."""


class JobChannel(Protocol):
    """What a handler reports to the supervisor of the worker."""

    def report_progress(self) -> None:
        """Report that the process is alive."""
        ...

    def heartbeat(self, limit_s: float) -> AbstractContextManager[object]:
        """Report progress in the background within the block.

        Args: limit_s: For how many seconds at most.
        """
        ...

    def report_gauges(self, tenant: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        """Report gauges of a tenant, which expire after `hold_s` seconds."""
        ...

    def report_counts(self, counts: JobCounts) -> None:
        """Add to the counters now: what a handler returns is lost where a later step fails."""
        ...

    def require_running(self, job: Job) -> None:
        """Raise where the worker stops or another one has the job, which is then released."""
        ...

    def finish(self, job: Job) -> None:
        """Mark a job as done in the queue."""
        ...


class WingJobHandler(Protocol):
    """Runs the jobs of one kind."""

    def run(self, job: Job, channel: JobChannel) -> JobCounts | None:
        """Run and finish a job; return what to add to the counters.

        Errors release or fail the job.
        """
        ...


@dataclass(frozen=True, slots=True)
class LazyFunction:
    """A function or class whose module the first call imports."""

    path: str
    """`module:name`."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)(*args, **options)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobKind:
    """A kind of jobs that a wing adds.

    It is pickled for the processes of the worker.
    """

    name: str
    description: str
    """What the console says that such a job does."""
    create_handler: Callable[["Engine"], WingJobHandler]
    """A function or class of a module, such as a `LazyFunction`; each process calls it once at most."""
    list_warnings: Callable[[psycopg.Connection, uuid.UUID, Settings], Iterable[str]] | None = None
    """What `doctor` warns of, for each tenant with such jobs."""


class WingMaintenance(Protocol):
    """A part of each round of maintenance."""

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        """Maintain what the wing stores of a tenant; return what to add to the counters.

        DatabaseUnavailable ends the round, which is run again.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class MaintenanceTask:
    """What a wing adds to the maintenance of each tenant.

    It is pickled for the processes of the worker.
    """

    create_handler: Callable[["Engine"], WingMaintenance]
    """A function or class of a module, such as a `LazyFunction`; each process calls it once at most."""
    list_warnings: Callable[[psycopg.Connection, uuid.UUID, Settings], Iterable[str]] | None = None
    """What `doctor` warns of, for each tenant that is maintained."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WingJobs:
    """What wings add to the worker."""

    kinds: tuple[JobKind, ...] = ()
    maintenance: tuple[MaintenanceTask, ...] = ()


NO_WINGS = WingJobs()
