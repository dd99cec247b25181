"""Rows of the log as records."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import psycopg

from kosmos_rag.records import AuditKind, AuditOutcome, AuditPassage, AuditRecord
from kosmos_rag.storage.sql import statement


def records(connection: psycopg.Connection, tenant_id: uuid.UUID, rows: Sequence[tuple[Any, ...]]) -> list[AuditRecord]:
    """Return the rows of retrievals as records with their passages, in the order given."""
    if not rows:
        return []
    times = [row[2] for row in rows]
    values = {
        "tenant_id": tenant_id,
        "ids": [row[1] for row in rows],
        "first_at": min(times),
        "last_at": max(times),
    }
    passages: dict[uuid.UUID, list[AuditPassage]] = defaultdict(list)
    for retrieval_id, *told in connection.execute(statement("passages_of_retrievals"), values).fetchall():
        passages[retrieval_id].append(_passage(told))
    return [_record(row, passages[row[1]]) for row in rows]


def _record(row: tuple[Any, ...], passages: Sequence[AuditPassage]) -> AuditRecord:
    return AuditRecord(
        position=row[0],
        id=row[1],
        at=row[2],
        kind=AuditKind(row[3]),
        outcome=AuditOutcome(row[4]),
        collection=row[5],
        subject=row[6],
        principals=tuple(row[7]),
        question=row[8],
        question_sha256=row[9],
        settings=row[10],
        cached=row[11],
        milliseconds=row[12],
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
