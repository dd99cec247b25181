"""The formula of BM25, in one place: the write side saturates with it, the read side scores with it.

score(q, c) = Σ_t idf(t) · tf(t, c) · (k1 + 1) / (tf(t, c) + k1 · (1 - b + b · |c| / average))

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3; with the inverse
document frequency ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, as Lucene has it.
"""

import math

import numpy as np
from numpy.typing import NDArray

K1 = 1.5
"""How fast a repeated term stops counting."""
B = 0.75
"""How much of a chunk's length is held against it."""
DIMENSIONS = 1_000_000_000
"""Dimensions of a `sparsevec`, the most that pgvector allows: ids of lexemes stay below."""

_PRIOR_LENGTH = 60
_PRIOR_CHUNKS = 50


def inverse_document_frequency(chunks: int, holding: int) -> float:
    """Return the weight of a term that `holding` of `chunks` chunks hold."""
    return math.log(1 + (chunks - holding + 0.5) / (holding + 0.5))


def norms(lengths: NDArray[np.floating], average: NDArray[np.floating] | np.floating | float) -> NDArray[np.floating]:
    """Return what each chunk's length is held against it: k1 · (1 - b + b · |c| / average), shape of `lengths`."""
    relative: NDArray[np.floating] = lengths / average
    return K1 * (1 - B + B * relative)


def contributions(
    frequencies: NDArray[np.floating], norms: NDArray[np.floating], idf: NDArray[np.floating] | np.floating | float
) -> NDArray[np.floating]:
    """Return what terms add to the scores of their chunks, elementwise; the three broadcast."""
    return frequencies * (K1 + 1) / (frequencies + norms) * idf


def pivot(length: int, chunks: int) -> float:
    """Return the average length to saturate new chunks with, from the corpus as it will be with them.

    The true average of a few chunks says little about that of many, and a chunk saturated far from today's average
    widens the search of every query (storage/sql/retrieval.sql): so some chunks of usual length are counted in.
    """
    return (length + _PRIOR_LENGTH * _PRIOR_CHUNKS) / (chunks + _PRIOR_CHUNKS)


def frequencies(saturated: NDArray[np.floating], norms: NDArray[np.floating]) -> NDArray[np.float64]:
    """Solve `saturated` for the frequencies: exact for weights in single precision and frequencies up to 255.

    `norms` are those that the weights were made with, one a weight.
    """
    weights = saturated.astype(np.float64)
    return np.rint(weights * norms / (K1 + 1 - weights))
