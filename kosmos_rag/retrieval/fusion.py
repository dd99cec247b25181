"""One order out of several lists of candidates: by their ranks, or by their scores."""

import math
import statistics
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import Candidate

Lists: TypeAlias = Mapping[str, Sequence[Candidate]]
"""Candidates by the name of the list that proposes them, each list best first."""

_Share: TypeAlias = Callable[[Candidate], float]
"""What a list adds to the fused score of a candidate of its own."""

_SPREAD = 3
"""Standard deviations below and above the mean that are scaled to 0 and 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fused:
    """A chunk with its fused score, and what each list had of it and gave to it."""

    chunk_id: uuid.UUID
    score: float
    by_list: Mapping[str, Candidate]
    score_contributions: Mapping[str, float]
    """What each list adds to the score."""


def reciprocal_rank_fusion(
    lists: Lists, *, weights: Mapping[str, float], k: int, limit: int | None = None
) -> list[Fused]:
    """Fuse by Σ weight / (k + rank), best first: all candidates, or the best `limit`.

    Ranks count from 1; a list that does not propose a chunk adds nothing to it. Equal scores are ordered by id.
    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods" (SIGIR 2009); the weights are ours, and 1 in the paper. Raises ConfigError on impossible values.
    """
    _check(lists, weights)
    if k < 0:
        raise ConfigError(f"k of the fusion is {k}; give a number, 0 or more")

    def share_in(name: str) -> _Share:
        weight = weights[name]
        return lambda candidate: weight / (k + candidate.rank)

    return _fused(lists, share_in, limit)


def score_fusion(lists: Lists, *, weights: Mapping[str, float], limit: int | None = None) -> list[Fused]:
    """Fuse by Σ weight · standardised score, best first: all candidates, or the best `limit`.

    The scores of each list are scaled linearly so that its mean less three standard deviations is 0 and its mean plus
    three is 1; none counts less than 0, and where all scores are equal each is 0.5. A list that does not propose a
    chunk adds nothing to it. Equal scores are ordered by id. Source: the distribution-based score fusion of Mazzeschi
    (2023), without its upper bound: a score far above all others says most. Raises ConfigError on weights that cannot
    be.
    """
    _check(lists, weights)

    def share_in(name: str) -> _Share:
        weight = weights[name]
        scores = [candidate.score for candidate in lists[name]]
        reach = _SPREAD * _deviation(scores)
        if reach == 0:
            return lambda _: weight / 2
        low = statistics.fmean(scores) - reach
        return lambda candidate: weight * max(0.0, (candidate.score - low) / (2 * reach))

    return _fused(lists, share_in, limit)


def _deviation(scores: Sequence[float]) -> float:
    """Return the standard deviation of scores, exactly 0 where all are equal or there is none."""
    if not scores or min(scores) == max(scores):
        return 0.0
    # `statistics.pstdev` counts in fractions: seventeen times the time, for digits that nobody sees.
    return math.dist(scores, [statistics.fmean(scores)] * len(scores)) / math.sqrt(len(scores))


def _check(lists: Lists, weights: Mapping[str, float]) -> None:
    for name in lists:
        weight = weights.get(name)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"the weight of {name} is {weight!r}; give a number, 0 or more")
    if lists and not any(weights[name] for name in lists):
        raise ConfigError(f"the weights of {', '.join(lists)} are all 0; give at least one of them more")


def _fused(lists: Lists, share_in: Callable[[str], _Share], limit: int | None) -> list[Fused]:
    # By number, which hashes and compares in C, where an id does so in Python: there are hundreds of them.
    proposed: dict[int, tuple[dict[str, Candidate], dict[str, float]]] = {}
    for name, candidates in lists.items():
        share = share_in(name)
        for candidate in candidates:
            by_list, shares = proposed.setdefault(candidate.chunk_id.int, ({}, {}))
            by_list[name] = candidate
            shares[name] = share(candidate)
    scored = [(-math.fsum(shares.values()), number) for number, (_, shares) in proposed.items()]
    return [_entry(-score, *proposed[number]) for score, number in sorted(scored)[:limit]]


def _entry(score: float, by_list: dict[str, Candidate], shares: dict[str, float]) -> Fused:
    chunk_id = next(iter(by_list.values())).chunk_id
    return Fused(chunk_id=chunk_id, score=score, by_list=by_list, score_contributions=shares)
