"""Unanswered questions in the database. Reads and writes as the worker role."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from pgvector import HalfVector
from psycopg.rows import kwargs_row

from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.gaps.records import UnansweredQuestion, UnansweredReason
from kosmos_rag.evaluation.sql import statement

MAX_CHARS = 1_000
"""Characters of a stored question; a longer text is no question that others ask too."""


def put_unanswered(connection: psycopg.Connection, values: Mapping[str, Any], *, max_questions: int) -> bool:
    """Store a question, or count it once more; return whether there was room for it.

    Args:
        connection: A transaction of the worker role.
        values: Columns of the question.
        max_questions: Questions of a tenant.
    """
    row = connection.execute(statement("count_unanswered"), values).fetchone()
    count, is_known, has_documents = row or (0, False, False)
    if not has_documents or (count >= max_questions and not is_known):
        return False
    connection.execute(statement("put_unanswered"), values)
    return True


class UnansweredStore:
    """Unanswered questions of a tenant, or of one of its collections.

    Every method raises DatabaseError, and ConfigError without `database.worker_url`.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._transaction = tenant.sessions.write

    def list_questions(self) -> list[UnansweredQuestion]:
        """Return the questions, the oldest first."""
        values = {"tenant_id": self._tenant.id, "collection": self._tenant.collection}
        with self._transaction() as connection, connection.cursor(row_factory=kwargs_row(_question)) as cursor:
            return cursor.execute(statement("list_unanswered"), values).fetchall()

    def list_to_check(self, *, limit: int) -> list[UnansweredQuestion]:
        """Return unanswered questions, those first whose check is the longest ago."""
        values = {"tenant_id": self._tenant.id, "collection": self._tenant.collection, "limit": limit}
        with self._transaction() as connection, connection.cursor(row_factory=kwargs_row(_question)) as cursor:
            return cursor.execute(statement("list_unanswered_to_check"), values).fetchall()

    def read_vectors(self, model: str) -> dict[uuid.UUID, NDArray[np.float32]]:
        """Return the vectors of a model by question."""
        values = {"tenant_id": self._tenant.id, "model": model}
        with self._transaction() as connection:
            rows = connection.execute(statement("vectors_of_unanswered"), values).fetchall()
        return {row_id: np.asarray(vector.to_numpy(), dtype=np.float32) for row_id, vector in rows}

    def store_vectors(self, model: str, vectors: Mapping[uuid.UUID, NDArray[np.float32]]) -> None:
        """Store vectors of a model."""
        rows = [
            {
                "tenant_id": self._tenant.id,
                "id": row_id,
                "model": model,
                "vector": HalfVector(vector.astype(np.float16)),
            }
            for row_id, vector in vectors.items()
        ]
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(statement("set_vector_of_unanswered"), rows)

    def store_groups(self, groups: Mapping[uuid.UUID, uuid.UUID]) -> None:
        """Store the groups of questions."""
        rows = [
            {"tenant_id": self._tenant.id, "id": row_id, "group_id": group_id} for row_id, group_id in groups.items()
        ]
        with self._transaction() as connection, connection.cursor() as cursor:
            cursor.executemany(statement("set_group_of_unanswered"), rows)

    def store_check(self, row_id: uuid.UUID, *, at: datetime, state: str | None, is_answered: bool) -> None:
        """Store that a question was asked again.

        A question that was asked by its reader in the meantime stays unanswered.

        Args:
            at: When the check began.
            state: What identifies the documents and settings that it was asked with.
            is_answered: Whether it is answered now.
        """
        values = {
            "tenant_id": self._tenant.id,
            "id": row_id,
            "at": at,
            "state": state,
            "answered_at": at if is_answered else None,
        }
        with self._transaction() as connection:
            connection.execute(statement("set_check_of_unanswered"), values)

    def prune(self, *, before: datetime, max_questions: int) -> int:
        """Delete old questions, and the oldest of too many; return their number.

        A tenth of the room is left for new questions.

        Args:
            before: Questions that were last asked before it are deleted.
            max_questions: Questions of a tenant.
        """
        values = {"tenant_id": self._tenant.id, "before": before, "newest": max(1, max_questions * 9 // 10)}
        with self._transaction() as connection:
            return connection.execute(statement("prune_unanswered"), values).rowcount


def _question(*, principals: Sequence[str], reason: str, **columns: Any) -> UnansweredQuestion:
    return UnansweredQuestion(principals=tuple(principals), reason=UnansweredReason(reason), **columns)
