"""Unanswered questions and their groups."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kosmos_rag.core.types.serialize import Serializable


class UnansweredReason(StrEnum):
    """Why a question has no answer."""

    NONE = "none"
    """The search had no hits."""
    REFUSED = "refused"
    """The evidence was insufficient."""
    DECLINED = "declined"
    """The language model refused, although the evidence was sufficient."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnansweredQuestion:
    """A question of one reader that was not answered, as it is stored."""

    id: uuid.UUID
    first_at: datetime
    last_at: datetime
    times: int
    collection: str | None
    """None: all collections were asked."""
    subject: str | None
    """The reader; None where the caller named none."""
    principals: tuple[str, ...]
    question: str
    reason: UnansweredReason
    group_id: uuid.UUID | None
    """None until maintenance has grouped it."""
    answered_at: datetime | None
    """When it was found to be answered; None if it is not."""
    checked_state: str | None
    """What identifies the documents and settings that it was asked with again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnowledgeGap(Serializable):
    """Similar questions that the documents did not answer."""

    id: uuid.UUID
    collection: str | None
    """None: all collections were asked."""
    words: tuple[str, ...]
    """Words that at least `gaps.min_readers` readers have used, the most frequent first."""
    question: str | None
    """A question that consists of such words; None where there is none."""
    questions: int
    """Number of distinct questions."""
    times: int
    """How often they were asked."""
    readers: int
    """Number of named readers who asked them."""
    first_at: datetime
    last_at: datetime
    new: int
    """Number of questions that were first asked in the last seven days."""
    earlier: int
    """The same for the seven days before."""
    entries: int
    """Number of stored entries: one for each reader and question."""
    answered: int
    """Number of those that are answered by now."""
    closed_at: datetime | None
    """When the last of them was found to be answered; None while one is not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GapReport(Serializable):
    """What people ask and the documents do not answer."""

    tenant: str
    recorded: bool
    """Whether `gaps.record` is on."""
    min_readers: int
    gaps: tuple[KnowledgeGap, ...]
    """Open ones first, those of most readers first."""
    hidden_gaps: int
    """Number of groups with too few readers to show them."""
    hidden_questions: int
    """Number of questions in those groups."""
    ungrouped: int
    """Number of questions that wait for maintenance."""
    new: int
    """Number of all questions that were first asked in the last seven days."""
    earlier: int
    """The same for the seven days before."""
