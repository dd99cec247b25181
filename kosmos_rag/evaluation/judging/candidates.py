"""Join feedback of readers to candidates."""

import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from kosmos_rag.core.types import EVERYONE
from kosmos_rag.evaluation.judging.records import CandidateQuestion, Judgement

MIN_CLICKERS = 2
"""Readers whose clicks make a candidate without a rating: one click on the first hit says little."""
_PUNCTUATION = " ?!.:;,\u00bf\u00a1\uff1f\u3002"
"""Around a question, also of Spanish, Chinese and Japanese."""
_NAMESPACE = uuid.UUID("6f7b0e5e-9d3b-5d0e-8a83-0a8c3a3f5b77")


class FeedbackRow(NamedTuple):
    """What one reader says about a question, in the order of the columns."""

    collection: str | None
    question: str
    subject: str
    rating: str
    at: datetime
    source: str | None
    section: Sequence[str]
    line_start: int | None
    line_end: int | None
    acl: Sequence[str]


class _Location(NamedTuple):
    collection: str | None
    question: str
    """In lower case, without white space and punctuation around it."""
    source: str | None
    section: str | None
    lines: tuple[int, int] | None


def build_candidates(rows: Iterable[FeedbackRow]) -> list[tuple[CandidateQuestion, tuple[str, ...]]]:
    """Return candidates with the readers whose feedback they are from, those with the strongest evidence first.

    Feedback on passages under one heading is joined, and so are spellings of a question that differ in case, white
    space and punctuation at the end. A candidate needs more ratings up than down, or clicks of two readers and no
    rating down.
    """
    groups: dict[_Location, list[FeedbackRow]] = defaultdict(list)
    for row in rows:
        groups[_locate(row)].append(row)
    candidates = [_build(location, members) for location, members in groups.items() if _is_supported(members)]
    candidates.sort(
        key=lambda entry: (-entry[0].ups + entry[0].downs, -entry[0].clicks, entry[0].question, entry[0].id)
    )
    return candidates


def normalise_question(text: str) -> str:
    """Return what spellings of one question have in common."""
    return " ".join(text.casefold().split()).strip(_PUNCTUATION)


def _locate(row: FeedbackRow) -> _Location:
    section = row.section[-1] if row.section else None
    has_lines = section is None and row.line_start is not None and row.line_end is not None
    return _Location(
        collection=row.collection,
        question=normalise_question(row.question),
        source=row.source,
        section=section,
        lines=(row.line_start or 1, row.line_end or 1) if has_lines else None,
    )


def _count(rows: Iterable[FeedbackRow], rating: str) -> int:
    return len({row.subject for row in rows if row.rating == rating})


def _is_supported(rows: Sequence[FeedbackRow]) -> bool:
    ups, downs, clicks = (_count(rows, rating) for rating in ("up", "down", "click"))
    return ups > downs or (clicks >= MIN_CLICKERS and not downs)


def _build(location: _Location, rows: Sequence[FeedbackRow]) -> tuple[CandidateQuestion, tuple[str, ...]]:
    newest = max(rows, key=lambda row: (row.at, row.question))
    key = [location.collection, location.question, location.source, location.section, location.lines]
    subjects = tuple(sorted({row.subject for row in rows}))
    candidate = CandidateQuestion(
        id=uuid.uuid5(_NAMESPACE, json.dumps(key)),
        judgement=Judgement.OPEN,
        collection=location.collection,
        question=newest.question,
        source=location.source,
        section=location.section,
        lines=location.lines,
        principal=_choose_principal(newest.acl),
        ups=_count(rows, "up"),
        downs=_count(rows, "down"),
        clicks=_count(rows, "click"),
        readers=len(subjects),
        last_at=newest.at,
    )
    return candidate, subjects


def _choose_principal(acl: Sequence[str]) -> str:
    """Return a principal that may read a document: everyone, else a group, else a person."""
    if EVERYONE in acl or not acl:
        return EVERYONE
    return min(acl, key=lambda principal: (principal.startswith("user:"), principal))
