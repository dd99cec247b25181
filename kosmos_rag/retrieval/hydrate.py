"""Load the passages of fused candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, FusedCandidate
from kosmos_rag.storage.sql import statement


def hydrate(connection: psycopg.Connection, scope: Mapping[str, Any], fused: Sequence[FusedCandidate]) -> list[Passage]:
    """Return the passages in the order of the candidates.

    Args:
        connection: In the snapshot that the candidates come from.
        scope: Bound values of the query.
        fused: Candidates, best first.
    """
    if not fused:
        return []
    values = {**scope, "chunk_ids": [entry.chunk_id for entry in fused]}
    rows = {row[0]: row for row in connection.execute(statement("passages"), values).fetchall()}
    return [_passage(rank, entry, rows[entry.chunk_id]) for rank, entry in enumerate(fused, start=1)]


def _passage(rank: int, fused: FusedCandidate, row: tuple[Any, ...]) -> Passage:
    dense, lexical = fused.by_list.get(DENSE), fused.by_list.get(LEXICAL)
    return Passage(
        rank=rank,
        score=fused.score,
        chunk_id=row[0],
        document_id=row[1],
        version_id=row[2],
        version=row[3],
        source=row[4],
        title=row[5],
        media_type=row[6],
        metadata=row[7],
        chunk_index=row[8],
        section=tuple(row[9]),
        start=row[10],
        end=row[11],
        line_start=row[12],
        line_end=row[13],
        page_start=row[14],
        page_end=row[15],
        text=row[16],
        chunker=row[17],
        collection=row[18],
        dense_rank=dense.rank if dense else None,
        dense_score=dense.score if dense else None,
        lexical_rank=lexical.rank if lexical else None,
        lexical_score=lexical.score if lexical else None,
        fused_rank=rank,
        fused_score=fused.score,
        score_contributions=fused.score_contributions,
        rerank_score=None,
        parent_span=None if row[19] is None else (row[19], row[20]),
    )
