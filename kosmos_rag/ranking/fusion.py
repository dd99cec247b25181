"""One order out of several lists of candidates: by their ranks, or by their scores."""

import math
import statistics
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kosmos_rag.errors import ConfigError
from kosmos_rag.records import Candidate

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
    shares: Mapping[str, float]
    """What each list adds to the score."""


def reciprocal_rank_fusion(lists: Lists, *, weights: Mapping[str, float], k: int) -> list[Fused]:
    """Fuse by Σ weight / (k + rank), best first.

    Ranks count from 1; a list that does not propose a chunk adds nothing to it. Equal scores are ordered by id.
    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods" (SIGIR 2009); the weights are ours, and 1 in the paper. Raises ConfigError on weights that cannot be.
    """
    _check(lists, weights)

    def share_in(name: str) -> _Share:
        weight = weights[name]
        return lambda candidate: weight / (k + candidate.rank)

    return _fused(lists, share_in)


def score_fusion(lists: Lists, *, weights: Mapping[str, float]) -> list[Fused]:
    """Fuse by Σ weight · standardised score, best first.

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
        reach = _SPREAD * statistics.pstdev(scores) if scores else 0.0
        if reach == 0:
            return lambda _: weight / 2
        low = statistics.fmean(scores) - reach
        return lambda candidate: weight * max(0.0, (candidate.score - low) / (2 * reach))

    return _fused(lists, share_in)


def _check(lists: Lists, weights: Mapping[str, float]) -> None:
    for name in lists:
        weight = weights.get(name)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"the weight of {name} is {weight!r}; give a number, 0 or more")
    if lists and not any(weights[name] for name in lists):
        raise ConfigError(f"the weights of {', '.join(lists)} are all 0; give at least one of them more")


def _fused(lists: Lists, share_in: Callable[[str], _Share]) -> list[Fused]:
    proposed: dict[uuid.UUID, dict[str, Candidate]] = {}
    for name, candidates in lists.items():
        for candidate in candidates:
            proposed.setdefault(candidate.chunk_id, {})[name] = candidate
    share = {name: share_in(name) for name in lists}
    fused = []
    for chunk_id, by_list in proposed.items():
        shares = {name: share[name](candidate) for name, candidate in by_list.items()}
        fused.append(Fused(chunk_id=chunk_id, score=sum(shares.values()), by_list=by_list, shares=shares))
    return sorted(fused, key=lambda entry: (-entry.score, entry.chunk_id))
