"""Ranked candidate lists of the retrievers, and their fusion into one ranking."""

import math
import statistics
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.text.counts import count
from kosmos_rag.core.types import Candidate, RetrieverStats

Lists: TypeAlias = Mapping[str, Sequence[Candidate]]
"""Candidates by name of their list, each list best first."""

_SPREAD = 3
"""Standard deviations below and above the mean that are scaled to 0 and 1."""

DENSE, LEXICAL = "dense", "lexical"
PHRASE = "phrase"
"""Contribution of passages that contain the quoted phrases, where other passages do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateList:
    """Candidates of one retriever, best first, and how they were found."""

    candidates: tuple[Candidate, ...]
    explain: RetrieverStats


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryWeights:
    """Terms of a query and their weight in a collection."""

    terms: int
    total: float
    """Sum of the idf of all terms, those that no chunk contains included."""


def rank_candidates(
    scored: Iterable[tuple[uuid.UUID, float]],
    *,
    limit: int,
    plan: str,
    read: Mapping[str, int],
    reason: str | None,
    weights: QueryWeights | None = None,
) -> CandidateList:
    """Rank scored chunks, best first; equal scores are ordered by id.

    Args:
        scored: Chunk ids with scores.
        limit: Candidates to keep.
        plan: How the rows were found, for the explanation.
        read: How much was read to find them, by unit.
        reason: Why fewer than `limit` were found; None if all were.
        weights: Number and total idf of the query terms, for the coverage of the best candidate; None for no coverage.
    """
    # By number, which compares in C, while an id compares in Python: thousands of equal texts may tie.
    ranking = sorted([(-score, chunk_id.int, chunk_id) for chunk_id, score in scored])[:limit]
    coverage = terms = None
    if weights is not None:
        coverage, terms = -ranking[0][0] / weights.total if ranking and weights.total else 0.0, weights.terms
    return CandidateList(
        candidates=tuple([Candidate(entry[2], -entry[0], rank) for rank, entry in enumerate(ranking, start=1)]),
        explain=RetrieverStats(
            requested=limit,
            returned=len(ranking),
            plan=plan,
            read=dict(read),
            reason=reason,
            coverage=coverage,
            terms=terms,
        ),
    )


class FusedCandidate(NamedTuple):
    """A chunk with its fused score and its candidate in each list."""

    chunk_id: uuid.UUID
    score: float
    by_list: Mapping[str, Candidate]
    score_contributions: Mapping[str, float]
    """Contribution of each list to the score."""


def reciprocal_rank_fusion(
    lists: Lists, *, weights: Mapping[str, float], k: int, limit: int | None = None
) -> list[FusedCandidate]:
    """Fuse by Σ weight / (k + rank), best first.

    Ranks count from 1, and candidates of one list with equal scores share the first of their ranks: the other list
    orders them. A list without the chunk adds nothing. Equal sums are ordered by id.
    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods" (SIGIR 2009); the weights are ours, and 1 in the paper.

    Args:
        lists: candidates of each retriever, best first.
        weights: weight of each list.
        k: constant of the formula; the larger it is, the less the first ranks dominate.
        limit: number of fused candidates; None for all.

    Raises:
        ConfigError: a weight or `k` is invalid.
    """
    if k < 0:
        raise ConfigError(f"k of the fusion is {k}; give a number, 0 or more")
    return _fuse(
        lists, weights, lambda candidates, weight: [weight / (k + rank) for rank in _shared_ranks(candidates)], limit
    )


def _shared_ranks(candidates: Sequence[Candidate]) -> Iterator[int]:
    first: Candidate | None = None
    for candidate in candidates:
        if first is None or candidate.score != first.score:
            first = candidate
        yield first.rank


def score_fusion(lists: Lists, *, weights: Mapping[str, float], limit: int | None = None) -> list[FusedCandidate]:
    """Fuse by Σ weight · standardised score, best first.

    The scores of each list are scaled linearly so that its mean less three standard deviations is 0 and its mean plus
    three is 1; negative values count as 0, and equal scores as 0.5 each. A list without the chunk adds nothing. Equal
    scores are ordered by id. Source: the distribution-based score fusion of Mazzeschi (2023), without its upper bound:
    a score far above all others is the strongest evidence.

    Args:
        lists: candidates of each retriever, best first.
        weights: weight of each list.
        limit: number of fused candidates; None for all.

    Raises:
        ConfigError: a weight is invalid.
    """
    return _fuse(lists, weights, _scale, limit)


def _scale(candidates: Sequence[Candidate], weight: float) -> list[float]:
    """Scale the scores of a list linearly to 0 and `weight`.

    These are the values three standard deviations below and above the mean.
    """
    scores = [candidate.score for candidate in candidates]
    if not scores or min(scores) == max(scores):
        return [weight / 2] * len(scores)
    mean = statistics.fmean(scores)
    # `statistics.pstdev` computes in fractions, which takes seventeen times as long.
    reach = _SPREAD * math.dist(scores, [mean] * len(scores)) / math.sqrt(len(scores))
    low, width = mean - reach, 2 * reach
    return [weight * ((score - low) / width) if score > low else 0.0 for score in scores]


def _fuse(
    lists: Lists,
    weights: Mapping[str, float],
    contribute: Callable[[Sequence[Candidate], float], Sequence[float]],
    limit: int | None,
) -> list[FusedCandidate]:
    """Order chunks by the sum of their contributions.

    Args:
        lists: Candidates of each retriever, best first.
        weights: Weight of each list.
        contribute: Returns the contribution of each candidate of a list with this weight.
        limit: Number of fused candidates; None for all.
    """
    for name in lists:
        weight = weights.get(name)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
            raise ConfigError(f"the weight of {name} is {weight!r}; give a number, 0 or more")
    if lists and not any(weights[name] for name in lists):
        raise ConfigError(f"the weights of {', '.join(lists)} are all 0; give at least one of them more")
    contributions = {name: contribute(candidates, weights[name]) for name, candidates in lists.items()}
    # By number, which hashes and compares in C, where an id does so in Python: there are hundreds of them.
    by_list = {
        name: {candidate.chunk_id.int: at for at, candidate in enumerate(candidates)}
        for name, candidates in lists.items()
    }
    added: dict[int, list[float]] = {}
    for name, positions in by_list.items():
        for number, contribution in zip(positions, contributions[name], strict=True):
            added.setdefault(number, []).append(contribution)
    ranking = sorted([(-math.fsum(parts), number) for number, parts in added.items()])
    fused: list[FusedCandidate] = []
    # Records of the best only: most candidates are in no result.
    for negated, number in ranking[:limit]:
        entries: dict[str, Candidate] = {}
        shares: dict[str, float] = {}
        for name, positions in by_list.items():
            at = positions.get(number)
            if at is not None:
                entries[name], shares[name] = lists[name][at], contributions[name][at]
        chunk_id = next(iter(entries.values())).chunk_id
        fused.append(FusedCandidate(chunk_id=chunk_id, score=-negated, by_list=entries, score_contributions=shares))
    return fused


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """Candidates in fused order, and the lists that they come from."""

    retrievers: dict[str, CandidateList]
    fused: list[FusedCandidate]


def backfill_phrase_results(strict: Ranking, relaxed: Ranking, phrases: Sequence[str]) -> tuple[Ranking, str | None]:
    """Append results without the quoted phrases after those with them.

    Args:
        strict: Ranking of the chunks that contain the phrases.
        relaxed: Ranking of the query with its phrases as plain words.
        phrases: The phrases, for the warning.

    Returns the ranking and a warning; no warning if nothing was appended. The best score of the appended results is
    added to the scores of the first ones, so that the ranking is still ordered by score.
    """
    matching = {entry.chunk_id for entry in strict.fused}
    others = [entry for entry in relaxed.fused if entry.chunk_id not in matching]
    if not others:
        return strict, None
    bonus = others[0].score
    first = [
        entry._replace(score=entry.score + bonus, score_contributions={**entry.score_contributions, PHRASE: bonus})
        for entry in strict.fused
    ]
    quoted = ", ".join(f'"{phrase}"' for phrase in phrases)
    matches = f"{count(len(first), 'chunk')} with {quoted} first" if first else f"no chunk contains {quoted}"
    retrievers = {
        **relaxed.retrievers,
        **{f"{name} quoted": candidates for name, candidates in strict.retrievers.items()},
    }
    return (
        Ranking(retrievers=retrievers, fused=[*first, *others]),
        f"{matches}; put + before the quotes to have no others",
    )
