"""Reciprocal rank fusion: sums worked out by hand, and an oracle."""

import uuid
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.ranking.fusion import reciprocal_rank_fusion
from kosmos_rag.records import Candidate

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))


def _leg(*ids: uuid.UUID) -> list[Candidate]:
    return [Candidate(chunk_id=key, score=-rank, rank=rank) for rank, key in enumerate(ids, start=1)]


def test_fuse__adds_weighted_reciprocal_ranks() -> None:
    fused = reciprocal_rank_fusion(
        {"dense": _leg(A, B), "lexical": _leg(B, C)}, weights={"dense": 0.7, "lexical": 0.3}, k=60
    )
    assert [entry.chunk_id for entry in fused] == [B, A, C]
    assert fused[0].score == pytest.approx(0.7 / 62 + 0.3 / 61)
    assert fused[1].score == pytest.approx(0.7 / 61)
    assert fused[2].score == pytest.approx(0.3 / 62)


def test_fuse__a_leg_that_does_not_propose_a_chunk_contributes_nothing() -> None:
    [entry] = reciprocal_rank_fusion({"dense": [], "lexical": _leg(A)}, weights={"dense": 0.7, "lexical": 0.3}, k=60)
    assert entry.score == pytest.approx(0.3 / 61)
    assert set(entry.by_leg) == {"lexical"}


def test_fuse__orders_equal_scores_by_id() -> None:
    fused = reciprocal_rank_fusion({"a": _leg(C, B), "b": _leg(B, C)}, weights={"a": 0.5, "b": 0.5}, k=60)
    assert [entry.chunk_id for entry in fused] == [B, C]
    assert fused[0].score == fused[1].score


def test_fuse__keeps_each_legs_own_rank_and_score() -> None:
    fused = reciprocal_rank_fusion({"a": _leg(A, B), "b": _leg(B)}, weights={"a": 1, "b": 1}, k=60)
    entry = next(entry for entry in fused if entry.chunk_id == B)
    assert (entry.by_leg["a"].rank, entry.by_leg["b"].rank) == (2, 1)


def test_fuse__no_legs_give_nothing() -> None:
    assert reciprocal_rank_fusion({}, weights={}, k=60) == []


_ids = st.lists(st.uuids(), unique=True, max_size=20)


@given(dense=_ids, lexical=_ids, shared=_ids, weight=st.floats(0, 1), k=st.integers(1, 100))
def test_fuse__equals_the_formula(
    dense: list[uuid.UUID], lexical: list[uuid.UUID], shared: list[uuid.UUID], weight: float, k: int
) -> None:
    one = list(dict.fromkeys([*dense, *shared]))
    other = list(dict.fromkeys([*shared, *lexical]))
    expected: dict[uuid.UUID, float] = defaultdict(float)
    for ids, share in ((one, weight), (other, 1 - weight)):
        for rank, key in enumerate(ids, start=1):
            expected[key] += share / (k + rank)
    fused = reciprocal_rank_fusion(
        {"one": _leg(*one), "other": _leg(*other)}, weights={"one": weight, "other": 1 - weight}, k=k
    )
    assert {entry.chunk_id: entry.score for entry in fused} == pytest.approx(expected)
    assert fused == sorted(fused, key=lambda entry: (-entry.score, entry.chunk_id))
