"""Records of experiments: control, treatment and how they compare."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kosmos_rag.core.types.experiments import Arm, ExperimentMode
from kosmos_rag.core.types.serialize import Serializable


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentInfo(Serializable):
    """An experiment as it was started."""

    id: uuid.UUID
    name: str
    collection: str | None
    """Whose questions it is of; None for those over all collections."""
    mode: ExperimentMode
    share: float
    settings: Mapping[str, Any]
    """The changes, nested."""
    started_at: datetime
    stopped_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmReport(Serializable):
    """Results of one of the two configurations."""

    arm: Arm
    questions: int
    """Those that it ran for."""
    p50_ms: float | None
    """Of questions that no cached result answered; None without any."""
    p95_ms: float | None
    short: int
    """Questions with fewer hits than requested."""
    served: int
    """Questions whose reader got its hits."""
    up: int
    """Ratings of those."""
    down: int
    clicked: int
    """Of those, questions of which a passage was opened."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmDifference(Serializable):
    """Difference of one measure between the arms, with its significance."""

    of: str
    """`latency`, `thumbs` or `clicks`."""
    first: float
    """Milliseconds at the median, or a share."""
    second: float
    p: float | None
    """p-value of the test of no difference, corrected for several tests; None if there are too few results."""
    reason: str
    """Name of the test, or what is missing for it."""

    @property
    def significant(self) -> bool:
        """Whether the difference is significant (p < .05)."""
        return self.p is not None and self.p < 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentReport(Serializable):
    """Comparison of the two arms of an experiment, by its newest results."""

    experiment: ExperimentInfo
    results: int
    compared: int
    """Questions that both ran for."""
    overlap: float | None
    """Mean share of the hits that both have; None where none were compared."""
    rbo: float | None
    """Mean rank-biased overlap."""
    identical: int
    """Compared questions with the same hits in the same order."""
    failed: int
    """Questions that the second one ended with an error for, or could not be asked."""
    faults: Mapping[str, int]
    """Those by the type of the error, the most frequent first."""
    degraded: int
    """Questions of which a stage could not run, in one of the two."""
    arms: tuple[ArmReport, ArmReport]
    differences: tuple[ArmDifference, ...]
    shortage: str | None
    """Why the comparison is not reliable yet; None if it is."""
