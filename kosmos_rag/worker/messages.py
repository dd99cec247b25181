"""What a supervisor and its processes say to each other, over a pipe."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kosmos_rag.records import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Begin:
    """To a process: work on these jobs."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """To a process: these are no longer yours; what is written of them will be refused."""

    tokens: frozenset[uuid.UUID]


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """To a process: end what you have begun, give back what you have not, and exit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """To the supervisor: I can take jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """To the supervisor: I live, these jobs have ended, and this has happened since the last time."""

    ended: frozenset[uuid.UUID] = frozenset()
    counts: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By the name of a counter and the value of its label, empty where it has none."""
    measured: Mapping[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    """Of a tenant, by the name of the gauge and its own: the value, and for how many seconds it holds."""


ToProcess = Begin | Drop | Stop
ToSupervisor = Ready | Progress
