"""Records of the queue: what is to be done, what is being done, and what came of a pass over a source."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kosmos_rag.core.types.documents import IngestFailure


class JobState(StrEnum):
    """Where a job is in its life."""

    SCHEDULED = "scheduled"
    """It waits for its time: a first one, a next one, or that of another attempt."""
    QUEUED = "queued"
    """It waits for a worker."""
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    """It failed for good. It stays until somebody looks at it."""
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What a finished job means to the ledger of its run."""

    NEW = "new"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    DONE = "done"
    """Of work that is not about one document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job that a worker holds. Who holds another token may not finish it."""

    id: int
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
    """Workers that ended while they held it."""
    runs: tuple[uuid.UUID, ...]
    waited_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class JobInfo:
    """A job as `jobs list` and `jobs show` tell of it."""

    id: int
    collection: str
    kind: str
    key: str
    payload: Mapping[str, Any]
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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobCount:
    """How many jobs of a kind are in a state."""

    kind: str
    state: JobState
    count: int
    oldest_s: float
    """Seconds that the oldest has been due; 0 where none waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """The ledger of one pass over a source. Once finished: seen = new + changed + unchanged + removed + failed."""

    id: uuid.UUID
    collection: str
    source: Mapping[str, Any]
    state: str
    """listing, working, finished, or failed where the source could not be listed."""
    seen: int
    new: int
    changed: int
    unchanged: int
    removed: int
    failed: int
    chunks: int
    failures: tuple[IngestFailure, ...]
    """The first hundred."""
    error: str | None
    started_at: datetime
    finished_at: datetime | None
