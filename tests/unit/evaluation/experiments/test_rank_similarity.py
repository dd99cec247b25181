"""How alike two rankings are: by hand, and whatever they hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.evaluation.experiments.rank_similarity import overlap, rank_biased_overlap

_rankings = st.lists(st.integers(0, 15), unique=True, max_size=12)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("", "", 1.0), ("a", "", 0.0), ("ab", "ba", 1.0), ("abcd", "ab", 0.5), ("abc", "cde", 1 / 3)],
)
def test_overlap__is_the_share_of_the_longer_one(first: str, second: str, expected: float) -> None:
    assert overlap(first, second) == pytest.approx(expected)


def test_rank_biased_overlap__by_hand() -> None:
    # Shared at depths 1 to 3: 0, 2, 2. 0.1/0.9 * (2/2 * 0.81 + 2/3 * 0.729) + 2/3 * 0.729.
    assert rank_biased_overlap("abc", "bad", persistence=0.9) == pytest.approx(0.1 / 0.9 * 1.296 + 0.486)
    # The shorter one ends at 1: 0.1/0.9 * (0.9 + 0.405 + 1 * 1/2 * 0.81) + (0 / 2 + 1) * 0.81.
    assert rank_biased_overlap("a", "ab", persistence=0.9) == pytest.approx(0.1 / 0.9 * 1.71 + 0.81)


@given(_rankings, _rankings)
def test_rank_biased_overlap__is_symmetric_and_between_nothing_and_the_same(
    first: list[int], second: list[int]
) -> None:
    result = rank_biased_overlap(first, second)
    assert result == pytest.approx(rank_biased_overlap(second, first))
    assert -1e-9 <= result <= 1 + 1e-9
    assert rank_biased_overlap(first, first) == pytest.approx(1.0)
    if not set(first) & set(second) and (first or second):
        assert result == overlap(first, second) == 0


@given(st.lists(st.integers(0, 15), unique=True, min_size=3, max_size=12))
def test_rank_biased_overlap__counts_the_first_ranks_for_more(ranking: list[int]) -> None:
    swapped_first = [ranking[1], ranking[0], *ranking[2:]]
    swapped_last = [*ranking[:-2], ranking[-1], ranking[-2]]
    assert rank_biased_overlap(ranking, swapped_first) <= rank_biased_overlap(ranking, swapped_last) + 1e-9
