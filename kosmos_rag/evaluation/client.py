"""Calls of the Python client for gaps, checked answers and judged questions."""

import uuid
from functools import partial

from kosmos_rag.apps.client.transport import Call, omit_none
from kosmos_rag.core.types.serialize import from_dict
from kosmos_rag.evaluation.answer_checks.records import AnswerCheckReport
from kosmos_rag.evaluation.gaps.records import GapReport
from kosmos_rag.evaluation.judging.records import CandidateQuestion, CandidateReport


def gaps(*, collection: str | None = None) -> Call[GapReport]:
    """Show what people ask and the documents do not answer.

    Args:
        collection: Only questions to this collection; None for all.
    """
    params = omit_none(collection=collection)
    return Call(method="GET", path="/v1/gaps", params=params, read=partial(from_dict, GapReport))


def answer_checks(*, collection: str | None = None) -> Call[AnswerCheckReport]:
    """Show what the checks of sampled answers found, by collection.

    Args:
        collection: Only answers to questions to this collection; None for all.
    """
    params = omit_none(collection=collection)
    return Call(method="GET", path="/v1/answer-checks", params=params, read=partial(from_dict, AnswerCheckReport))


def judged_questions(*, judgement: str = "open", collection: str | None = None) -> Call[CandidateReport]:
    """List questions of readers with the places of their answers.

    Args:
        judgement: `open` for candidates, `accepted` or `rejected`.
        collection: Only questions to this collection; None for all.
    """
    params = omit_none(judgement=judgement, collection=collection)
    return Call(method="GET", path="/v1/judged-questions", params=params, read=partial(from_dict, CandidateReport))


def judge_question(candidate_id: uuid.UUID, judgement: str) -> Call[CandidateQuestion]:
    """Accept or reject a candidate, or open it again.

    Args:
        judgement: `accepted`, `rejected` or `open`.
    """
    return Call(
        method="POST",
        path=f"/v1/judged-questions/{candidate_id}",
        body={"judgement": judgement},
        read=partial(from_dict, CandidateQuestion),
    )


CALLS = {
    "gaps": gaps,
    "answer_checks": answer_checks,
    "judged_questions": judged_questions,
    "judge_question": judge_question,
}
"""The methods that the client has while the wing is present."""
