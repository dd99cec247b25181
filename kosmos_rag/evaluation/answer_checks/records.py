"""Sampled answers and what their checks found."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kosmos_rag.core.types import AnswerSentence, ContextPassage
from kosmos_rag.core.types.serialize import Serializable


class AnswerVerdict(StrEnum):
    """What the check of an answer found."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    """The cited passages do not support a sentence, or a quote is not the cited text."""
    OUTDATED = "outdated"
    """A quote is no longer in a document that the reader may read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CitedAnswer(Serializable):
    """What the check of an answer needs. It is stored until the check."""

    text: str | None
    """Of a generated answer; None where the answer consists of its quotes."""
    quotes: tuple[AnswerSentence, ...]
    passages: tuple[ContextPassage, ...]
    """Those that a generated answer cites."""
    citation_format: str | None = None
    """The format of its markers when it was generated; None for the present one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitingAnswer:
    """A sampled answer that waits for its check, and its reader."""

    id: uuid.UUID
    collection: str | None
    """None: all collections were asked."""
    principals: tuple[str, ...]
    answer: Mapping[str, Any]
    """The members of a `CitedAnswer`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCheckCounts(Serializable):
    """Sampled answers and refusals of a collection, with their checks and the feedback of their readers."""

    collection: str | None
    """None: all collections were asked."""
    answers: int
    supported: int
    unsupported: int
    """Answers with a sentence that the cited passages do not support."""
    outdated: int
    """Answers with a quote that is no longer in a document that their reader may read."""
    waiting: int
    """Answers that the next maintenance checks."""
    rated_up: int
    rated_down: int
    refusals: int
    confirmed: int
    """Refusals that their reader rated up, or as not covered by the documents."""
    disputed: int
    """Refusals that their reader rated down for another reason, or of which the reader rated a passage up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCheckReport(Serializable):
    """What the checks of sampled answers found, by collection."""

    tenant: str
    share: float
    """The share of answers that is sampled now."""
    keep_days: int
    collections: tuple[AnswerCheckCounts, ...]
    """Those with most answers first."""
