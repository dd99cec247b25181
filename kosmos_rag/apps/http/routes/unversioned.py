"""Routes outside of /v1: chat, totals, reload and grounding under /api.

They have the functions and rules of the routes under /v1.
"""

from fastapi import APIRouter, Response
from pydantic import Field

from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.routes.search import EVENTS
from kosmos_rag.apps.http.schemas import Reload
from kosmos_rag.apps.http.toolkit.answers import start_answer
from kosmos_rag.apps.http.toolkit.bodies import History, Question, RequestBody, to_turns
from kosmos_rag.apps.http.toolkit.dependencies import Operator, Reader
from kosmos_rag.apps.http.toolkit.streaming import EventStreamResponse
from kosmos_rag.core.types import Stats

router = APIRouter(prefix="/api")

_NO_SOURCES = (
    "no source of this tenant is read at an interval, and uploads have nothing to reload: "
    "`kosmos-rag enqueue FOLDER --every 3600` makes one"
)


class ChatRequest(RequestBody):
    """A question to the assistant."""

    query: Question
    model: str | None = Field(
        default=None, description="The language model; the service has one, and warns where another is named."
    )
    collection: str | None = None
    history: History = Field(default=[])


@router.post(
    "/chat",
    tags=["questions"],
    response_class=Response,  # without a media type: else the OpenAPI document lists JSON too
    responses={200: {"description": "The events of the answer.", "content": EVENTS}},
)
async def chat(body: ChatRequest, caller: Reader) -> Response:
    """Answer a question by events, as `/v1/answer`.

    The events are `sources`, `token`s, `citations` and `done`, or `error`.
    """
    settings = caller.service.settings
    generates = settings.rag.answer.mode == "generative"
    served = settings.language_model.model
    warning = None
    if body.model is not None and not (generates and body.model == served):
        served_by = f"the model {served}" if generates else "no model: answers are sentences of the documents"
        warning = f"{body.model} is not served here; {served_by}"
    events = await start_answer(caller, body.collection, body.query, {"history": to_turns(body.history)})
    return EventStreamResponse(events, warning=warning)


@router.get("/rag/stats", tags=["operations"])
async def stats(caller: Reader) -> Stats:
    """Count the documents and chunks that you may read, as `/v1/stats`."""
    return await resources.stats(caller)


@router.post("/rag/reload", status_code=202, tags=["operations"])
async def reload(caller: Operator) -> Reload:
    """Queue the recurring sources for workers now, as `/v1/reload`."""
    changed, totals = await resources.reload(caller), await resources.stats(caller)
    if changed.jobs:
        return Reload(status="reloading", jobs=changed.jobs, stats=totals)
    return Reload(status="nothing to reload", message=_NO_SOURCES, jobs=[], stats=totals)
