"""The routes of judged questions, and the page of the console."""

import uuid

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from kosmos_rag.apps.http.console.pages import PageRoute, read_form, redirect, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleAdministrator
from kosmos_rag.apps.http.toolkit.dependencies import Administrator
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.evaluation.judging.questions import JudgedQuestions
from kosmos_rag.evaluation.judging.records import CandidateQuestion, CandidateReport, Judgement

router = APIRouter(tags=["judged questions"])
pages = APIRouter(route_class=PageRoute, include_in_schema=False)

_MAX_CANDIDATES = 100
"""Candidates of a judgement on the page."""


class JudgementRequest(BaseModel):
    """A decision about a candidate."""

    model_config = ConfigDict(extra="forbid")

    judgement: Judgement


@router.get("/v1/judged-questions")
async def candidates(
    caller: Administrator, judgement: Judgement = Judgement.OPEN, collection: str | None = None
) -> CandidateReport:
    """List questions of readers with the places of their answers, from ratings and clicks."""
    tenant = caller.scope(collection)
    rows = await caller.run(JudgedQuestions(tenant).list_candidates, judgement)
    return CandidateReport(tenant=tenant.name, judgement=judgement, candidates=tuple(rows))


@router.post("/v1/judged-questions/{candidate_id}")
async def judge(candidate_id: uuid.UUID, body: JudgementRequest, caller: Administrator) -> CandidateQuestion:
    """Accept or reject a candidate, or open it again."""
    return await caller.run(JudgedQuestions(caller.tenant()).judge, candidate_id, body.judgement)


@pages.get("/evaluations/questions")
async def page(request: Request, caller: ConsoleAdministrator) -> Response:
    """Show the candidates, and the decisions."""
    questions = JudgedQuestions(caller.scope(None))

    def read() -> dict[str, list[CandidateQuestion]] | None:
        try:
            return {str(name): questions.list_candidates(name) for name in Judgement}
        except ConfigError:  # the service may have no credentials of the worker role
            return None

    lists = await caller.run(read)
    return render_page(request, "candidates.html", lists=lists, shown=_MAX_CANDIDATES)


@pages.post("/evaluations/questions/{candidate_id}")
async def judge_on_page(request: Request, caller: ConsoleAdministrator, candidate_id: uuid.UUID) -> Response:
    """Store the decision of a form."""
    fields = await read_form(request)
    await caller.run(JudgedQuestions(caller.tenant()).judge, candidate_id, fields.get("judgement", ""))
    return redirect("/evaluations/questions")


_CANDIDATE = {
    "id": "0d5e6f3c-11d1-5a44-9b6e-3d7f7f3f5a21",
    "judgement": "open",
    "collection": "hr",
    "question": "How many days of leave do I have?",
    "source": "leave.md",
    "section": "Annual leave",
    "lines": None,
    "principal": "everyone",
    "ups": 2,
    "downs": 0,
    "clicks": 3,
    "readers": 4,
    "last_at": "2026-11-20T10:00:00Z",
}
EXAMPLES = {
    "CandidateQuestion": _CANDIDATE,
    "CandidateReport": {"tenant": "acme", "judgement": "open", "candidates": [_CANDIDATE]},
    "JudgementRequest": {"judgement": "accepted"},
}
