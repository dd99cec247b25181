"""Records of the queue: jobs, running jobs and sync runs."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, computed_field, model_validator

from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.core.types.stored import IngestFailure


class JobState(StrEnum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    """It waits for its start time: the first, the next, or that of a retry."""
    QUEUED = "queued"
    """It waits for a worker."""
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    """It failed permanently. It is kept until it is retried or removed."""
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What a finished job means to the ledger of its run."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    GONE = "gone"
    """Removed from its source after it was listed; the run does not count it as seen."""
    EMPTY = "empty"
    """A listed file without text, such as an index page of front matter alone; the run does not count it as seen."""
    DONE = "done"
    """Of work that is not about one document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job that a worker has claimed.

    A worker with another token may not finish it.
    """

    id: uuid.UUID
    tenant_id: uuid.UUID
    tenant: str
    collection: str
    kind: str
    key: str
    payload: Mapping[str, Any]
    token: uuid.UUID
    attempt: int
    """Counts from 1."""
    lost: int
    """Workers that ended while they ran it."""
    runs: tuple[uuid.UUID, ...]
    waited_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class JobInfo(Serializable):
    """A job, as `jobs list` and `jobs show` print it."""

    id: uuid.UUID
    collection: str
    kind: str
    key: str
    payload: Annotated[Mapping[str, Any], Field(exclude=True)]
    """Never in the JSON: the description of a source may have secrets in it."""
    state: JobState
    priority: int
    run_at: datetime
    every_s: float | None
    attempt: int
    lost: int
    worker: str | None
    outcome: str | None
    code: str | None
    error: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def source(self) -> str | None:
        """The source of the document that the job is about.

        The result is None for other jobs.
        """
        source: str | None = (self.payload.get("document") or self.payload.get("entry") or {}).get("source")
        return source

    @computed_field  # type: ignore[prop-decorator]
    @property
    def warning(self) -> str | None:
        """What the job warns of: an upload replaces another one of the same name."""
        warning: str | None = self.payload.get("warning")
        return warning

    @model_validator(mode="before")
    @classmethod
    def _read_payload(cls, values: Any) -> Any:
        """Read the parts of the payload that the JSON has."""
        if not isinstance(values, Mapping) or "source" not in values:
            return values
        source, warning = values["source"], values.get("warning")
        payload = {} if source is None else {"document": {"source": source}}
        return {**values, "payload": payload | ({} if warning is None else {"warning": warning})}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCount(Serializable):
    """How many jobs of a kind are in a state."""

    kind: str
    state: JobState
    count: int
    oldest_s: float
    """Seconds that the oldest has been due; 0 where none waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo(Serializable):
    """The ledger of one pass over a source.

    Once finished: seen = new + changed + unchanged + removed + failed + cancelled.
    """

    id: uuid.UUID
    collection: str
    source: Mapping[str, Any]
    state: str
    """listing, working, finished, failed where the source could not be listed, or cancelled before it was."""
    seen: int
    new: int
    changed: int
    unchanged: int
    removed: int
    failed: int
    cancelled: int
    """Documents whose jobs were cancelled."""
    chunks: int
    failures: tuple[IngestFailure, ...]
    """The first hundred."""
    error: str | None
    started_at: datetime
    finished_at: datetime | None
