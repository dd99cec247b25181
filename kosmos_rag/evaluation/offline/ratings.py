"""Questions that readers rated, for the calibration of refusals."""

from dataclasses import dataclass

from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.calibration import AnsweredQuestion
from kosmos_rag.evaluation.offline.runner import EvaluatedTenant, Progress
from kosmos_rag.evaluation.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class RatedQuestion:
    """A question, and whether its readers say that the documents answer it."""

    id: str
    """SHA-256 of the question."""
    text: str
    answerable: bool


def read_rated_questions(tenant: Tenant, *, limit: int) -> list[RatedQuestion]:
    """Return the questions whose answers readers rated, the newest first.

    An answer that was rated up has an answer in the documents. It has none if the rating has the reason `not_covered`,
    or if the audit log says that it was refused.

    Args:
        tenant: The tenant, or the collection that was asked.

    Raises ConfigError, DatabaseError.
    """
    values = {"tenant_id": tenant.id, "collection": tenant.collection, "limit": limit}
    with tenant.sessions.write() as connection:
        rows = connection.execute(statement("rated_questions"), values).fetchall()
    return [RatedQuestion(text=text, id=sha256, answerable=answerable) for text, sha256, answerable in rows]


def answer_rated_questions(
    tenant: EvaluatedTenant, rated_questions: list[RatedQuestion], on_progress: Progress | None = None
) -> list[AnsweredQuestion]:
    """Answer rated questions again, with the settings in use.

    Args:
        tenant: The tenant as one reader sees it.
        on_progress: Called before each question.

    Raises RequestError without questions, and what an answer raises.
    """
    if not rated_questions:
        raise RequestError(
            "no stored rating says whether the documents answer its question; collect ratings of answers first, "
            "with rag.audit.questions"
        )
    answered = []
    for number, question in enumerate(rated_questions):
        if on_progress is not None:
            on_progress(number, len(rated_questions), "rated questions")
        confidence = tenant.answer(question.text).confidence
        answered.append(
            AnsweredQuestion(question_id=question.id, answerable=question.answerable, confidence=confidence)
        )
    return answered
