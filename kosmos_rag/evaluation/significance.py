"""Is a difference more than chance? Paired tests over questions, with a fixed seed: same values, same answer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10_000
_SEED = 20_240_601
_CELLS = 4_000_000
"""Numbers drawn at once: rounds are taken in blocks of as many as fit."""


def randomisation_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a mean difference of zero, by flipping signs at random.

    The observed assignment counts as one of the rounds, so p is never 0. Source: Smucker, Allan and Carterette,
    "A comparison of statistical significance tests for information retrieval evaluation" (2007).
    """
    values = np.asarray(differences, dtype=np.float64)
    observed = abs(values.sum())
    generator = np.random.default_rng(_SEED)
    extreme = 0
    for rounds in _blocks(len(values)):
        signs = generator.integers(0, 2, size=(rounds, len(values)), dtype=np.int8) * 2.0 - 1.0
        # Sums in another order differ in their last digits.
        extreme += int(np.count_nonzero(np.abs(signs @ values) >= observed - 1e-9))
    return (extreme + 1) / (_ROUNDS + 1)


def bootstrap_interval(values: Sequence[float], *, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of a mean, by the percentiles of resampled means.

    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13.
    """
    given = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(_SEED)
    resampled: list[NDArray[np.float64]] = []
    for rounds in _blocks(len(given)):
        drawn = generator.integers(0, len(given), size=(rounds, len(given)))
        resampled.append(given[drawn].mean(axis=1))
    outside = (1 - confidence) / 2
    low, high = np.quantile(np.concatenate(resampled), [outside, 1 - outside])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for that there are several, in their order.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for step, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[place]))
        corrected[place] = largest
    return corrected


def _blocks(width: int) -> list[int]:
    size = max(1, min(_ROUNDS, _CELLS // max(1, width)))
    whole, rest = divmod(_ROUNDS, size)
    return [size] * whole + ([rest] if rest else [])
