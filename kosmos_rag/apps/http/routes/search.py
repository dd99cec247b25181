"""Questions: search, evidence, answers, and the assistant."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from kosmos_rag.apps.auth.api_keys import ADMIN
from kosmos_rag.apps.http.dependencies import Caller, Reader
from kosmos_rag.apps.http.schemas import (
    AnswerRequest,
    AnswerView,
    ChatRequest,
    ContextRequest,
    ContextView,
    FeedbackRequest,
    FeedbackView,
    SearchRequest,
    SearchView,
)
from kosmos_rag.apps.http.streaming import MEDIA_TYPE, AnswerEventStream, EventStreamResponse

router = APIRouter(tags=["questions"])

_EVENT = {
    "type": "object",
    "description": "Of each event; docs/service.md lists what they carry.",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["sources", "token", "citations", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_EVENTS = {MEDIA_TYPE: {"schema": _EVENT, "example": {"event": "token", "data": '{"text": "20 days"}'}}}


def _json(view: BaseModel) -> Response:
    # Written once: FastAPI would validate and walk a model that was just made.
    return Response(view.model_dump_json(), media_type="application/json")


@router.post("/v1/search", responses={200: {"model": SearchView}})
async def search(asked: SearchRequest, caller: Reader) -> Response:
    """Find the best passages for a question."""
    if asked.explain:
        caller.identity.require(ADMIN)
    scope = caller.scope(asked.collection)
    found = await caller.run(scope.search, asked.question, asked.k, asked.filter)
    return _json(SearchView.of(found, explain=asked.explain))


@router.post("/v1/context", responses={200: {"model": ContextView}})
async def context(asked: ContextRequest, caller: Reader) -> Response:
    """Gather numbered, cited evidence for a question within a budget of tokens."""
    scope = caller.scope(asked.collection)
    found = await caller.run(scope.context, asked.question, asked.k, asked.filter, max_tokens=asked.max_tokens)
    return _json(ContextView.of(found))


@router.post("/v1/answer", responses={200: {"model": AnswerView, "content": _EVENTS}})
async def answer(asked: AnswerRequest, caller: Reader, request: Request) -> Response:
    """Answer a question from the evidence, or refuse; by events where `Accept: text/event-stream` asks for them."""
    options = {"k": asked.k, "filter": asked.filter, "max_tokens": asked.max_tokens, "history": asked.turns}
    events = await start_answer(caller, asked.collection, asked.question, options)
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return EventStreamResponse(events)
    whole = await events.answer(request.receive)
    return Response(status_code=499) if whole is None else _json(AnswerView.of(whole))


@router.post(
    "/api/chat",
    response_class=Response,  # of no type of its own: else it would be said to answer with JSON too
    responses={200: {"description": "The events of the answer.", "content": _EVENTS}},
)
async def chat(asked: ChatRequest, caller: Reader) -> Response:
    """Answer a question by events: `sources`, `token`s, `citations`, `done`; `error` where it ends early."""
    served = caller.service.settings.language_model.model
    writes = caller.service.settings.rag.answer.mode == "generative"
    warning = None
    if asked.model is not None and not (writes and asked.model == served):
        writer = f"the model {served}" if writes else "no model: answers are sentences of the documents"
        warning = f"{asked.model} is not served here; {writer}"
    events = await start_answer(caller, asked.collection, asked.query, {"history": asked.turns})
    return EventStreamResponse(events, warning=warning)


async def start_answer(
    caller: Caller, collection: str | None, question: str, options: Mapping[str, Any]
) -> AnswerEventStream:
    """Search for an answer's sources and start its stream.

    Only the search counts as a concurrent call, because a language model may write for long. Raises Overloaded.

    Args:
        caller: who asks, with the service.
        collection: name of the collection; None for the default one.
        question: the question.
        options: further arguments of `Tenant.stream_answer`.
    """
    streams = caller.service.streams
    streams.reserve()
    try:
        stream = await caller.run(caller.scope(collection).stream_answer, question, **options)
    except BaseException:
        streams.release()
        raise
    return streams.start(stream)


@router.post("/v1/feedback")
async def feedback(said: FeedbackRequest, caller: Reader) -> FeedbackView:
    """Say whether an answer, or a passage of it, was of use; what you said of the same before is replaced."""
    kept = await caller.run(
        caller.scope(said.collection).feedback,
        said.rating,
        retrieval_id=said.retrieval_id,
        question=said.question,
        chunk_id=said.chunk_id,
        comment=said.comment,
    )
    return FeedbackView.of(kept)
