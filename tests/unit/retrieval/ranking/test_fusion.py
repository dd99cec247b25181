"""Fusion by ranks and by scores: sums worked out by hand, and an oracle in NumPy."""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.retrieval.fusion import (
    IDENTIFIER_FORMS,
    Candidate,
    Contribute,
    FusedCandidate,
    Lists,
    fuse,
    reciprocal_ranks,
    standardised_scores,
)

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))
K = 60

Fusion = Callable[[Lists, Mapping[str, Any]], list[FusedCandidate]]


def _by_ranks(lists: Lists, weights: Mapping[str, Any]) -> list[FusedCandidate]:
    return fuse(lists, weights, partial(reciprocal_ranks, k=K))


def _by_scores(lists: Lists, weights: Mapping[str, Any]) -> list[FusedCandidate]:
    return fuse(lists, weights, standardised_scores)


both = pytest.mark.parametrize("fusion", [_by_ranks, _by_scores])


def _leg(*ids: uuid.UUID) -> list[Candidate]:
    """Candidates in this order, with scores one apart."""
    return [Candidate(chunk_id=key, score=-rank, rank=rank) for rank, key in enumerate(ids, start=1)]


def _scored(scores: Mapping[uuid.UUID, float]) -> list[Candidate]:
    """Candidates with these scores, ranked as a retriever ranks them."""
    items = sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
    return [Candidate(chunk_id=key, score=score, rank=rank) for rank, (key, score) in enumerate(items, start=1)]


def _scores(fused: Sequence[FusedCandidate]) -> dict[uuid.UUID, float]:
    return {entry.chunk_id: entry.score for entry in fused}


def test_ranks__add_up_weighted_and_reciprocal() -> None:
    fused = _by_ranks({"dense": _leg(A, B), "lexical": _leg(B, C)}, {"dense": 0.7, "lexical": 0.3})
    assert [entry.chunk_id for entry in fused] == [B, A, C]
    assert fused[0].score == pytest.approx(0.7 / 62 + 0.3 / 61)
    assert fused[0].score_contributions == pytest.approx({"dense": 0.7 / 62, "lexical": 0.3 / 61})
    assert fused[1].score == pytest.approx(0.7 / 61)
    assert fused[2].score == pytest.approx(0.3 / 62)


def test_ranks__count_and_scores_do_not() -> None:
    near = [Candidate(chunk_id=A, score=0.9, rank=1), Candidate(chunk_id=B, score=0.899, rank=2)]
    far = [Candidate(chunk_id=A, score=90, rank=1), Candidate(chunk_id=B, score=0, rank=2)]
    assert _scores(_by_ranks({"a": near}, {"a": 1})) == _scores(_by_ranks({"a": far}, {"a": 1}))


def test_ranks__of_equal_scores_are_shared_so_that_the_other_list_orders_them() -> None:
    words = [Candidate(chunk_id=key, score=2.0, rank=rank) for rank, key in enumerate((A, B), start=1)]
    words.append(Candidate(chunk_id=C, score=1.0, rank=3))
    fused = _by_ranks({"dense": _leg(C, B, A), "lexical": words}, {"dense": 0.1, "lexical": 0.9})
    assert [entry.chunk_id for entry in fused] == [B, A, C]
    assert [entry.score_contributions["lexical"] for entry in fused] == pytest.approx([0.9 / 61, 0.9 / 61, 0.9 / 63])


def test_scores__are_scaled_by_mean_and_deviation() -> None:
    """Mean 3 and deviation 1: 0 is at 0 and 1 is at 6."""
    fused = _by_scores({"dense": _scored({A: 4, B: 2}), "lexical": _scored({B: 40, C: 20})}, {"dense": 1, "lexical": 2})
    assert _scores(fused) == pytest.approx({A: 4 / 6, B: 2 / 6 + 2 * 4 / 6, C: 2 * 2 / 6})
    assert [entry.chunk_id for entry in fused] == [B, A, C]
    assert fused[0].score_contributions == pytest.approx({"dense": 2 / 6, "lexical": 2 * 4 / 6})


def test_scores__far_above_all_others_have_no_bound() -> None:
    """Sixteen at 0 and one at 17: mean 1, deviation 4, so that 0 is at -11 and 1 is at 13."""
    others = [uuid.UUID(int=number) for number in range(10, 26)]
    fused = _by_scores({"a": _scored({A: 17, **dict.fromkeys(others, 0)})}, {"a": 1})
    assert _scores(fused) == pytest.approx({A: 28 / 24, **dict.fromkeys(others, 11 / 24)})


def test_scores__far_below_all_others_count_nothing_and_not_less() -> None:
    others = [uuid.UUID(int=number) for number in range(10, 26)]
    fused = _by_scores({"a": _scored({A: -17, **dict.fromkeys(others, 0)})}, {"a": 1})
    assert _scores(fused) == pytest.approx({A: 0, **dict.fromkeys(others, 13 / 24)})


@pytest.mark.parametrize("score", [0.0, -2.5, 0.1])
@pytest.mark.parametrize("ids", [(A,), (A, B, C)])
def test_scores__that_are_equal_are_half(score: float, ids: tuple[uuid.UUID, ...]) -> None:
    fused = _by_scores({"a": _scored(dict.fromkeys(ids, score))}, {"a": 0.8})
    assert [entry.chunk_id for entry in fused] == list(ids)
    assert [entry.score for entry in fused] == [0.4] * len(ids)


@both
def test_fuse__a_list_that_does_not_propose_a_chunk_adds_nothing(fusion: Fusion) -> None:
    weights = {"dense": 0.7, "lexical": 0.3}
    of_one = fusion({"dense": _leg(A, B)}, weights)
    of_both = fusion({"dense": _leg(A, B), "lexical": _leg(C)}, weights)
    assert {key: score for key, score in _scores(of_both).items() if key != C} == _scores(of_one)
    assert {entry.chunk_id: set(entry.score_contributions) for entry in of_both} == {
        A: {"dense"},
        B: {"dense"},
        C: {"lexical"},
    }


@both
def test_fuse__an_empty_list_is_as_none(fusion: Fusion) -> None:
    weights = {"dense": 0.7, "lexical": 0.3}
    assert fusion({"dense": [], "lexical": _leg(B, A)}, weights) == fusion({"lexical": _leg(B, A)}, weights)
    assert fusion({"dense": [], "lexical": []}, weights) == []
    assert fusion({}, {}) == []


@both
def test_fuse__orders_equal_scores_by_id(fusion: Fusion) -> None:
    fused = fusion({"a": _leg(C, B), "b": _leg(B, C)}, {"a": 0.5, "b": 0.5})
    assert [entry.chunk_id for entry in fused] == [B, C]
    assert fused[0].score == fused[1].score


def test_fuse__orders_by_id_where_the_same_ranks_are_in_other_lists() -> None:
    """Added up from left to right, these scores differ in their last digit."""
    ranks = {"a": {A: 8, B: 10}, "b": {A: 9, B: 8}, "c": {A: 10, B: 9}}
    lists = {
        name: [Candidate(chunk_id=key, score=0, rank=rank) for key, rank in its.items()] for name, its in ranks.items()
    }
    fused = _by_ranks(lists, dict.fromkeys(lists, 0.5))
    assert [entry.chunk_id for entry in fused] == [A, B]
    assert fused[0].score == fused[1].score


@both
def test_fuse__keeps_each_lists_own_rank_and_score(fusion: Fusion) -> None:
    fused = fusion({"a": _leg(A, B), "b": _leg(B)}, {"a": 1, "b": 1})
    entry = next(entry for entry in fused if entry.chunk_id == B)
    assert {name: (of.rank, of.score) for name, of in entry.by_list.items()} == {"a": (2, -2), "b": (1, -1)}


@both
def test_weight__of_zero_lets_candidates_in_and_adds_nothing(fusion: Fusion) -> None:
    fused = fusion({"dense": _leg(A), "lexical": _leg(C, B)}, {"dense": 1, "lexical": 0.0})
    assert [entry.chunk_id for entry in fused] == [A, B, C]
    assert [entry.score for entry in fused[1:]] == [0, 0]


@both
@pytest.mark.parametrize("weight", [-0.1, math.nan, math.inf, -math.inf, True, False, "1", None])
def test_weight__that_cannot_be_is_named(fusion: Fusion, weight: object) -> None:
    with pytest.raises(ConfigError) as error:
        fusion({"dense": _leg(A), "lexical": []}, {"dense": 1, "lexical": weight})
    assert str(error.value) == f"the weight of lexical is {weight!r}; give a number, 0 or more"


@both
def test_weight__that_is_missing_is_named(fusion: Fusion) -> None:
    with pytest.raises(ConfigError, match="the weight of dense 2 is None"):
        fusion({"dense": _leg(A), "dense 2": _leg(B)}, {"dense": 1})


@both
def test_weights__that_are_all_zero_are_refused(fusion: Fusion) -> None:
    with pytest.raises(ConfigError, match="the weights of dense, lexical are all 0; give at least one of them more"):
        fusion({"dense": _leg(A), "lexical": _leg(B)}, {"dense": 0, "lexical": 0.0, "prf": 1})


_IDS = [uuid.UUID(int=number) for number in range(12)]
# Eighths have no rounding error, so that equal scores are equal in any arithmetic.
_list = st.dictionaries(st.sampled_from(_IDS), st.integers(-1000, 1000).map(lambda number: number / 8)).map(_scored)
_lists = st.dictionaries(st.sampled_from(["dense", "lexical", "dense 2", "prf"]), _list, min_size=1)
_weights = st.fixed_dictionaries({name: st.floats(0.01, 1) for name in ("dense", "lexical", "dense 2", "prf")})


def _oracle(lists: Lists, weights: Mapping[str, float], k: int | None) -> dict[uuid.UUID, float]:
    """The formulas over a matrix of lists and chunks; by scores where `k` is None."""
    total = np.zeros(len(_IDS))
    for name, candidates in lists.items():
        at = np.array([candidate.chunk_id.int for candidate in candidates], dtype=int)
        scores = np.array([candidate.score for candidate in candidates], dtype=float)
        ranks = 1 + (scores[None, :] > scores[:, None]).sum(axis=1)
        if k is not None:
            shares = 1 / (k + ranks)
        elif len(scores) and scores.std():
            shares = np.clip(((scores - scores.mean()) / scores.std() + 3) / 6, 0, None)
        else:
            shares = np.full(len(scores), 0.5)
        total[at] += weights[name] * shares
    proposed = {candidate.chunk_id for candidates in lists.values() for candidate in candidates}
    return {key: float(total[key.int]) for key in proposed}


@given(lists=_lists, weights=_weights, k=st.one_of(st.none(), st.integers(1, 100)))
def test_fuse__equals_the_formula(lists: Lists, weights: dict[str, float], k: int | None) -> None:
    fused = fuse(lists, weights, standardised_scores if k is None else partial(reciprocal_ranks, k=k))
    assert _scores(fused) == pytest.approx(_oracle(lists, weights, k), abs=1e-12)
    assert fused == sorted(fused, key=lambda entry: (-entry.score, entry.chunk_id))
    for entry in fused:
        assert entry.score == pytest.approx(sum(entry.score_contributions.values()), abs=1e-12)
        assert (
            entry.score_contributions.keys()
            == entry.by_list.keys()
            == {n for n in lists if entry.chunk_id in _chunk_ids(lists[n])}
        )


def _chunk_ids(candidates: Sequence[Candidate]) -> set[uuid.UUID]:
    return {candidate.chunk_id for candidate in candidates}


@pytest.mark.parametrize("contribute", [partial(reciprocal_ranks, k=K), standardised_scores])
@given(lists=_lists, weights=_weights, limit=st.integers(0, 15))
def test_fuse__with_a_limit_leaves_the_best(
    contribute: Contribute, lists: Lists, weights: dict[str, float], limit: int
) -> None:
    assert fuse(lists, weights, contribute, limit=limit) == fuse(lists, weights, contribute)[:limit]


@both
@given(data=st.data(), lists=_lists, weights=_weights)
def test_fuse__does_not_depend_on_the_order_of_the_lists(
    fusion: Fusion, data: st.DataObject, lists: Lists, weights: dict[str, float]
) -> None:
    names = data.draw(st.permutations(sorted(lists)))
    assert fusion({name: lists[name] for name in names}, weights) == fusion(lists, weights)


@pytest.mark.parametrize(
    "query",
    [
        "How do I set shutdown_timeout?",
        "docker run -p 9090",
        "What does --dest do?",
        "What does getUserById return?",
        "asyncio.run",
        "std::vector",
        "files that end in .msi",
        "close()",
        "Where is XJ4471?",
        "What is C0330?",
        "error ORA-00942 on start",
        "What is PROCESS_STATE?",
        "What does UNIX stand for?",
        "option-boolean-flag",
    ],
)
def test_identifier_forms__finds_identifiers_by_their_form(query: str) -> None:
    assert IDENTIFIER_FORMS.search(query)


@pytest.mark.parametrize(
    "query",
    [
        "How much notice does a customer give?",
        "HOW DO I RESET MY PASSWORD",
        "a two-dimensional flow, e.g. at Mach 2.5",
        "reading and/or writing of 3 files.",
        "Größe: 12 µm (§ 3)",
        "Was kostet das?",
        "the end.The next sentence - and more",
    ],
)
def test_identifier_forms__finds_none_in_sentences(query: str) -> None:
    assert not IDENTIFIER_FORMS.search(query)
