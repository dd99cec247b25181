"""Records of an evaluation."""

import statistics
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

CITATION_PRECISION = "citation_precision"
"""Share of an answer's citations that point to a location of the expected answer."""
ABSTENTION = "abstention"
"""1 if an answerable question was answered, or an unanswerable one refused."""
FALSE_ANSWERS = "false_answers"
"""1 if an unanswerable question was answered."""
FALSE_REFUSALS = "false_refusals"
"""1 if an answerable question was refused."""
DEGRADED = "degraded"
"""1 if a configured stage did not run: the result may not be reproducible."""

LOWER_IS_BETTER = frozenset({FALSE_ANSWERS, FALSE_REFUSALS, DEGRADED})


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionResult:
    """Result of one question."""

    question_id: str
    question: str
    judged: Mapping[str, int]
    """Relevance grades by name; empty if the question is unanswerable."""
    ranking: tuple[str, ...]
    """Retrieved names, the best first: those of `judged` if they match."""
    timings_ms: Mapping[str, float]
    """Milliseconds by stage; `total` is the search, `answer` the answer call that follows, its own search included."""
    measures: Mapping[str, float] = field(default_factory=dict)
    refused: bool | None = None
    """None if no answer was requested."""
    confidence: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Measures of a tenant's retrieval over a question set.

    With the configuration that was measured.
    """

    id: uuid.UUID
    at: datetime
    tenant: str
    label: str
    """Description of the configuration, for people."""
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
    """All of `rag`."""
    settings_hash: str
    """A hash of them."""
    code_version: str
    index_state: Mapping[str, Any]
    """The live embedding model and its chunks, the indexes, and the language model if one was called."""
    seconds: float
    results: tuple[QuestionResult, ...] = ()
    """In the order of their ids; empty in a list of evaluations."""
    of_readers: bool = False
    """Whether the questions are judged ones, which an erasure may remove before they are stored."""

    @property
    def name(self) -> str:
        """Reference for people: tenant and the first eight digits of the id."""
        return f"{self.tenant}/{str(self.id)[:8]}"

    def values(self, measure: str) -> dict[str, float]:
        """Return a measure by question."""
        return {result.question_id: result.measures[measure] for result in self.results if measure in result.measures}

    def timings(self) -> dict[str, list[float]]:
        """Return the latencies in milliseconds by stage, in stage order."""
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
    return {name: statistics.fmean(of_name) for name, of_name in values.items()}


def percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile by linear interpolation, `share` from 0 to 1."""
    ascending = sorted(values)
    position = (len(ascending) - 1) * share
    below = int(position)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (position - below)
