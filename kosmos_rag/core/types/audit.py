"""Records of the audit log: queries, passages of results, and feedback."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from kosmos_rag.core.types.serialize import Serializable

EVALUATOR = "kosmos-rag eval"
"""Subject of the queries of an evaluation; they are logged, and left out of the failed questions."""


class AuditKind(StrEnum):
    """Kind of the request."""

    SEARCH = "search"
    CONTEXT = "context"
    ANSWER = "answer"
    QUERY = "query"
    """SQL on a described database; `question` has the database and the SQL."""


class AuditOutcome(StrEnum):
    """Outcome of a request."""

    HITS = "hits"
    NONE = "none"
    """No hits, or none fitted into the context."""
    REFUSED = "refused"
    """There were hits, and the evidence was insufficient for an answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditPassage(Serializable):
    """A passage of a result."""

    rank: int
    shown: bool
    """Whether it is part of the evidence; False for a hit that the context omitted."""
    document_id: uuid.UUID
    version_id: uuid.UUID
    version: int
    source: str
    chunk_ids: tuple[uuid.UUID, ...]
    """All chunks, if neighbours were joined."""
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditRecord(Serializable):
    """One record of the audit log."""

    id: uuid.UUID
    """Ids are in the order of time, to the millisecond."""
    at: datetime
    kind: AuditKind
    outcome: AuditOutcome
    collection: str | None
    """None for all collections of the tenant."""
    subject: str | None
    """The reader, as the caller named them."""
    principals: tuple[str, ...]
    question: str | None
    """None where `rag.audit.questions` keeps texts out of the log."""
    question_sha256: str
    search_query: str | None
    """The rewritten query of a conversation; None without one, and if texts are kept out."""
    settings: str
    """Hash of the settings in use."""
    cached: bool
    milliseconds: float
    """Duration of the search, without context and answer."""
    follows: uuid.UUID | None
    """Earlier record of the same answer, if the end of its stream differs from the start."""
    passages: tuple[AuditPassage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentAccess(Serializable):
    """A passage of a document in a result that a reader received."""

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


class Rating(StrEnum):
    """The rating of a result."""

    UP = "up"
    DOWN = "down"
    CLICK = "click"
    """The passage was opened; stored in addition to a rating."""


class RatingReason(StrEnum):
    """Why a reader rated a result so."""

    WRONG = "wrong"
    INCOMPLETE = "incomplete"
    OUTDATED = "outdated"
    NOT_COVERED = "not_covered"
    """The documents do not answer the question; of an up rating, that the refusal was right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Feedback(Serializable):
    """A reader's rating of an answer or passage.

    A new rating of the same replaces it.
    """

    id: uuid.UUID
    """Derived from reader and target."""
    at: datetime
    subject: str
    collection: str | None
    """None for all collections of the tenant."""
    retrieval_id: uuid.UUID | None
    """Id of the record in the log; None if the question is named instead."""
    question: str | None
    """The search query; None where `rag.audit.questions` keeps texts out."""
    question_sha256: str
    rating: Rating
    chunk_id: uuid.UUID | None
    """The rated passage; None for the answer or result as a whole."""
    source: str | None
    """Source of the passage's document."""
    comment: str | None
    reason: RatingReason | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport(Serializable):
    """Result of the verification of the seals."""

    seals: int
    """Number of valid seals."""
    rows: int
    """Number of unchanged records."""
    expired: int
    """Number of seals whose records were dropped after retention; the chain continues through them."""
    unsealed: int
    """Number of records after the last seal."""
    head: str | None
    """SHA-256 of the last valid seal; stored elsewhere, it also proves that no later seal was removed."""
    broken: int | None
    """Number of the first broken seal."""
    problem: str | None
    """Description of the fault, of a seal or of a record of an erasure."""
    failing: int
    """Number of broken seals."""
    erasures: int = 0
    """Number of valid records of erasures."""
    erasure_head: str | None = None
    """SHA-256 of the last of them, to be stored elsewhere like `head`."""

    @property
    def intact(self) -> bool:
        """Whether all seals and all records of erasures are valid."""
        return self.problem is None
