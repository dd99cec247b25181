"""Store feedback: one rating for each reader and rated passage or answer."""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg.rows import dict_row

from kosmos_rag.core.config import AuditSettings
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import EVERYONE, AuditRecord, Feedback, Rating, RatingReason, hash_text, is_text
from kosmos_rag.storage.audit.log import AuditContext, load_records
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import create_tenant

MAX_COMMENT = 2_000
_MAX_QUESTION = 20_000
_REASONED = {(Rating.DOWN, reason) for reason in RatingReason} | {(Rating.UP, RatingReason.NOT_COVERED)}
"""Ratings with the reasons that they can have."""
_NAMESPACE = uuid.UUID("b9a8f2f4-0d06-5b63-8f0e-6d6c2f6d1a55")


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedbackEntry:
    """A rating of a logged search by id, or of a question."""

    rating: Rating
    retrieval_id: uuid.UUID | None
    question: str | None
    chunk_id: uuid.UUID | None
    comment: str | None
    reason: RatingReason | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """The question and the source that a rating is about."""

    question: str | None
    question_sha256: str
    source: str | None


def store_feedback(database: Database, reader: AuditContext, entry: FeedbackEntry, settings: AuditSettings) -> Feedback:
    """Store the feedback of a reader.

    It replaces an earlier rating of the same target.

    Args:
        database: both pools.
        reader: who rates.
        entry: rating and target.
        settings: audit settings, which say whether the question is stored as text.

    Raises:
        RequestError: the entry is malformed.
        NotFound: no such search of this reader, or no such passage; one error for missing and for not readable.
        ConfigError: `database.worker_url` is not set.
        DatabaseError: the feedback is not stored.
    """
    subject = _validate(reader, entry)
    find = _find_passage if entry.retrieval_id is None else _find_event
    target = find(database, reader, entry)
    now = datetime.now(UTC)
    feedback = Feedback(
        id=_id(subject, reader.collection, entry, target),
        at=now,
        subject=subject,
        collection=reader.collection,
        retrieval_id=entry.retrieval_id,
        question=target.question if settings.questions else None,
        question_sha256=target.question_sha256,
        rating=entry.rating,
        chunk_id=entry.chunk_id,
        source=target.source,
        comment=entry.comment,
        reason=entry.reason,
    )
    values = {name: getattr(feedback, name) for name in Feedback.__slots__}
    with database.worker.transaction(reader.tenant.id, [EVERYONE]) as connection:
        create_tenant(connection, reader.tenant, now=now)
        connection.execute(statement("put_feedback"), {**values, "tenant_id": reader.tenant.id})
    return feedback


def _validate(reader: AuditContext, entry: FeedbackEntry) -> str:
    """Return the subject of the reader."""
    if reader.subject is None:
        raise RequestError("feedback needs a subject; name it: engine.tenant(…, subject=…)")
    if (entry.question is None) == (entry.retrieval_id is None):
        raise RequestError("feedback needs one object; give the id of a retrieval, or the question")
    if entry.rating is Rating.CLICK and entry.chunk_id is None:
        raise RequestError("a click is on a passage; give its chunk_id")
    if entry.reason is not None and (entry.rating, entry.reason) not in _REASONED:
        raise RequestError(
            f"a rating {entry.rating} cannot have the reason {entry.reason}; a rating down has any, up only not_covered"
        )
    if entry.question is not None and not (
        is_text(entry.question) and entry.question.strip() and len(entry.question) <= _MAX_QUESTION
    ):
        raise RequestError(f"the question is {entry.question[:80]!r}; give a text of 1 to {_MAX_QUESTION} characters")
    if entry.comment is not None and not (is_text(entry.comment) and len(entry.comment) <= MAX_COMMENT):
        raise RequestError(f"the comment is {entry.comment[:80]!r}; give a text of up to {MAX_COMMENT} characters")
    return reader.subject


def _find_passage(database: Database, reader: AuditContext, entry: FeedbackEntry) -> _Target:
    assert entry.question is not None, "validated before"
    question = " ".join(entry.question.split())
    source = None
    if entry.chunk_id is not None:
        values = {"tenant_id": reader.tenant.id, "chunk_id": entry.chunk_id}
        with database.app.transaction(reader.tenant.id, reader.principals) as connection:
            row = connection.execute(statement("source_of_chunk"), values).fetchone()
        if row is None:
            raise _no_passage()
        source = row[0]
    return _Target(question=question, question_sha256=hash_text(question), source=source)


def _find_event(database: Database, reader: AuditContext, entry: FeedbackEntry) -> _Target:
    """Return the target from the audit log.

    Documents may have lost the passage since.
    """
    values = {"tenant_id": reader.tenant.id, "id": entry.retrieval_id}
    with database.worker.transaction(reader.tenant.id, [EVERYONE]) as connection:
        with connection.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(statement("audit_event_by_id"), values).fetchall()
        record = next(iter(load_records(connection, reader.tenant.id, rows)), None)
    if record is None or record.subject != reader.subject:
        raise NotFound("there is no such retrieval of yours in the log; name the question instead")
    return _Target(
        question=record.search_query or record.question,
        question_sha256=hash_text(record.search_query) if record.search_query else record.question_sha256,
        source=_source(record, entry.chunk_id),
    )


def _source(record: AuditRecord, chunk_id: uuid.UUID | None) -> str | None:
    if chunk_id is None:
        return None
    for passage in record.passages:
        if chunk_id in passage.chunk_ids:
            return passage.source
    raise _no_passage()


def _no_passage() -> NotFound:
    return NotFound("there is no such passage, or none that you were given; rate the answer as a whole")


def _id(subject: str, collection: str | None, entry: FeedbackEntry, target: _Target) -> uuid.UUID:
    target_id = str(entry.retrieval_id or target.question_sha256)
    key = [subject, collection, target_id, None if entry.chunk_id is None else str(entry.chunk_id)]
    if entry.rating is Rating.CLICK:
        key.append(entry.rating)
    return uuid.uuid5(_NAMESPACE, json.dumps(key))
