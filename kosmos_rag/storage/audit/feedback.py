"""What readers think of what they were given: kept beside the log, one word a reader and thing."""

import json
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from kosmos_rag.core.config import AuditSettings
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.types import EVERYONE, AuditRecord, Feedback, Rating, is_text, sha256_of
from kosmos_rag.storage.audit.log import Reader, records
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import create_tenant

MAX_COMMENT = 2_000
_MAX_QUESTION = 20_000
_NAMESPACE = uuid.UUID("b9a8f2f4-0d06-5b63-8f0e-6d6c2f6d1a55")


@dataclass(frozen=True, kw_only=True, slots=True)
class Opinion:
    """What a reader says, and of what: of a retrieval in the log by its id, else of a question."""

    rating: Rating
    retrieval_id: uuid.UUID | None
    question: str | None
    chunk_id: uuid.UUID | None
    comment: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rated:
    """What an opinion is of."""

    question: str | None
    question_sha256: str
    source: str | None


def keep(database: Database, reader: Reader, opinion: Opinion, rules: AuditSettings) -> Feedback:
    """Keep an opinion in the place of the one that this reader had of the same thing.

    Raises RequestError, NotFound where there is no such retrieval of the reader's or no such passage, one error for
    what is not there and for what is not theirs, ConfigError without `database.worker_url`, DatabaseError.
    """
    subject = _checked(reader, opinion)
    rated = _asked(database, reader, opinion) if opinion.retrieval_id is None else _logged(database, reader, opinion)
    now = datetime.now(UTC)
    feedback = Feedback(
        id=_id(subject, reader.collection, opinion, rated),
        at=now,
        subject=subject,
        collection=reader.collection,
        retrieval_id=opinion.retrieval_id,
        question=rated.question if rules.questions else None,
        question_sha256=rated.question_sha256,
        rating=opinion.rating,
        chunk_id=opinion.chunk_id,
        source=rated.source,
        comment=opinion.comment,
    )
    values = {name: getattr(feedback, name) for name in Feedback.__slots__}
    with database.worker.transaction(reader.tenant.id, [EVERYONE]) as connection:
        create_tenant(connection, reader.tenant, now=now)
        connection.execute(statement("put_feedback"), {**values, "tenant_id": reader.tenant.id})
    return feedback


def _checked(reader: Reader, opinion: Opinion) -> str:
    """Return who the opinion is of."""
    if reader.subject is None:
        raise RequestError("feedback is somebody's; name the subject: engine.tenant(…, subject=…)")
    if (opinion.question is None) == (opinion.retrieval_id is None):
        raise RequestError("feedback is of one thing; give the id of a retrieval, or the question")
    if opinion.rating is Rating.CLICK and opinion.chunk_id is None:
        raise RequestError("a click is on a passage; give its chunk_id")
    if opinion.question is not None and not (
        is_text(opinion.question) and opinion.question.strip() and len(opinion.question) <= _MAX_QUESTION
    ):
        raise RequestError(f"the question is {opinion.question[:80]!r}; give a text of 1 to {_MAX_QUESTION} characters")
    if opinion.comment is not None and not (is_text(opinion.comment) and len(opinion.comment) <= MAX_COMMENT):
        raise RequestError(f"the comment is {opinion.comment[:80]!r}; give a text of up to {MAX_COMMENT} characters")
    return reader.subject


def _asked(database: Database, reader: Reader, opinion: Opinion) -> _Rated:
    assert opinion.question is not None, "it was checked"
    question = " ".join(opinion.question.split())
    source = None
    if opinion.chunk_id is not None:
        values = {"tenant_id": reader.tenant.id, "chunk_id": opinion.chunk_id}
        with database.app.transaction(reader.tenant.id, reader.principals) as connection:
            row = connection.execute(statement("source_of_chunk"), values).fetchone()
        if row is None:
            raise _no_passage()
        source = row[0]
    return _Rated(question=question, question_sha256=sha256_of(question), source=source)


def _logged(database: Database, reader: Reader, opinion: Opinion) -> _Rated:
    """Return what the log has of a retrieval of this reader's: its passages too may be gone elsewhere."""
    values = {"tenant_id": reader.tenant.id, "id": opinion.retrieval_id}
    with database.worker.transaction(reader.tenant.id, [EVERYONE]) as connection:
        rows = connection.execute(statement("audit_event_by_id"), values).fetchall()
        record = next(iter(records(connection, reader.tenant.id, rows)), None)
    if record is None or record.subject != reader.subject:
        raise NotFound("there is no such retrieval of yours in the log; name the question instead")
    return _Rated(
        question=record.search_query or record.question,
        question_sha256=sha256_of(record.search_query) if record.search_query else record.question_sha256,
        source=_source(record, opinion.chunk_id),
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


def _id(subject: str, collection: str | None, opinion: Opinion, rated: _Rated) -> uuid.UUID:
    of = str(opinion.retrieval_id or rated.question_sha256)
    told = [subject, collection, of, None if opinion.chunk_id is None else str(opinion.chunk_id)]
    if opinion.rating is Rating.CLICK:
        told.append(opinion.rating)
    return uuid.uuid5(_NAMESPACE, json.dumps(told))
