"""Sampled answers in the database. Reads and writes as the worker role."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import class_row, kwargs_row
from psycopg.types.json import Jsonb

from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.answer_checks.records import (
    AnswerCheckCounts,
    AnswerVerdict,
    CitedAnswer,
    WaitingAnswer,
)
from kosmos_rag.evaluation.sql import statement


def insert_sample(
    connection: psycopg.Connection, values: Mapping[str, Any], cited: CitedAnswer | None, *, max_answers: int
) -> bool:
    """Store an answer, or a refusal without texts; return whether there was room for it.

    Args:
        connection: A transaction of the worker role.
        values: Columns of the sample; `sources` are those of the documents that the answer may have text of.
        cited: What the check needs; None for a refusal.
        max_answers: Samples of a tenant.
    """
    row = connection.execute(statement("count_answer_samples"), values).fetchone()
    count, has_documents = row or (0, False)
    if not has_documents or count >= max_answers:
        return False
    answer = None if cited is None else Jsonb(cited.to_dict())
    texts = {"is_refused": cited is None, "answer": answer}
    connection.execute(statement("insert_answer_sample"), {**values, **texts})
    return True


class AnswerSampleStore:
    """Sampled answers of a tenant, or of one of its collections.

    Every method raises DatabaseError, and ConfigError without `database.worker_url`.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._transaction = tenant.sessions.write

    def count(self) -> list[AnswerCheckCounts]:
        """Return the counts of each collection, those with most answers first."""
        values = {"tenant_id": self._tenant.id, "collection": self._tenant.collection}
        with self._transaction() as connection, connection.cursor(row_factory=class_row(AnswerCheckCounts)) as cursor:
            return cursor.execute(statement("count_answer_checks"), values).fetchall()

    def list_waiting(self, *, limit: int) -> list[WaitingAnswer]:
        """Return answers that are not checked, the oldest first."""
        values = {"tenant_id": self._tenant.id, "collection": self._tenant.collection, "limit": limit}
        with self._transaction() as connection, connection.cursor(row_factory=kwargs_row(_waiting)) as cursor:
            return cursor.execute(statement("list_answers_to_check"), values).fetchall()

    def store_verdict(self, row_id: uuid.UUID, verdict: AnswerVerdict) -> None:
        """Store what a check found. The texts, their sources and the principals are deleted."""
        values = {"tenant_id": self._tenant.id, "id": row_id, "verdict": str(verdict), "at": datetime.now(UTC)}
        with self._transaction() as connection:
            connection.execute(statement("set_answer_verdict"), values)

    def delete(self, row_id: uuid.UUID) -> None:
        """Delete an answer."""
        with self._transaction() as connection:
            connection.execute(statement("delete_answer_sample"), {"tenant_id": self._tenant.id, "id": row_id})

    def prune(self, *, before: datetime, max_answers: int) -> int:
        """Delete old samples, and the oldest of too many; return their number.

        A tenth of the room is left for new ones.

        Args:
            before: Samples from before it are deleted.
            max_answers: Samples of a tenant.
        """
        values = {"tenant_id": self._tenant.id, "before": before, "newest": max(1, max_answers * 9 // 10)}
        with self._transaction() as connection:
            return connection.execute(statement("prune_answer_samples"), values).rowcount


def _waiting(*, principals: Sequence[str], **columns: Any) -> WaitingAnswer:
    return WaitingAnswer(principals=tuple(principals), **columns)
