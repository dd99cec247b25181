"""Records of the guard of recall, and of what became of vector indexes."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any


class MonitorKind(StrEnum):
    """What a run of the guard looks at."""

    RECALL = "recall"
    """Samples of live questions, searched again through the index and exactly."""
    QUESTIONS = "questions"
    """Questions with known answers."""
    ISOLATION = "isolation"
    """Two tenants of the guard's own, each asked for the other's secret."""


class MonitorState(StrEnum):
    """What a run comes to."""

    OK = "ok"
    ALARM = "alarm"
    UNKNOWN = "unknown"
    """Too little was there to be measured, or it could not be measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorRun:
    """One run of the guard over a tenant."""

    id: uuid.UUID
    at: datetime
    kind: MonitorKind
    state: MonitorState
    reason: str
    """In words: the figures that it goes by."""
    index_id: uuid.UUID | None
    """The vector index that was measured."""
    figures: Mapping[str, Any]
    """By name; docs/guard.md lists them."""
    milliseconds: float
    """Time of one connection that it took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexStep:
    """What was done to a vector index, and why."""

    at: datetime
    index_id: uuid.UUID
    action: str
    """`rebuilt`, `tuned`, `search_widened`, `dropped`, or `skipped`: a repair was due and could not be done."""
    reason: str
    before: Mapping[str, Any]
    """How it was searched, and what that found; of one that was built, of the one that it replaces."""
    after: Mapping[str, Any]
