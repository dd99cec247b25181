"""Candidates for judged questions."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kosmos_rag.core.types import EVERYONE
from kosmos_rag.core.types.serialize import Serializable


class Judgement(StrEnum):
    """What a person has decided about a candidate."""

    OPEN = "open"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateQuestion(Serializable):
    """A question of readers, and where its answer is by their feedback."""

    id: uuid.UUID
    """Follows from collection, question and location: the same for each reader."""
    judgement: Judgement
    collection: str | None
    """None: all collections were asked."""
    question: str
    source: str | None
    """The document with the answer; None: readers say that there is none."""
    section: str | None
    """The innermost heading above the passage; None without one."""
    lines: tuple[int, int] | None
    """First and last line, of a passage without a heading."""
    principal: str
    """What a reader needs to see the document; the question is asked with it."""
    ups: int
    """Ratings up of the passage, or, without a document, ratings with the reason `not_covered`."""
    downs: int
    clicks: int
    readers: int
    last_at: datetime

    @property
    def place(self) -> str:
        """The place of the answer, for people."""
        if self.source is None:
            return "none"
        lines = "" if self.lines is None else f", lines {self.lines[0]} to {self.lines[1]}"
        return self.source + (f", {self.section}" if self.section else lines)

    @property
    def is_public(self) -> bool:
        """Whether everyone may read the document."""
        return self.principal == EVERYONE


@dataclass(frozen=True, kw_only=True, slots=True)
class CandidateReport(Serializable):
    """Candidates of one judgement."""

    tenant: str
    judgement: Judgement
    candidates: tuple[CandidateQuestion, ...]
    """Those with the strongest evidence first."""
