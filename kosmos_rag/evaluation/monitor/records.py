"""Records of the recall monitor."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kosmos_rag.core.types.serialize import Serializable


class MonitorKind(StrEnum):
    """What a run measures."""

    RECALL = "recall"
    """Recall of live queries: samples, searched again by the index and exactly."""
    QUESTIONS = "questions"
    """Questions with known answers."""
    ISOLATION = "isolation"
    """The isolation canary: two tenants, each searched for the other's secrets."""


class MonitorState(StrEnum):
    """The verdict of a run."""

    OK = "ok"
    ALARM = "alarm"
    UNKNOWN = "unknown"
    """There were too few samples, or the measurement failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MonitorRun(Serializable):
    """One run of the recall monitor over a tenant."""

    id: uuid.UUID
    at: datetime
    kind: MonitorKind
    state: MonitorState
    reason: str
    """The reason of the state, for people."""
    index_id: uuid.UUID | None
    """The measured vector index."""
    figures: Mapping[str, Any]
    """Measurements by name; docs/monitor.md lists them."""
    milliseconds: float
    """Time of one connection that the run used."""
