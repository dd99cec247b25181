"""Estimate whether the evidence answers the question, by its best unit."""

import math
from collections.abc import Sequence

from kosmos_rag.answering.evidence import Evidence

REFUSAL = "I don't have information about that in the approved knowledge base."

# Score of a unit that answers as often as not, and the steepness around it (docs/benchmarks/answers.md).
EVEN_SCORE = 0.8
STEEPNESS = 8.0


def best_evidence(evidence: Sequence[Evidence]) -> Evidence | None:
    """Return the unit with the highest score; None without units."""
    return max(evidence, key=lambda item: item.score, default=None)


def confidence(score: float) -> float:
    """Return the probability that evidence whose best unit has this score answers the question."""
    return 1 / (1 + math.exp(-STEEPNESS * (score - EVEN_SCORE)))
