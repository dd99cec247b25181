"""Records of the log of retrievals: who asked what, was given which passages, and what they thought of them."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

EVALUATOR = "kosmos-rag eval"
"""The subject of what an evaluation asks: in the log like any other, and not among what failed somebody."""


class AuditKind(StrEnum):
    """What was asked for."""

    SEARCH = "search"
    CONTEXT = "context"
    ANSWER = "answer"


class AuditOutcome(StrEnum):
    """What came of it."""

    HITS = "hits"
    NONE = "none"
    """Nothing was found, or nothing fitted into the context."""
    REFUSED = "refused"
    """Passages were found, and did not carry an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPassage:
    """A passage that was given out."""

    rank: int
    shown: bool
    """Whether it is among the evidence; False for a hit that the context left out and its account still has."""
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    source: str
    chunk_ids: tuple[uuid.UUID, ...]
    """Of neighbouring chunks that were joined, all."""
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord:
    """One retrieval as the log has it."""

    id: uuid.UUID
    """Ids are in the order of time, to the millisecond."""
    at: datetime
    kind: AuditKind
    outcome: AuditOutcome
    collection: str | None
    """None where all of the tenant were asked."""
    subject: str | None
    """Who asked, as the caller named them."""
    principals: tuple[str, ...]
    question: str | None
    """None where `rag.audit.questions` keeps texts out of the log."""
    question_sha256: str
    search_query: str | None
    """What was searched for, where a conversation made it another question; None where texts are kept out."""
    settings: str
    """The version of the settings that it was answered by."""
    cached: bool
    milliseconds: float
    """Of the retrieval, without context and answer."""
    follows: uuid.UUID | None
    """The record that the same answer has with its passages, where its stream ended otherwise than it began."""
    passages: tuple[AuditPassage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sighting:
    """A passage of a document that somebody was given."""

    at: datetime
    retrieval_id: uuid.UUID
    kind: AuditKind
    subject: str | None
    principals: tuple[str, ...]
    question: str | None
    source: str
    document_id: uuid.UUID
    version: int
    chunk_ids: tuple[uuid.UUID, ...]
    rank: int
    shown: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedQuestion:
    """A question that the documents did not answer: work for those who write them."""

    question: str | None
    """As it was searched for, after a conversation."""
    question_sha256: str
    times: int
    """How often nothing was found, or it was refused."""
    refused: int
    """How often passages were found that did not carry an answer; the other times nothing was found."""
    disliked: int
    """How often an answer to it, or a passage for it, was rated down."""
    subjects: int
    """How many named readers asked or rated it."""
    last_at: datetime
    comments: tuple[str, ...]
    """What was said of it with a rating, the newest first; five at most."""


class Rating(StrEnum):
    """What a reader thinks of what was given out."""

    UP = "up"
    DOWN = "down"
    CLICK = "click"
    """Opened, which is no opinion: it is kept beside one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedback:
    """What a reader thinks of an answer, or of one of its passages. Another word on the same replaces it."""

    id: uuid.UUID
    """Follows from who rated what."""
    at: datetime
    subject: str
    collection: str | None
    """None where all of the tenant were asked."""
    retrieval_id: uuid.UUID | None
    """Its record in the log; None where the question was named instead."""
    question: str | None
    """As it was searched for; None where `rag.audit.questions` keeps texts out."""
    question_sha256: str
    rating: Rating
    chunk_id: uuid.UUID | None
    """The passage that is rated; None for the answer, or the result, as a whole."""
    source: str | None
    """Of the passage's document."""
    comment: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """What a check of the seals over the log found."""

    seals: int
    """Seals that hold."""
    rows: int
    """Records that are as they were sealed."""
    expired: int
    """Seals whose records are past retention and gone; the chain goes on through them."""
    unsealed: int
    """Records behind the last seal, which nothing vouches for yet."""
    head: str | None
    """SHA-256 of the last seal that holds; kept elsewhere, it also shows that no seal was taken off the end."""
    broken: int | None
    """Number of the first seal that does not hold."""
    problem: str | None
    """What is wrong with it."""
    failing: int
    """Seals that do not hold, the first one among them."""

    @property
    def holds(self) -> bool:
        """Whether every seal does."""
        return self.broken is None
