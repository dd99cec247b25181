"""Pseudo-relevance feedback: what is like the best candidates is likely to be relevant too."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from kosmos_rag.retrieval.candidates import Leg, leg
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.storage.sql import statement

FEEDBACK = "feedback"
"""The name of the list."""

_BEST = 5


def feedback(
    connection: psycopg.Connection, scope: Mapping[str, Any], snapshot: Snapshot, candidates: Sequence[uuid.UUID]
) -> Leg:
    """Rank candidates, which come best first, by the inner product with the mean vector of the first five.

    Source: Rocchio, "Relevance feedback in information retrieval" (1971), with the best candidates taken for relevant
    and no others searched for.
    """
    best = candidates[:_BEST]
    values = {**scope, "space_id": snapshot.space_id, "best": list(best), "candidates": list(candidates)}
    rows = connection.execute(statement("pseudo_relevance_feedback"), values).fetchall()
    # No score where none of the best has a vector.
    scored = [(chunk_id, float(score)) for chunk_id, score in rows if score is not None]
    return leg(
        scored,
        depth=len(candidates),
        plan=f"likeness to the best {len(best)}",
        read={"rows": len(scored)},
        reason=None,
    )
