"""Records of experiments as a question meets them."""

import uuid
from dataclasses import dataclass
from enum import StrEnum


class ExperimentMode(StrEnum):
    """What happens to the share of questions that takes part."""

    SHADOW = "shadow"
    """The control answers, and the treatment searches afterwards."""
    SERVE = "serve"
    """The second configuration answers."""


class Arm(StrEnum):
    """One of the two configurations."""

    CONTROL = "control"
    """That of the tenant or the collection."""
    TREATMENT = "treatment"
    """The same under the changes of the experiment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningExperiment:
    """An experiment as a question meets it."""

    id: uuid.UUID
    name: str
    mode: ExperimentMode
    share: float
    """Of the questions, above 0 and up to 1."""
    content: str
    """The changes as JSON, in their order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentAssignment:
    """Which of the two configurations of an experiment an answer is by."""

    experiment: str
    arm: Arm
