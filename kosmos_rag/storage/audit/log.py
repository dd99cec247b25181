"""Write the audit log.

A result is recorded, on disk, before its reader gets it.
"""

import os
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.config import AuditSettings
from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.core.types import (
    Answer,
    AnswerSources,
    AuditKind,
    AuditOutcome,
    AuditPassage,
    AuditRecord,
    Context,
    ContextPassage,
    DocumentLines,
    Occurrence,
    Passage,
    SearchResult,
    hash_text,
    storable,
)
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessWithoutPassages:
    """A query on a described database, or a stored file."""

    kind: AuditKind
    question: str
    """Name of the database and the SQL, or name of the file."""
    outcome: AuditOutcome
    milliseconds: float


AuditedResult = SearchResult | Context | Answer | AnswerSources | DocumentLines | AccessWithoutPassages
"""A result for a reader; a streamed answer starts with its sources."""

_RANDOM_BITS = 74
_VERSION = 7 << 76
_VARIANT = 0b10 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditContext:
    """The reader of a result: tenant, principals, subject and collection."""

    tenant: TenantRef
    principals: tuple[str, ...]
    subject: str | None
    collection: str | None
    is_watched: bool = False
    """Whether each access is recorded with its question, whatever the settings say."""


def record_event(
    app: ConnectionPool,
    reader: AuditContext,
    result: AuditedResult,
    settings: AuditSettings,
    settings_hash: str,
    *,
    follows: uuid.UUID | None = None,
) -> uuid.UUID:
    """Append a record to the log and wait until it is durable.

    Returns its id.

    Args:
        app: pool of the app role.
        reader: who gets the result.
        result: what the reader gets.
        settings: audit settings that apply.
        settings_hash: hash of the settings that the result was computed with.
        follows: record of the start of the same streamed answer, which has the passages.

    Raises:
        DatabaseError: the record is not stored, and the reader must not get the result.
    """
    search = None if isinstance(result, DocumentLines | AccessWithoutPassages) else _search_result(result)
    # `is not None`: a result without hits is false.
    search_id = search.id if search is not None and follows is None else None
    record_id = search_id or create_event_id(datetime.now(UTC))
    # A character that a text column refuses must not hold back the answer.
    question = storable(_question(result))
    rewritten = search.question if search is not None and search.question != question else None
    values = {
        "tenant_id": reader.tenant.id,
        "id": record_id,
        "at": parse_event_time(record_id),
        "kind": _kind(result),
        "collection": reader.collection,
        "subject": reader.subject,
        "principals": list(reader.principals),
        "question": question if settings.questions else None,
        "question_sha256": hash_text(question),
        "search_query": rewritten if settings.questions else None,
        "settings_hash": settings_hash,
        "cached": search is not None and search.cached,
        "milliseconds": search.timings_ms["total"] if search is not None else getattr(result, "milliseconds", 0.0),
        "follows": follows,
    }
    passages = _passages(result)
    values["outcome"] = _outcome(result, passages)
    inserted = None
    with app.transaction(reader.tenant.id, reader.principals, append_only=True) as connection:
        connection.execute(statement("lock_audit_log_shared"), values)
        connection.execute(statement("insert_audit_event"), values)
        if passages and follows is None:
            inserted = connection.execute(statement("insert_audit_passages"), values | _columns(passages))
    # Statements travel in a pipeline, which knows the number of rows at its end.
    if inserted is not None and inserted.rowcount != len(passages):
        raise StatementFailed(f"the tenant {reader.tenant.name} was erased meanwhile; ask again")
    return record_id


def create_event_id(at: datetime) -> uuid.UUID:
    """Return a new UUID of version 7 (RFC 9562) for a time."""
    random = int.from_bytes(os.urandom(10)) >> (80 - _RANDOM_BITS)
    return uuid.UUID(int=build_min_event_id(at).int | (random >> 62) << 64 | random & ((1 << 62) - 1))


def parse_event_time(event_id: uuid.UUID) -> datetime:
    """Return the time of a UUID of version 7, to the millisecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=event_id.int >> 80)


def build_min_event_id(at: datetime) -> uuid.UUID:
    """Return the smallest id that a record of a millisecond can have."""
    return uuid.UUID(int=_milliseconds(at) << 80 | _VERSION | _VARIANT)


def _milliseconds(at: datetime) -> int:
    # Not timestamp(): a float would round up to the next millisecond.
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _kind(result: AuditedResult) -> AuditKind:
    if isinstance(result, AccessWithoutPassages):
        return result.kind
    if isinstance(result, SearchResult | DocumentLines):
        return AuditKind.SEARCH
    return AuditKind.CONTEXT if isinstance(result, Context) else AuditKind.ANSWER


def _question(result: AuditedResult) -> str:
    """Return the question; for lines of a document, which lines they are."""
    if isinstance(result, DocumentLines):
        return f"lines {result.line_start} to {result.line_end} of {result.document.source}"
    return result.question


def _search_result(result: SearchResult | Context | Answer | AnswerSources) -> SearchResult:
    return result if isinstance(result, SearchResult) else _context(result).retrieval


def _context(result: Context | Answer | AnswerSources) -> Context:
    return result if isinstance(result, Context) else result.context


def _outcome(result: AuditedResult, passages: Sequence[AuditPassage]) -> AuditOutcome:
    if isinstance(result, AccessWithoutPassages):
        return result.outcome
    if not any(passage.shown for passage in passages):
        return AuditOutcome.NONE
    return AuditOutcome.REFUSED if isinstance(result, Answer | AnswerSources) and result.refused else AuditOutcome.HITS


def _passages(result: AuditedResult) -> list[AuditPassage]:
    """Return all passages of a result.

    Those of a context that it does not show have `shown` false.
    """
    if isinstance(result, AccessWithoutPassages):
        return []
    if isinstance(result, DocumentLines):
        return [_from_lines(result)]
    if isinstance(result, SearchResult):
        hits = [_from_hit(hit, hit.score, rank=hit.rank, is_shown=True) for hit in result.hits]
        return hits + _from_places(result.hits, after=hits[-1].rank if hits else 0, is_shown=True)
    context = _context(result)
    passages = [_from_context(rank, passage) for rank, passage in enumerate(context.passages, start=1)]
    shown_ids = {chunk_id for passage in passages for chunk_id in passage.chunk_ids}
    omitted = [hit for hit in context.retrieval.hits if hit.chunk_id not in shown_ids]
    passages += [
        _from_hit(hit, hit.score, rank=rank, is_shown=False)
        for rank, hit in enumerate(omitted, start=len(passages) + 1)
    ]
    return passages + _from_places(context.retrieval.hits, after=len(passages), is_shown=False)


def _from_places(hits: Sequence[Passage], *, after: int, is_shown: bool) -> list[AuditPassage]:
    """Return the passages that hits carry.

    They are inner hits and the other places of a text.
    """
    inner_hits = [inner for hit in hits for inner in hit.inner_hits]
    carried: list[tuple[Passage | Occurrence, float]] = [(inner, inner.score) for inner in inner_hits]
    carried += [(place, hit.score) for hit in (*hits, *inner_hits) for place in hit.also_in]
    return [
        _from_hit(place, score, rank=rank, is_shown=is_shown)
        for rank, (place, score) in enumerate(carried, start=after + 1)
    ]


def _from_hit(hit: Passage | Occurrence, score: float, *, rank: int, is_shown: bool) -> AuditPassage:
    return AuditPassage(
        rank=rank,
        shown=is_shown,
        document_id=hit.document_id,
        version_id=hit.version_id,
        version=hit.version,
        source=hit.source,
        chunk_ids=(hit.chunk_id,),
        score=score,
    )


def _from_lines(lines: DocumentLines) -> AuditPassage:
    document = lines.document
    return AuditPassage(
        rank=1,
        shown=True,
        document_id=document.id,
        version_id=lines.version_id,
        version=document.version,
        source=document.source,
        chunk_ids=lines.chunk_ids,
        score=0.0,
    )


def _from_context(rank: int, passage: ContextPassage) -> AuditPassage:
    citation = passage.citation
    return AuditPassage(
        rank=rank,
        shown=True,
        document_id=citation.document_id,
        version_id=citation.version_id,
        version=citation.version,
        source=citation.source,
        chunk_ids=passage.chunk_ids,
        score=passage.score,
    )


def _columns(passages: Sequence[AuditPassage]) -> dict[str, list[object]]:
    return {
        "ranks": [passage.rank for passage in passages],
        "shown": [passage.shown for passage in passages],
        "document_ids": [passage.document_id for passage in passages],
        "version_ids": [passage.version_id for passage in passages],
        "versions": [passage.version for passage in passages],
        "sources": [passage.source for passage in passages],
        "source_hashes": [text_hash(passage.source) for passage in passages],
        # Array literals: unnest cannot return arrays of different lengths.
        "chunk_ids": ["{" + ",".join(map(str, passage.chunk_ids)) + "}" for passage in passages],
        "scores": [passage.score for passage in passages],
    }


def load_records(
    connection: psycopg.Connection, tenant_id: uuid.UUID, rows: Sequence[Mapping[str, Any]]
) -> list[AuditRecord]:
    """Build records with passages from rows, in row order.

    Args:
        connection: connection of the worker role, with the tenant set.
        rows: rows of a statement that reads `audit_events`, by column.
    """
    if not rows:
        return []
    times = [row["at"] for row in rows]
    values = {
        "tenant_id": tenant_id,
        "ids": [row["id"] for row in rows],
        "first_at": min(times),
        "last_at": max(times),
    }
    passages: dict[uuid.UUID, list[AuditPassage]] = defaultdict(list)
    with connection.cursor(row_factory=dict_row) as cursor:
        for row in cursor.execute(statement("passages_of_audit_events"), values):
            passages[row["event_id"]].append(_passage(row))
    return [_record(row, passages[row["id"]]) for row in rows]


def _record(row: Mapping[str, Any], passages: Sequence[AuditPassage]) -> AuditRecord:
    return AuditRecord(
        id=row["id"],
        at=row["at"],
        kind=AuditKind(row["kind"]),
        outcome=AuditOutcome(row["outcome"]),
        collection=row["collection"],
        subject=row["subject"],
        principals=tuple(row["principals"]),
        question=row["question"],
        question_sha256=row["question_sha256"],
        search_query=row["search_query"],
        settings=row["settings_hash"],
        cached=row["cached"],
        milliseconds=row["milliseconds"],
        follows=row["follows"],
        passages=tuple(passages),
    )


def _passage(row: Mapping[str, Any]) -> AuditPassage:
    return AuditPassage(
        rank=row["rank"],
        shown=row["shown"],
        document_id=row["document_id"],
        version_id=row["version_id"],
        version=row["version"],
        source=row["source"],
        chunk_ids=tuple(row["chunk_ids"]),
        score=row["score"],
    )
