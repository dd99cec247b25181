"""Load the passages of fused candidates."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.types import Passage
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, FusedCandidate
from kosmos_rag.storage.documents import notes_of
from kosmos_rag.storage.sql import statement


def hydrate(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    fused: Sequence[FusedCandidate],
    departments: Mapping[str, DepartmentRule],
) -> list[Passage]:
    """Return the passages in the order of the candidates.

    Args:
        connection: In the snapshot that the candidates come from.
        scope: Bound values of the query.
        fused: Candidates, best first.
        departments: Rules of the collections that have departments.
    """
    if not fused:
        return []
    values = {**scope, "chunk_ids": [entry.chunk_id for entry in fused]}
    cursor = connection.cursor(row_factory=dict_row).execute(statement("passages"), values)
    rows = {row["chunk_id"]: row for row in cursor.fetchall()}
    passages = []
    for rank, entry in enumerate(fused, start=1):
        row = rows[entry.chunk_id]
        dense, lexical = entry.by_list.get(DENSE), entry.by_list.get(LEXICAL)
        parent = row.pop("parent_start"), row.pop("parent_end")
        principals, rule = row.pop("principals"), departments.get(row["collection"])
        passages.append(
            Passage(
                **row
                | {name: tuple(row[name]) for name in ("section", "table_context")}
                | {"notes": notes_of(row["notes"]) if row["notes"] else ()},
                department=rule.department(row["metadata"], row["source"], principals) if rule else None,
                rank=rank,
                score=entry.score,
                dense_rank=dense.rank if dense else None,
                dense_score=dense.score if dense else None,
                lexical_rank=lexical.rank if lexical else None,
                lexical_score=lexical.score if lexical else None,
                fused_rank=rank,
                fused_score=entry.score,
                score_contributions=entry.score_contributions,
                rerank_score=None,
                parent_span=None if parent[0] is None else parent,
            )
        )
    return passages
