"""What an evaluation is made of."""

import statistics
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

CITATION_PRECISION = "citation_precision"
"""Share of an answer's citations that stand where the question is answered."""
ABSTENTION = "abstention"
"""Whether a question was rightly answered or rightly refused."""
FALSE_ANSWERS = "false_answers"
"""Whether a question that nothing answers was answered all the same."""
FALSE_REFUSALS = "false_refusals"
"""Whether a question that something answers was refused."""
DEGRADED = "degraded"
"""Whether a stage that the settings ask for did not run: such a result may not come again."""

LOWER_IS_BETTER = frozenset({FALSE_ANSWERS, FALSE_REFUSALS, DEGRADED})


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionResult:
    """What came of one question."""

    question_id: str
    question: str
    judged: Mapping[str, int]
    """Grades of what answers it, by name; empty where nothing does."""
    ranking: tuple[str, ...]
    """What was found, the best first, by the names of `judged` where it is of those."""
    timings_ms: Mapping[str, float]
    """Milliseconds by stage; `total` is the retrieval, `answer` what answering took after it, a retrieval included."""
    measures: Mapping[str, float] = field(default_factory=dict)
    refused: bool | None = None
    """None where no answer was made."""
    confidence: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """What was measured of a tenant's retrieval with a set of questions, and what it was measured of."""

    id: uuid.UUID
    at: datetime
    tenant: str
    label: str
    """What is told of the configuration, for people."""
    set_name: str
    set_sha256: str
    collection: str | None
    principals: tuple[str, ...]
    depth: int
    questions: int
    answered: bool
    measures: Mapping[str, float]
    """Means over the questions that have the measure."""
    settings: Mapping[str, Any]
    """`rag` of the settings, whole."""
    settings_hash: str
    """A hash of them."""
    code_version: str
    index_state: Mapping[str, Any]
    """The live model with its vectors, the indexes, and the language model, where one was asked."""
    seconds: float
    results: tuple[QuestionResult, ...] = ()
    """In the order of their ids; none where an evaluation is listed."""

    @property
    def name(self) -> str:
        """How it is referred to: tenant and the beginning of its id."""
        return f"{self.tenant}/{str(self.id)[:8]}"

    def values(self, measure: str) -> dict[str, float]:
        """Return a measure by question."""
        return {result.question_id: result.measures[measure] for result in self.results if measure in result.measures}

    def timings(self) -> dict[str, list[float]]:
        """Return the milliseconds of each stage, in the order of the stages."""
        stages: dict[str, list[float]] = {}
        for result in self.results:
            for stage, milliseconds in result.timings_ms.items():
                stages.setdefault(stage, []).append(milliseconds)
        return stages


def means(results: Iterable[QuestionResult]) -> dict[str, float]:
    """Return the mean of each measure over the questions that have it."""
    values: dict[str, list[float]] = {}
    for result in results:
        for name, value in result.measures.items():
            values.setdefault(name, []).append(value)
    return {name: statistics.fmean(given) for name, given in values.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, interpolated between the two nearest values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
