"""Pseudo-relevance feedback: score candidates by their similarity to the best ones."""

import uuid
from collections.abc import Sequence

from kosmos_rag.retrieval.fusion import CandidateList, rank_candidates

PRF = "prf"
"""Name of the candidate list."""
BEST = 5
"""Candidates that are taken as relevant."""


def rank_similar(scored: Sequence[tuple[uuid.UUID, float]], candidates: int) -> CandidateList:
    """Rank candidates by similarity to the mean of the first five.

    The similarity is the inner product of the vectors.

    Source: Rocchio, "Relevance feedback in information retrieval" (1971), with the best candidates taken as relevant,
    and without a second search.

    Args:
        scored: Chunk ids with similarities; without candidates that have no vector.
        candidates: Number of candidates.
    """
    return rank_candidates(
        scored,
        limit=candidates,
        plan=f"similarity to the best {min(BEST, candidates)}",
        read={"rows": len(scored)},
        reason=None,
    )
