"""Load the passages of fused candidates, equal texts as one."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.freshness import VALIDITY_KEYS, outdated_reason
from kosmos_rag.core.types import Occurrence, Passage, PlaceSpan
from kosmos_rag.retrieval.block_cache import Block
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, FusedCandidate
from kosmos_rag.retrieval.snapshot import NeedsTransaction
from kosmos_rag.storage.documents import parse_notes
from kosmos_rag.storage.sql import statement

_SPARE = 5
"""Candidates to load beyond the limit: most texts with copies have few, and all of them come in one round trip."""
_OPENING = 8
"""Texts are compared only if their first words are equal: all words take as long as the rest of a passage."""
_PLACE = tuple(Occurrence.__dataclass_fields__)


class CandidateMissing(Exception):
    """Row-level security shows no chunk for a candidate."""


@dataclass(kw_only=True, slots=True)
class _Hit:
    """A row that becomes a passage, and the places of its copies."""

    row: dict[str, Any]
    entry: FusedCandidate
    fused_rank: int
    copies: list[Occurrence] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class PassageReader:
    """Reader of the fields of passages.

    Those that are not in memory are read under row-level security.
    """

    connection: psycopg.Connection
    principals: Sequence[str]
    """Of the reader."""
    scope: Mapping[str, Any]
    """Bound values of the query."""
    departments: Mapping[str, DepartmentRule]
    """Rules of the collections that have departments."""
    block: Block | None
    """What readers of the same access control lists see at this state; None to read all passages."""
    epochs: Mapping[str, int] | None
    """Of the collections, outside a transaction: passages of a later state are refused. None in the transaction of the
    snapshot."""

    def read(self, chunk_ids: Sequence[UUID]) -> dict[int, dict[str, Any]]:
        """Return the fields of passages by chunk id.

        Raises CandidateMissing for a chunk that the reader may not read, and NeedsTransaction outside a transaction for
        passages of another state.
        """
        # The department of a passage depends on settings, which a block does not know.
        block = None if self.departments else self.block
        rows = {} if block is None else block.find_passages(self.principals, chunk_ids)
        missing = [chunk_id for chunk_id in chunk_ids if chunk_id.int not in rows]
        if not missing:
            return rows
        # As text: psycopg's adapter of lists asks for the type of each value.
        ids = "{" + ",".join([chunk_id.hex for chunk_id in missing]) + "}"
        text = statement("passages") if self.epochs is None else statement("passages_of_reader")
        cursor = self.connection.cursor(row_factory=dict_row)
        cursor.execute(text, {**self.scope, "principals": list(self.principals), "chunk_ids": ids})
        fetched = cursor.fetchall()
        if self.epochs is not None and fetched.pop()["epochs"] != self.epochs:
            raise NeedsTransaction
        loaded = {row["chunk_id"].int: row for row in fetched}
        if len(loaded) < len(missing):
            raise NeedsTransaction if self.epochs is not None else CandidateMissing
        for row in loaded.values():
            row.pop("epochs", None)
            parent = row.pop("parent_start"), row.pop("parent_end")
            principals, rule = row.pop("principals"), self.departments.get(row["collection"])
            row |= {
                "parent_span": None if parent[0] is None else parent,
                "section": tuple(row["section"]),
                "table_context": tuple(row["table_context"]),
                "place_spans": tuple([PlaceSpan(*span) for span in row["place_spans"]]),
                "notes": parse_notes(row["notes"]) if row["notes"] else (),
                "department": rule.department(row["metadata"], row["source"], principals) if rule else None,
            }
        if block is not None:
            block.put_passages(self.principals, loaded)
        return rows | loaded


def hydrate(
    reader: PassageReader, fused: Sequence[FusedCandidate], limit: int, reach: int, *, fold: bool
) -> list[Passage]:
    """Return the first passages in the order of the candidates.

    A passage with the text, the innermost heading and the department of one before it is no passage of its own: it is
    in `also_in` of that one. If only the first is out of date, it is the other way round. Of copies with one score the
    first source by name is the hit.

    Args:
        reader: Reads passages in the state that the candidates come from.
        fused: Candidates, best first.
        limit: Passages to return, as far as there are candidates.
        reach: Passages to return if the validity of one of them is limited: those below it may come up.
        fold: Whether copies are one passage.

    Raises CandidateMissing for a candidate that the reader may not read, and NeedsTransaction.
    """
    hits: list[_Hit] = []
    by_opening: defaultdict[tuple[str, ...], list[_Hit]] = defaultdict(list)
    start = 0
    while start < len(fused) and len(hits) < limit:
        batch = fused[start : start + limit - len(hits) + _SPARE]
        rows = reader.read([entry.chunk_id for entry in batch])
        for fused_rank, entry in enumerate(batch, start=start + 1):
            row = rows[entry.chunk_id.int]
            hit = _Hit(row=row, entry=entry, fused_rank=fused_rank)
            if fold:
                # A department's own copy is a hit of its own: signals prefer the department of the reader.
                words = row["text"].split(None, _OPENING)[:_OPENING]
                alike = by_opening[(row["department"] or "", *row["section"][-1:], *words)]
                original = next((other for other in alike if other.row["text"].split() == row["text"].split()), None)
                if original is not None:
                    _add_copy(original, hit)
                    continue
                alike.append(hit)
            hits.append(hit)
        start += len(batch)
        if any(not VALIDITY_KEYS.isdisjoint(hit.row["metadata"]) for hit in hits):
            limit = max(limit, reach)
    passages = []
    for rank, hit in enumerate(hits[:limit], start=1):
        dense, lexical = hit.entry.by_list.get(DENSE), hit.entry.by_list.get(LEXICAL)
        passages.append(
            Passage(
                **hit.row,
                rank=rank,
                score=hit.entry.score,
                dense_rank=dense.rank if dense else None,
                dense_score=dense.score if dense else None,
                lexical_rank=lexical.rank if lexical else None,
                lexical_score=lexical.score if lexical else None,
                fused_rank=hit.fused_rank,
                fused_score=hit.entry.score,
                score_contributions=hit.entry.score_contributions,
                rerank_score=None,
                also_in=tuple(hit.copies),
            )
        )
    return passages


def _add_copy(hit: _Hit, copy: _Hit) -> None:
    """Add a copy to a hit, or replace the hit.

    It replaces the hit if only the hit is out of date, or if both have one score and its source is the first by name:
    the hits of two equal documents are then of one of them. The other one of both is added to the places.
    """
    today = datetime.now(UTC).date()
    hit_outdated, copy_outdated = (bool(outdated_reason(either.row["metadata"], today)) for either in (hit, copy))
    tied = hit_outdated == copy_outdated and copy.entry.score == hit.entry.score
    other = copy.row
    if (hit_outdated and not copy_outdated) or (tied and copy.row["source"] < hit.row["source"]):
        other = hit.row
        hit.row, hit.entry, hit.fused_rank = copy.row, copy.entry, copy.fused_rank
    hit.copies.append(Occurrence(**{name: other[name] for name in _PLACE}))
