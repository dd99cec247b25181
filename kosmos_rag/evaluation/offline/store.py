"""Evaluations in the database."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Json

from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.types import Evaluation, QuestionResult
from kosmos_rag.evaluation.sql import statement

LATEST = "latest"
"""The reference to the newest evaluation of a tenant."""
_ERASED = "erased"
"""The text of a question that was erased."""


class Evaluations:
    """Evaluations of one tenant, for its operators.

    The questions may be about any reader's documents.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._transaction = tenant.sessions.write

    def add(self, evaluation: Evaluation) -> None:
        """Store an evaluation with its results. Raises DatabaseError.

        Without the text of a judged question that is erased since the evaluation began.
        """
        values = {
            "tenant_id": self._tenant.id,
            "id": evaluation.id,
            "at": evaluation.at,
            "label": evaluation.label,
            "set_name": evaluation.set_name,
            "set_sha256": evaluation.set_sha256,
            "collection": evaluation.collection,
            "principals": list(evaluation.principals),
            "depth": evaluation.depth,
            "questions": evaluation.questions,
            "answered": evaluation.answered,
            "measures": _json(evaluation.measures),
            "settings": _json(evaluation.settings),
            "settings_hash": evaluation.settings_hash,
            "code_version": evaluation.code_version,
            "index_state": _json(evaluation.index_state),
            "seconds": evaluation.seconds,
        }
        rows = [self._row(evaluation, result) for result in evaluation.results]
        with self._transaction() as connection, connection.cursor() as cursor:
            if evaluation.of_readers:
                self._tenant.sessions.lock_erasures(connection)
                stored = cursor.execute(statement("list_ids_of_judged_questions"), values).fetchall()
                judged = {question_id for (question_id,) in stored}
                rows = [row if row["question_id"] in judged else row | {"question": _ERASED} for row in rows]
            cursor.execute(statement("insert_evaluation"), values)
            cursor.executemany(statement("insert_evaluation_result"), rows)

    def _row(self, evaluation: Evaluation, result: QuestionResult) -> dict[str, Any]:
        return {
            "tenant_id": self._tenant.id,
            "evaluation_id": evaluation.id,
            "question_id": result.question_id,
            "question": result.question,
            "judged": _json(result.judged),
            "ranking": list(result.ranking),
            "measures": _json(result.measures),
            "timings_ms": _json(result.timings_ms),
            "refused": result.refused,
            "confidence": result.confidence,
        }

    def recent(self, limit: int | None = None) -> list[Evaluation]:
        """List evaluations without their results, the newest first. Raises DatabaseError."""
        with (
            self._transaction() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            cursor.execute(statement("list_evaluations"), {"tenant_id": self._tenant.id, "limit": limit})
            return [
                Evaluation(**{**row, "tenant": self._tenant.name, "principals": tuple(row["principals"])})
                for row in cursor.fetchall()
            ]

    def get(self, reference: str) -> Evaluation:
        """Return an evaluation with its results.

        Args:
            reference: `latest`, a prefix of an id, or a label; of several with one label the newest.

        Raises RequestError without a match, or if several ids have the prefix. Raises DatabaseError.
        """
        if not reference.strip():
            raise RequestError("the evaluation is not named; give the beginning of its id, a label, or latest")
        evaluations = self.recent()
        matching = [evaluation for evaluation in evaluations if str(evaluation.id).startswith(reference.lower())]
        if reference == LATEST:
            matching = evaluations[:1]
        elif not matching:
            matching = [evaluation for evaluation in evaluations if evaluation.label == reference][:1]
        if len(matching) != 1:
            matches = f"{len(matching)} evaluations whose ids begin with" if matching else "no evaluation"
            raise RequestError(
                f"tenant {self._tenant.name!r} has {matches} {reference!r}; "
                f"`kosmos-rag eval list -t {self._tenant.name}` lists them"
            )
        return self._load_results(matching[0])

    def _load_results(self, evaluation: Evaluation) -> Evaluation:
        values = {"tenant_id": self._tenant.id, "evaluation_id": evaluation.id}
        with (
            self._transaction() as connection,
            connection.cursor(row_factory=dict_row) as cursor,
        ):
            rows = cursor.execute(statement("results_of_evaluation"), values).fetchall()
        results = tuple(QuestionResult(**{**row, "ranking": tuple(row["ranking"])}) for row in rows)
        return replace(evaluation, results=results)

    def delete(self, evaluation: Evaluation) -> None:
        """Remove an evaluation with its results. Raises DatabaseError."""
        with self._transaction() as connection:
            connection.execute(statement("delete_evaluation"), {"tenant_id": self._tenant.id, "id": evaluation.id})


def _json(value: Mapping[str, Any]) -> Json:
    # JSON has no type for the times in the health of an index.
    return Json(value, dumps=_dumps)


def _dumps(value: Any) -> str:
    return json.dumps(value, default=str)
