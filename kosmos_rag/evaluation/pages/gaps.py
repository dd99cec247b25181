"""The routes of gaps and of checked answers, and the page of the console with both."""

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.http.console.pages import PageRoute, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleWriter
from kosmos_rag.apps.http.toolkit.dependencies import Writer
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.evaluation.answer_checks.checks import AnswerChecks
from kosmos_rag.evaluation.answer_checks.records import AnswerCheckReport
from kosmos_rag.evaluation.gaps.gaps import Gaps
from kosmos_rag.evaluation.gaps.records import GapReport

router = APIRouter(tags=["gaps"])
pages = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/v1/gaps")
async def gaps(caller: Writer, collection: str | None = None) -> GapReport:
    """Show what people ask and the documents do not answer.

    Questions are in groups, which are shown where enough readers have asked.
    """
    return await caller.run(Gaps(caller.scope(collection)).report)


@router.get("/v1/answer-checks")
async def answer_checks(caller: Writer, collection: str | None = None) -> AnswerCheckReport:
    """Show what the checks of sampled answers found, and what their readers say, by collection."""
    return await caller.run(AnswerChecks(caller.scope(collection)).report)


@pages.get("/gaps")
async def page(request: Request, caller: ConsoleWriter, collection: str | None = None) -> Response:
    """Show the gaps, each with a link to the upload, and the checked answers.

    Args:
        collection: only questions to this collection.
    """
    scope = caller.scope(collection or None)

    def read() -> tuple[GapReport | None, AnswerCheckReport | None]:
        try:
            return Gaps(scope).report(), AnswerChecks(scope).report()
        except ConfigError:  # the service may have no credentials of the worker role
            return None, None

    report, checked = await caller.run(read)
    name = caller.collection(collection or None)
    return render_page(request, "gaps.html", report=report, checked=checked, collection=name)


EXAMPLES = {
    "AnswerCheckReport": {
        "tenant": "acme",
        "share": 0.05,
        "keep_days": 30,
        "collections": [
            {
                "collection": "hr",
                "answers": 120,
                "supported": 114,
                "unsupported": 2,
                "outdated": 1,
                "waiting": 3,
                "rated_up": 9,
                "rated_down": 2,
                "refusals": 14,
                "confirmed": 3,
                "disputed": 1,
            }
        ],
    },
    "GapReport": {
        "tenant": "acme",
        "recorded": True,
        "min_readers": 3,
        "gaps": [
            {
                "id": "5d0c2f0e-7d52-5c7b-8d0f-2f6f1d1f7b11",
                "collection": "hr",
                "words": ["parental", "leave"],
                "question": "How long is parental leave?",
                "questions": 5,
                "times": 9,
                "readers": 4,
                "first_at": "2026-11-02T08:00:00Z",
                "last_at": "2026-11-20T10:00:00Z",
                "new": 2,
                "earlier": 1,
                "entries": 6,
                "answered": 0,
                "closed_at": None,
            }
        ],
        "hidden_gaps": 3,
        "hidden_questions": 4,
        "ungrouped": 0,
        "new": 4,
        "earlier": 2,
    },
}
