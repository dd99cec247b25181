"""Packed numbers: what goes in comes out, in the bytes that other readers expect."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pgvector import SparseVector

from kosmos_rag.core.text import bm25
from kosmos_rag.retrieval.postings import MAX_FREQUENCY
from kosmos_rag.storage.binary import (
    pack_numbers,
    sparse_entries,
    unpack_numbers,
)

_INT32 = st.integers(-(2**31), 2**31 - 1)
_WEIGHT = st.floats(min_value=2.0**-100, max_value=2.5, width=32)
_VECTOR = st.dictionaries(st.integers(1, bm25.DIMENSIONS), _WEIGHT, max_size=20)


def _encode(weights: dict[int, float]) -> bytes:
    """A vector over lexeme ids in the binary form, as pgvector's own client writes it."""
    data: bytes = SparseVector({key - 1: value for key, value in weights.items()}, bm25.DIMENSIONS).to_binary()
    return data


@given(st.lists(_INT32, max_size=50))
def test_numbers__come_back_as_they_were(serials: list[int]) -> None:
    packed = pack_numbers(np.array(serials, dtype=np.int64))
    assert packed == struct.pack(f"<{len(serials)}i", *serials)
    assert unpack_numbers(packed).tolist() == serials
    assert unpack_numbers(packed).dtype == np.int32


@given(st.lists(_VECTOR, max_size=8))
def test_sparse_entries__are_those_of_the_vectors(vectors: list[dict[int, float]]) -> None:
    read = sparse_entries([_encode(weights) for weights in vectors])
    entries = [(row, key, weights[key]) for row, weights in enumerate(vectors) for key in sorted(weights)]
    assert list(zip(read.rows.tolist(), read.lexeme_ids.tolist(), read.values.tolist(), strict=True)) == entries


@given(_VECTOR)
def test_sparse_entries__agree_with_pgvectors_own_reader(weights: dict[int, float]) -> None:
    read = sparse_entries([_encode(weights)])
    vector = SparseVector.from_binary(_encode(weights))
    assert (read.lexeme_ids - 1).tolist() == vector.indices()
    assert read.values.tolist() == vector.values()


@pytest.mark.parametrize("count", [0, 3])
def test_sparse_entries__of_vectors_without_entries_are_none(count: int) -> None:
    read = sparse_entries([_encode({})] * count)
    assert (len(read.rows), len(read.lexeme_ids), len(read.values)) == (0, 0, 0)


@given(
    frequency=st.integers(1, MAX_FREQUENCY),
    others=st.integers(0, 2_000),
    pivot=st.floats(min_value=1, max_value=5_000),
)
def test_frequencies__are_solved_out_of_stored_weights(frequency: int, others: int, pivot: float) -> None:
    """What the tail stores: the weight in single precision, and the average that it was made with, also in single."""
    length = frequency + others
    result = bm25.norms(np.array([length], dtype=np.float64), pivot, bm25.STORED_B)
    [weight] = bm25.contributions(np.array([frequency], dtype=np.float64), result, 1.0)
    read = sparse_entries([_encode({7: weight})])
    norms = bm25.norms(
        np.array([length], dtype=np.float64), np.array([np.float32(pivot)], dtype=np.float64), bm25.STORED_B
    )
    assert bm25.frequencies(read.values, norms).tolist() == [frequency]
