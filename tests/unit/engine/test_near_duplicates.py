"""Signatures of documents estimate the resemblance of their texts."""

import random
from itertools import combinations

import numpy as np
import pytest

from kosmos_rag.answering.select import resemblance
from kosmos_rag.engine.near_duplicates import THRESHOLD, compute_signature

_FAR = 0.2


def _shingles(rng: random.Random, vocabulary: int, size: int) -> frozenset[tuple[str, ...]]:
    return frozenset((f"word{rng.randrange(vocabulary)}", "and", "another") for _ in range(size))


def _estimate(first: frozenset[tuple[str, ...]], second: frozenset[tuple[str, ...]]) -> float:
    return float(np.mean(compute_signature(first) == compute_signature(second)))


@pytest.mark.parametrize("size", [1, 30, 1_500])
def test_compute_signature__of_equal_sets_is_equal(size: int) -> None:
    first = _shingles(random.Random(1), 10_000, size)
    assert _estimate(first, frozenset(list(first)[::-1])) == 1.0


def test_compute_signature__estimates_the_resemblance_of_sets() -> None:
    rng = random.Random(2)
    base = _shingles(rng, 10_000, 800)
    documents = [base]
    for share in (0.02, 0.1, 0.2, 0.3, 0.5, 1.0):
        shared = frozenset(rng.sample(sorted(base), int(len(base) * (1 - share))))
        documents.append(shared | _shingles(rng, 10_000, len(base) - len(shared)))
    errors = [_estimate(*pair) - resemblance(*pair) for pair in combinations(documents, 2)]
    assert max(map(abs, errors)) < _FAR, "a near-duplicate may be missed"
    assert abs(float(np.mean(errors))) < 0.03


def test_compute_signature__misses_no_pair_at_the_threshold() -> None:
    """300 pairs of sets whose resemblance is the threshold: the worst case of the estimate."""
    rng = random.Random(3)
    estimates = []
    for number in range(300):
        shared = frozenset((f"shared{number}", str(index), "") for index in range(80))
        first, second = (
            shared | {(f"own{number}", str(index), str(rng.random())) for index in range(10)} for _ in range(2)
        )
        assert resemblance(first, second) == THRESHOLD
        estimates.append(_estimate(first, second))
    assert min(estimates) >= THRESHOLD - _FAR
    assert np.mean(estimates) == pytest.approx(THRESHOLD, abs=0.02)
