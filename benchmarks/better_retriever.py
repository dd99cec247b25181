"""Compare the fusion with the better one of its retrievers, question by question."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kosmos_rag.evaluation.offline.significance import bootstrap_interval

MARGIN = 0.005
"""Difference below which the fusion fails where it is significant."""


def compare_with_better(fused: Sequence[float], retrievers: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the better retriever, the difference of the fusion to it, its 95 % interval, and whether it fails.

    Args:
        fused: Figures of the fusion, by question.
        retrievers: Figures of each retriever alone, by name, of the same questions.
    """
    better = max(retrievers, key=lambda name: statistics.fmean(retrievers[name]))
    differences = np.subtract(fused, retrievers[better]).tolist()
    low, high = bootstrap_interval(differences)
    mean = statistics.fmean(differences)
    return {
        "better": better,
        "difference": round(mean, 4),
        "interval": [round(low, 4), round(high, 4)],
        "fails": mean < -MARGIN and high < 0,
    }


def exit_if_worse(comparisons: Mapping[str, Mapping[str, Any]]) -> None:
    """Print each comparison; exit with 1 where the fusion is significantly worse than the better retriever."""
    print("\nthe fusion and the better retriever alone:")
    for name, compared in comparisons.items():
        low, high = compared["interval"]
        verdict = "  SIGNIFICANTLY WORSE" if compared["fails"] else ""
        print(f"  {name:<28} {compared['difference']:+.4f} [{low:+.4f}, {high:+.4f}] to {compared['better']}{verdict}")
    if any(compared["fails"] for compared in comparisons.values()):
        raise SystemExit(1)
