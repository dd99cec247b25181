"""Pseudo-relevance feedback: score candidates by their similarity to the best ones."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from kosmos_rag.retrieval.fusion import CandidateList, rank_candidates
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.storage.sql import statement

PRF = "prf"
"""Name of the candidate list."""

_BEST = 5


def pseudo_relevance_feedback(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, candidates: Sequence[uuid.UUID]
) -> CandidateList:
    """Rank candidates by similarity to the mean of the first five.

    The similarity is the inner product of the vectors.

    Source: Rocchio, "Relevance feedback in information retrieval" (1971), with the best candidates taken as relevant,
    and without a second search.

    Args:
        connection: Of the snapshot.
        scope: Bound values of the query.
        snapshot: State of the tenant.
        candidates: Chunk ids, best first.
    """
    best = candidates[:_BEST]
    values = {**scope, "space_id": snapshot.space_id, "best": list(best), "candidates": list(candidates)}
    rows = connection.execute(statement("pseudo_relevance_feedback"), values).fetchall()
    # NULL if none of the best candidates has a vector.
    scored = [(chunk_id, float(score)) for chunk_id, score in rows if score is not None]
    return rank_candidates(
        scored,
        limit=len(candidates),
        plan=f"similarity to the best {len(best)}",
        read={"rows": len(scored)},
        reason=None,
    )
