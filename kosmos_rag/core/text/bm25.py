"""The BM25 formula.

Indexing computes the saturated term frequencies, search the scores. Frequencies and lengths are those of the analysed
text, which has the title and the defined terms twice: this is BM25F with the weights 2 for both, 1 for section and text
(docs/decisions/0040).

score(q, c) = Σ_t idf(t) · tf(t, c) · (k1 + 1) / (tf(t, c) + k1 · (1 - b + b · |c| / average))

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3; with the inverse
document frequency ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative, as Lucene has it.
"""

import math

import numpy as np
from numpy.typing import NDArray

K1 = 1.5
"""Saturation of the term frequency: the higher, the longer a repeated term adds to the score."""
B = 0.5
"""Length normalisation, 0 for none to 1 for full."""
STORED_B = 0.75
"""Length normalisation of the weights that are stored for chunks outside segments; earlier releases wrote it too."""
DIMENSIONS = 1_000_000_000
"""Dimensions of a `sparsevec`, the maximum of pgvector; ids of lexemes stay below it."""

_PRIOR_LENGTH = 60
_PRIOR_CHUNKS = 50


def inverse_document_frequency(chunks: int, document_count: int) -> float:
    """Return the idf of a term that `document_count` of `chunks` chunks contain."""
    return math.log(1 + (chunks - document_count + 0.5) / (document_count + 0.5))


def norms(
    lengths: NDArray[np.floating], average: NDArray[np.floating] | np.floating | float, b: float = B
) -> NDArray[np.floating]:
    """Return the length normalisation of chunks.

    k1 · (1 - b + b · |c| / average), one value for each chunk, in the shape of `lengths`.

    Args:
        lengths: lengths of the chunks, in lexemes.
        average: average length.
        b: strength of the normalisation; `STORED_B` for stored weights.
    """
    relative: NDArray[np.floating] = lengths / average
    return K1 * (1 - b + b * relative)


def contributions(
    frequencies: NDArray[np.floating], norms: NDArray[np.floating], idf: NDArray[np.floating] | np.floating | float
) -> NDArray[np.floating]:
    """Return the score of a term in a chunk, elementwise.

    The three arguments broadcast.

    Args:
        frequencies: occurrences of the term in the chunk.
        norms: length normalisation of the chunk.
        idf: inverse document frequency of the term.
    """
    return frequencies * (K1 + 1) / (frequencies + norms) * idf


def pivot(length: int, chunks: int) -> float:
    """Return the smoothed average chunk length, to saturate new chunks."""
    return (length + _PRIOR_LENGTH * _PRIOR_CHUNKS) / (chunks + _PRIOR_CHUNKS)


def frequencies(saturated: NDArray[np.floating], norms: NDArray[np.floating]) -> NDArray[np.float64]:
    """Recover term frequencies from saturated weights.

    Exact for float32 weights and frequencies up to 255.

    Args:
        saturated: weights as stored, with an inverse document frequency of 1.
        norms: the length normalisation that each weight was made with, by `STORED_B`, same shape.
    """
    weights = saturated.astype(np.float64)
    return np.rint(weights * norms / (K1 + 1 - weights))
