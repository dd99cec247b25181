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
    times = [row[1] for row in rows]
    values = {
        "tenant_id": tenant_id,
        "ids": [row[0] for row in rows],
        "first_at": min(times),
        "last_at": max(times),
    }
    passages: dict[uuid.UUID, list[AuditPassage]] = defaultdict(list)
    for retrieval_id, *told in connection.execute(statement("passages_of_retrievals"), values).fetchall():
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
        searched=row[9],
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
