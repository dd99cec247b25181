"""Load the passages of fused candidates, equal texts as one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.freshness import VALIDITY_KEYS, outdated_reason
from kosmos_rag.core.types import Occurrence, Passage, PlaceSpan
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, FusedCandidate
from kosmos_rag.storage.documents import notes_of
from kosmos_rag.storage.sql import statement

_SPARE = 5
"""Candidates to load beyond the limit: most texts with copies have few, and all of them come in one round trip."""
_PLACE = tuple(Occurrence.__dataclass_fields__)


class CandidateMissing(Exception):
    """Row-level security shows no chunk for a candidate."""


def hydrate(
    connection: psycopg.Connection,
    scope: Mapping[str, Any],
    fused: Sequence[FusedCandidate],
    departments: Mapping[str, DepartmentRule],
    limit: int,
    reach: int,
    *,
    fold: bool,
) -> list[Passage]:
    """Return the first passages in the order of the candidates.

    A passage with the text, the innermost heading and the department of one before it is no passage of its own: it is
    in `also_in` of that one. If only the first is out of date, it is the other way round. Of copies with one score the
    first source by name is the hit.

    Args:
        connection: In the snapshot that the candidates come from.
        scope: Bound values of the query.
        fused: Candidates, best first.
        departments: Rules of the collections that have departments.
        limit: Passages to return, as far as there are candidates.
        reach: Passages to return if the validity of one of them is limited: those below it may come up.
        fold: Whether copies are one passage.

    Raises CandidateMissing for a candidate that the reader may not read.
    """
    passages: dict[tuple[str, ...], Passage] = {}
    copies: dict[tuple[str, ...], list[Occurrence]] = {}
    start = 0
    while start < len(fused) and len(passages) < limit:
        batch = fused[start : start + limit - len(passages) + _SPARE]
        # As text: psycopg's adapter of lists asks for the type of each value.
        values = {**scope, "chunk_ids": "{" + ",".join([entry.chunk_id.hex for entry in batch]) + "}"}
        cursor = connection.cursor(row_factory=dict_row).execute(statement("passages"), values)
        rows = {row["chunk_id"]: row for row in cursor.fetchall()}
        if len(rows) < len(batch):
            raise CandidateMissing
        for rank, entry in enumerate(batch, start=start + 1):
            row = rows[entry.chunk_id]
            parent = row.pop("parent_start"), row.pop("parent_end")
            principals, rule = row.pop("principals"), departments.get(row["collection"])
            row |= {
                "section": tuple(row["section"]),
                "table_context": tuple(row["table_context"]),
                "place_spans": tuple([PlaceSpan(*span) for span in row["place_spans"]]),
                "department": rule.department(row["metadata"], row["source"], principals) if rule else None,
            }
            # A department's own copy is a hit of its own: signals prefer the department of the reader.
            same = (" ".join(row["text"].split()), row["department"] or "", *row["section"][-1:])
            key = same if fold else (str(entry.chunk_id),)
            known = passages.get(key)
            if known is not None and not _replaces(row, entry.score, known, copies.setdefault(key, [])):
                continue
            dense, lexical = entry.by_list.get(DENSE), entry.by_list.get(LEXICAL)
            passages[key] = Passage(
                **row | {"notes": notes_of(row["notes"]) if row["notes"] else ()},
                rank=len(passages) + 1 if known is None else known.rank,
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
        start += len(batch)
        if any(not VALIDITY_KEYS.isdisjoint(passage.metadata) for passage in passages.values()):
            limit = max(limit, reach)
    kept = list(passages.items())[:limit]
    return [replace(one, also_in=tuple(copies[key])) if key in copies else one for key, one in kept]


def _replaces(row: Mapping[str, Any], score: float, known: Passage, places: list[Occurrence]) -> bool:
    """Return whether a copy replaces a hit.

    It does if only the hit is out of date, or if both have one score and its source is the first by name: the hits of
    two equal documents are then of one of them. The other one of both is added to the places.
    """
    today = datetime.now(UTC).date()
    hit_outdated, copy_outdated = (bool(outdated_reason(found, today)) for found in (known.metadata, row["metadata"]))
    tied = hit_outdated == copy_outdated and score == known.score
    replaces = (hit_outdated and not copy_outdated) or (tied and row["source"] < known.source)
    place = {name: getattr(known, name) for name in _PLACE} if replaces else {name: row[name] for name in _PLACE}
    places.append(Occurrence(**place))
    return replaces
