"""Numbers as bytes: the arrays of postings and segments, and the binary form of a `sparsevec`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_FREQUENCY = 255
"""Positions that a tsvector keeps of one lexeme, and so the largest term frequency."""


def pack_numbers(numbers: NDArray[np.integer]) -> bytes:
    """Return offsets, serials or lengths as little-endian int32."""
    packed: bytes = numbers.astype("<i4").tobytes()
    return packed


def unpack_numbers(packed: bytes) -> NDArray[np.int32]:
    """Return what `pack_numbers` packed, as a view of the bytes."""
    return np.frombuffer(packed, dtype="<i4")


def pack_frequencies(frequencies: NDArray[np.number]) -> bytes:
    """Return term frequencies as one byte each."""
    packed: bytes = np.minimum(frequencies, MAX_FREQUENCY).astype(np.uint8).tobytes()
    return packed


def unpack_frequencies(packed: bytes) -> NDArray[np.uint8]:
    """Return what `pack_frequencies` packed, as a view of the bytes."""
    return np.frombuffer(packed, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """Entries of several sparse vectors, one after the other."""

    rows: NDArray[np.intp]
    """Which vector an entry is of, from 0, ascending."""
    lexeme_ids: NDArray[np.int64]
    """Ascending within a row."""
    values: NDArray[np.float32]


def sparse_entries(vectors: Sequence[bytes]) -> Weights:
    """Read vectors as `sparsevec_send` writes them: dimensions, count and a reserved word, then indices and values.

    All are big-endian and four bytes wide, indices from 0; ids of lexemes count from 1.
    """
    counts = [int.from_bytes(vector[4:8], "big") for vector in vectors]
    indices = b"".join(vector[12 : 12 + 4 * count] for vector, count in zip(vectors, counts, strict=True))
    values = b"".join(vector[12 + 4 * count :] for vector, count in zip(vectors, counts, strict=True))
    return Weights(
        rows=np.repeat(np.arange(len(vectors)), counts),
        lexeme_ids=np.frombuffer(indices, dtype=">i4").astype(np.int64) + 1,
        values=np.frombuffer(values, dtype=">f4").astype(np.float32),
    )
