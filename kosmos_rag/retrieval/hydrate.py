"""Load the passages of fused candidates, equal texts as one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import repeat
from operator import call, itemgetter
from typing import Any, TypeAlias
from uuid import UUID

from kosmos_rag.core.freshness import outdated_reason
from kosmos_rag.core.types import Note, Occurrence, Passage, PlaceSpan
from kosmos_rag.retrieval.departments import DepartmentRule
from kosmos_rag.retrieval.fusion import DENSE, LEXICAL, FusedCandidate

_SPARE = 5
"""Candidates to load beyond the limit: most texts with copies have few, and all of them come in one round trip."""
_OPENING = 8
"""Texts are compared only if their first words are equal: all words take as long as the rest of a passage."""
PassageRow: TypeAlias = dict[str, Any]
"""Fields of a passage without ranks and scores, and `principals`: those of its readers that the reader holds."""
_PLACE = tuple(Occurrence.__dataclass_fields__)
_FIELDS = tuple(Passage.__dataclass_fields__)
_FIELD_SETTERS = tuple([getattr(Passage, name).__set__ for name in _FIELDS])
_get_fields = itemgetter(*_FIELDS)


@dataclass(kw_only=True, slots=True)
class _Hit:
    """A row that becomes a passage, and the places of its copies."""

    row: dict[str, Any]
    entry: FusedCandidate
    fused_rank: int
    copies: list[Occurrence] = field(default_factory=list)
    words: list[str] | None = None
    """Of the text, where it was compared."""

    def split(self) -> list[str]:
        """Return the words of the text."""
        if self.words is None:
            self.words = self.row["text"].split()
        return self.words


def parse_passage_rows(rows: Iterable[dict[str, Any]]) -> dict[int, PassageRow]:
    """Convert rows to the values of passages, by the number of their chunk id."""
    parsed = {}
    for row in rows:
        parent_start, parent_end = row.pop("parent_start"), row.pop("parent_end")
        row["parent_span"] = None if parent_start is None else (parent_start, parent_end)
        row["section"], row["table_context"] = tuple(row["section"]), tuple(row["table_context"])
        # Most passages have neither.
        row["place_spans"] = tuple([PlaceSpan(*span) for span in row["place_spans"]]) if row["place_spans"] else ()
        row["notes"] = tuple([Note(**note) for note in row["notes"]]) if row["notes"] else ()
        row["principals"] = tuple(row["principals"])
        parsed[row["chunk_id"].int] = row
    return parsed


def hydrate(
    read: Callable[[Sequence[UUID]], Mapping[int, PassageRow]],
    fused: Sequence[FusedCandidate],
    limit: int,
    compared: int,
    reach: Callable[[Sequence[PassageRow]], int],
    departments: Mapping[str, DepartmentRule],
    *,
    today: date,
    fold: bool,
) -> list[Passage]:
    """Return the first passages in the order of the candidates.

    A passage with the text, the innermost heading and the department of one before it is no passage of its own: it is
    in `also_in` of that one. If only the first is out of date, it is the other way round. Of copies with one score the
    first source by name is the hit.

    Args:
        read: Reads passages in the state that the candidates come from.
        fused: Candidates, best first.
        limit: Passages to return, as far as there are candidates.
        compared: Rows to load for `reach`.
        reach: Returns how many passages to return because of the loaded rows: later steps may bring up those below.
        departments: Rules of the collections that have departments.
        today: Reference date of validity.
        fold: Whether copies are one passage.
    """
    hits: list[_Hit] = []
    by_opening: defaultdict[tuple[str, ...], list[_Hit]] = defaultdict(list)
    start = 0
    while start < len(fused) and len(hits) < max(limit, compared):
        batch = fused[start : start + max(limit, compared) - len(hits) + _SPARE]
        rows = read([entry.chunk_id for entry in batch])
        for fused_rank, entry in enumerate(batch, start=start + 1):
            row = rows[entry.chunk_id.int]
            principals, rule = row.pop("principals"), departments.get(row["collection"])
            row["department"] = rule.department(row["metadata"], row["source"], principals) if rule else None
            hit = _Hit(row=row, entry=entry, fused_rank=fused_rank)
            if fold:
                # A department's own copy is a hit of its own: signals prefer the department of the reader.
                words = row["text"].split(None, _OPENING)[:_OPENING]
                alike = by_opening[(row["department"] or "", *row["section"][-1:], *words)]
                original = next((other for other in alike if other.split() == hit.split()), None)
                if original is not None:
                    _add_copy(original, hit, today)
                    continue
                alike.append(hit)
            hits.append(hit)
        start += len(batch)
        limit = max(limit, reach([hit.row for hit in hits]))
    return [_build_passage(rank, hit) for rank, hit in enumerate(hits[:limit], start=1)]


def _build_passage(rank: int, hit: _Hit) -> Passage:
    """Return the passage of a hit.

    Its fields are set as its constructor sets them, in half of the time: there may be hundreds of passages.
    """
    entry = hit.entry
    dense, lexical = entry.by_list.get(DENSE), entry.by_list.get(LEXICAL)
    values = {
        **hit.row,
        "rank": rank,
        "score": entry.score,
        "dense_rank": dense.rank if dense else None,
        "dense_score": dense.score if dense else None,
        "lexical_rank": lexical.rank if lexical else None,
        "lexical_score": lexical.score if lexical else None,
        "fused_rank": hit.fused_rank,
        "fused_score": entry.score,
        "score_contributions": entry.score_contributions,
        "rerank_score": None,
        "signals": {},
        "also_in": tuple(hit.copies),
        "inner_hits": (),
    }
    passage = object.__new__(Passage)
    any(map(call, _FIELD_SETTERS, repeat(passage), _get_fields(values)))  # a setter returns None
    return passage


def _add_copy(hit: _Hit, copy: _Hit, today: date) -> None:
    """Add a copy to a hit, or replace the hit.

    It replaces the hit if only the hit is out of date, or if both have one score and its source is the first by name:
    the hits of two equal documents are then of one of them. The other one of both is added to the places.
    """
    hit_outdated, copy_outdated = (bool(outdated_reason(either.row["metadata"], today)) for either in (hit, copy))
    tied = hit_outdated == copy_outdated and copy.entry.score == hit.entry.score
    other = copy.row
    if (hit_outdated and not copy_outdated) or (tied and copy.row["source"] < hit.row["source"]):
        other = hit.row
        hit.row, hit.entry, hit.fused_rank = copy.row, copy.entry, copy.fused_rank
    hit.copies.append(Occurrence(**{name: other[name] for name in _PLACE}))
