"""Have the scores changed? Two samples compared by the Kolmogorov-Smirnov distance."""

import math
from collections.abc import Sequence

import numpy as np

_ALPHA = 0.001
"""Chance of an alarm where nothing has changed, in a round over all indexes: every ten minutes, one a week."""


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the largest difference of the shares of two samples that lie below a value."""
    one, other = np.sort(first), np.sort(second)
    values = np.concatenate([one, other])
    shares = [np.searchsorted(sample, values, side="right") / len(sample) for sample in (one, other)]
    return float(np.max(np.abs(shares[0] - shares[1])))


def limit(first: int, second: int, *, among: int = 1) -> float:
    """Return the distance that two samples of one distribution, of so many values, hardly ever exceed.

    Where so many pairs are compared in a round, hardly ever any of them (Bonferroni).

    Source: Smirnov, "Table for estimating the goodness of fit of empirical distributions" (1948), by the first term of
    its series.
    """
    return math.sqrt(-math.log(_ALPHA / max(1, among) / 2) / 2) * math.sqrt((first + second) / (first * second))
