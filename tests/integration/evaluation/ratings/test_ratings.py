"""Questions with ratings, from the audit log and the feedback."""

import pytest

from kosmos_rag import Engine
from kosmos_rag.core.types import RatingReason
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.evaluation.offline.ratings import read_rated_questions

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_rated_questions__are_labelled_by_reason_log_and_majority(
    acme: Tenant, audited: Engine, tenant_name: str
) -> None:
    bob = audited.tenant(tenant_name, subject="bob")
    refused = acme.answer("Who plays the violin?")
    assert refused.refused
    acme.feedback("up", retrieval_id=refused.context.retrieval.id)  # the log says that it was a refusal
    acme.feedback("up", question="What is churn?")
    acme.feedback("down", question="Who is the CEO?", reason=RatingReason.NOT_COVERED)
    acme.feedback("up", question="Who owns the zoo?", reason="not_covered")
    feedback = acme.feedback("down", question="What is revenue?", reason="outdated")
    assert feedback.reason == RatingReason.OUTDATED
    for scope, rating in ((acme, "up"), (bob, "down")):
        scope.feedback(rating, question="a tie", reason=None if rating == "up" else "not_covered")
    audited.tenant(f"{tenant_name}-other", subject="ada").feedback("up", question="of another tenant")
    rated = read_rated_questions(audited.tenant(tenant_name), limit=10)
    assert {rated_question.text: rated_question.answerable for rated_question in rated} == {
        "What is churn?": True,
        "Who plays the violin?": False,
        "Who is the CEO?": False,
        "Who owns the zoo?": False,
    }
    assert [rated_question.text for rated_question in read_rated_questions(audited.tenant(tenant_name), limit=1)] == [
        "Who owns the zoo?"
    ]
    assert read_rated_questions(audited.tenant(tenant_name, collection="hr"), limit=10) == []
