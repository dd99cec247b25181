"""Reciprocal rank fusion: one order out of several, from ranks alone."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kosmos_rag.records import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Fused:
    """A chunk with its fused score, and with the candidate that each leg proposed it by."""

    chunk_id: uuid.UUID
    score: float
    by_leg: Mapping[str, Candidate]


def reciprocal_rank_fusion(
    legs: Mapping[str, Sequence[Candidate]], *, weights: Mapping[str, float], k: int
) -> list[Fused]:
    """Fuse by Σ weight / (k + rank), best first.

    Ranks count from 1; a leg that does not propose a chunk contributes nothing to it. Equal scores are ordered by id.
    Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning
    Methods" (SIGIR 2009); the weights are ours, and 1 in the paper.
    """
    proposed: dict[uuid.UUID, dict[str, Candidate]] = {}
    for leg, candidates in legs.items():
        for candidate in candidates:
            proposed.setdefault(candidate.chunk_id, {})[leg] = candidate
    fused = [
        Fused(
            chunk_id=chunk_id,
            score=sum(weights[leg] / (k + candidate.rank) for leg, candidate in by_leg.items()),
            by_leg=by_leg,
        )
        for chunk_id, by_leg in proposed.items()
    ]
    return sorted(fused, key=lambda entry: (-entry.score, entry.chunk_id))
