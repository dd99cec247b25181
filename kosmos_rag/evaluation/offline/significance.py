"""Significance tests over paired questions, with a fixed seed.

Equal values give equal results.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10_000
_SEED = 20_240_601
_CELLS = 4_000_000
"""Random numbers drawn at once: rounds are done in blocks of this size, to bound memory."""


def randomisation_p(differences: Sequence[float]) -> float:
    """Return the two-sided p-value of a mean difference.

    By random sign flips.

    The observed assignment counts as one of the rounds, so p is never 0. Source: Smucker, Allan and Carterette,
    "A comparison of statistical significance tests for information retrieval evaluation" (2007).
    """
    values = np.asarray(differences, dtype=np.float64)
    observed = abs(values.sum())
    generator = np.random.default_rng(_SEED)
    extreme = 0
    for rounds in _blocks(len(values)):
        signs = generator.integers(0, 2, size=(rounds, len(values)), dtype=np.int8) * 2.0 - 1.0
        # The order of summation changes the last digits.
        extreme += int(np.count_nonzero(np.abs(signs @ values) >= observed - 1e-9))
    return (extreme + 1) / (_ROUNDS + 1)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by the percentiles of resampled means.

    Source: Efron and Tibshirani, "An introduction to the bootstrap" (1993), chapter 13.
    """
    sample = np.asarray(values, dtype=np.float64)
    generator = np.random.default_rng(_SEED)
    resampled: list[NDArray[np.float64]] = []
    for rounds in _blocks(len(sample)):
        indices = generator.integers(0, len(sample), size=(rounds, len(sample)))
        resampled.append(sample[indices].mean(axis=1))
    low, high = np.quantile(np.concatenate(resampled), [0.025, 0.975])
    return float(low), float(high)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for multiple tests, in their order.

    Source: Holm, "A simple sequentially rejective multiple test procedure" (1979).
    """
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[index]))
        corrected[index] = largest
    return corrected


def _blocks(width: int) -> list[int]:
    size = max(1, min(_ROUNDS, _CELLS // max(1, width)))
    full_blocks, remainder = divmod(_ROUNDS, size)
    return [size] * full_blocks + ([remainder] if remainder else [])
