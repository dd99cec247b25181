"""Writing to the log: a result is in it, and on disk, before anybody is given it."""

import os
import uuid
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from kosmos_rag.core.config import AuditSettings
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
    Passage,
    SearchResult,
    sha256_of,
    storable,
)
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.publish import text_hash
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

Recorded = SearchResult | Context | Answer | AnswerSources | DocumentLines
"""What is given out: of an answer that comes by and by, the sources go first."""

_RANDOM_BITS = 74
_VERSION = 7 << 76
_VARIANT = 0b10 << 62


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """Who asks: of which tenant, as whom, where."""

    tenant: TenantRef
    principals: tuple[str, ...]
    subject: str | None
    collection: str | None


def strictest_policy(process: AuditSettings, collections: Sequence[AuditSettings]) -> AuditSettings:
    """Return the rules for collections: a preset may ask for a log and keep texts out of it, and undo neither."""
    rules = [process, *collections]
    return AuditSettings(enabled=any(rule.enabled for rule in rules), questions=all(rule.questions for rule in rules))


def record(
    app: Role,
    reader: Reader,
    result: Recorded,
    settings: AuditSettings,
    version: str,
    *,
    follows: uuid.UUID | None = None,
) -> uuid.UUID:
    """Write one record of a result and wait until it is on disk; `version` is that of the settings it was made by.

    Where it `follows` another record, of the same answer as it began, its passages are there. Returns its id. Raises
    DatabaseError: what cannot be recorded must not be given out.
    """
    retrieval = None if isinstance(result, DocumentLines) else _retrieval(result)
    named = retrieval.id if retrieval and follows is None else None
    record_id = named or new_id(datetime.now(UTC))
    # As it was asked, and what a text column refuses must not keep the answer back.
    question = storable(_question(result))
    values = {
        "tenant_id": reader.tenant.id,
        "id": record_id,
        "at": time_of(record_id),
        "kind": _kind(result),
        "collection": reader.collection,
        "subject": reader.subject,
        "principals": list(reader.principals),
        "question": question if settings.questions else None,
        "question_sha256": sha256_of(question),
        "search_query": retrieval.question
        if settings.questions and retrieval and retrieval.question != question
        else None,
        "settings_hash": version,
        "cached": retrieval is not None and retrieval.cached,
        "milliseconds": retrieval.timings_ms["total"] if retrieval else 0.0,
        "follows": follows,
    }
    passages = _passages(result)
    values["outcome"] = _outcome(result, passages)
    with app.transaction(reader.tenant.id, reader.principals, appends=True) as connection:
        connection.execute(statement("lock_audit_log_shared"), values)
        connection.execute(statement("insert_audit_event"), values)
        if passages and follows is None:
            connection.execute(statement("insert_audit_passages"), values | _columns(passages))
    return record_id


def new_id(at: datetime) -> uuid.UUID:
    """Return a new id of that time: version 7 of RFC 9562."""
    random = int.from_bytes(os.urandom(10)) >> (80 - _RANDOM_BITS)
    return uuid.UUID(int=first_id(at).int | (random >> 62) << 64 | random & ((1 << 62) - 1))


def time_of(made: uuid.UUID) -> datetime:
    """Return the millisecond that an id was made in."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=made.int >> 80)


def first_id(at: datetime) -> uuid.UUID:
    """Return the least id that a record of that millisecond may have."""
    return uuid.UUID(int=_milliseconds(at) << 80 | _VERSION | _VARIANT)


def _milliseconds(at: datetime) -> int:
    # Not through timestamp(): a float would round up across the millisecond.
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def _kind(result: Recorded) -> AuditKind:
    if isinstance(result, SearchResult | DocumentLines):
        return AuditKind.SEARCH
    return AuditKind.CONTEXT if isinstance(result, Context) else AuditKind.ANSWER


def _question(result: Recorded) -> str:
    """Return what was asked; of lines that were read by their place, which they are."""
    if isinstance(result, DocumentLines):
        return f"lines {result.line_start} to {result.line_end} of {result.document.source}"
    return result.question


def _retrieval(result: SearchResult | Context | Answer | AnswerSources) -> SearchResult:
    return result if isinstance(result, SearchResult) else _context(result).retrieval


def _context(result: Context | Answer | AnswerSources) -> Context:
    return result if isinstance(result, Context) else result.context


def _outcome(result: Recorded, passages: Sequence[AuditPassage]) -> AuditOutcome:
    if not any(passage.shown for passage in passages):
        return AuditOutcome.NONE
    return AuditOutcome.REFUSED if isinstance(result, Answer | AnswerSources) and result.refused else AuditOutcome.HITS


def _passages(result: Recorded) -> list[AuditPassage]:
    """Return all that the result carries: a context carries its retrieval, with the hits that it does not show."""
    if isinstance(result, DocumentLines):
        return [_of_lines(result)]
    if isinstance(result, SearchResult):
        return [_of_hit(hit, rank=hit.rank, shown=True) for hit in result.hits]
    context = _context(result)
    shown = [_of_passage(rank, passage) for rank, passage in enumerate(context.passages, start=1)]
    told = {chunk_id for passage in shown for chunk_id in passage.chunk_ids}
    others = [hit for hit in context.retrieval.hits if hit.chunk_id not in told]
    return shown + [_of_hit(hit, rank=rank, shown=False) for rank, hit in enumerate(others, start=len(shown) + 1)]


def _of_hit(hit: Passage, *, rank: int, shown: bool) -> AuditPassage:
    return AuditPassage(
        rank=rank,
        shown=shown,
        document_id=hit.document_id,
        version_id=hit.version_id,
        version=hit.version,
        source=hit.source,
        chunk_ids=(hit.chunk_id,),
        score=hit.score,
    )


def _of_lines(lines: DocumentLines) -> AuditPassage:
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


def _of_passage(rank: int, passage: ContextPassage) -> AuditPassage:
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
        # As one text each: rows of an unnested array cannot be arrays of different lengths.
        "chunk_ids": ["{" + ",".join(map(str, passage.chunk_ids)) + "}" for passage in passages],
        "scores": [passage.score for passage in passages],
    }


def records(connection: psycopg.Connection, tenant_id: uuid.UUID, rows: Sequence[tuple[Any, ...]]) -> list[AuditRecord]:
    """Return the rows of retrievals as records with their passages, in the order given."""
    if not rows:
        return []
    times = [row[1] for row in rows]
    values = {
        "tenant_id": tenant_id,
        "ids": [row[0] for row in rows],
        "first_at": min(times),
        "last_at": max(times),
    }
    passages: dict[uuid.UUID, list[AuditPassage]] = defaultdict(list)
    for retrieval_id, *told in connection.execute(statement("passages_of_audit_events"), values).fetchall():
        passages[retrieval_id].append(_passage(told))
    return [_record(row, passages[row[0]]) for row in rows]


def _record(row: tuple[Any, ...], passages: Sequence[AuditPassage]) -> AuditRecord:
    return AuditRecord(
        id=row[0],
        at=row[1],
        kind=AuditKind(row[2]),
        outcome=AuditOutcome(row[3]),
        collection=row[4],
        subject=row[5],
        principals=tuple(row[6]),
        question=row[7],
        question_sha256=row[8],
        search_query=row[9],
        settings=row[10],
        cached=row[11],
        milliseconds=row[12],
        follows=row[13],
        passages=tuple(passages),
    )


def _passage(told: Sequence[Any]) -> AuditPassage:
    rank, shown, document_id, version_id, version, source, chunk_ids, score = told
    return AuditPassage(
        rank=rank,
        shown=shown,
        document_id=document_id,
        version_id=version_id,
        version=version,
        source=source,
        chunk_ids=tuple(chunk_ids),
        score=score,
    )
