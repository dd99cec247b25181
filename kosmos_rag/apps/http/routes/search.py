"""Search, context, answer, and feedback on them."""

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.http.schemas import (
    AnswerRequest,
    ContextRequest,
    FeedbackRequest,
    FilteredRequest,
    SearchRequest,
)
from kosmos_rag.apps.http.toolkit.answers import stream_answer
from kosmos_rag.apps.http.toolkit.bodies import to_turns
from kosmos_rag.apps.http.toolkit.concurrency import SEARCH, SEARCHES, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller, Reader
from kosmos_rag.apps.http.toolkit.streaming import MEDIA_TYPE, EventStreamResponse
from kosmos_rag.core.types import Answer, Context, Feedback, SearchResult
from kosmos_rag.core.types.serialize import to_json
from kosmos_rag.engine.api_keys import ADMIN

router = APIRouter(tags=["questions"])

_EVENT = {
    "type": "object",
    "description": "One event; docs/service.md lists their data.",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["sources", "token", "citations", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
EVENTS = {MEDIA_TYPE: {"schema": _EVENT, "example": {"event": "token", "data": '{"text": "20 days"}'}}}


def _respond(record: SearchResult | Context | Answer, *, explain: bool) -> Response:
    # Not by a return annotation: FastAPI would serialise fields that only administrators may see.
    return Response(to_json(record, explain=explain), media_type="application/json")


def _check_scope(query: FilteredRequest, caller: Caller) -> None:
    """Raise NotPermitted where an explanation is asked for without the scope admin."""
    if query.explain:
        caller.identity.require(ADMIN)


@router.post("/v1/search", responses={200: {"model": SearchResult}})
async def search(query: SearchRequest, caller: Reader) -> Response:
    """Find the best passages for a question, or for several."""
    _check_scope(query, caller)
    tenant = caller.scope(query.collection, read_your_writes=query.read_your_writes)
    cost = question_cost(SEARCH, query.question, k=query.k) * SEARCHES[query.effort]
    result = await caller.run_at_cost(
        cost, tenant.search, query.question, query.k, query.filter, syntax=query.syntax, **query.options
    )
    return _respond(result, explain=query.explain)


@router.post("/v1/context", responses={200: {"model": Context}})
async def context(query: ContextRequest, caller: Reader) -> Response:
    """Collect numbered, cited evidence for a question within a budget of tokens."""
    _check_scope(query, caller)
    tenant = caller.scope(query.collection, read_your_writes=query.read_your_writes)
    cost = question_cost(SEARCH, query.question, k=query.k, max_tokens=query.max_tokens)
    result = await caller.run_at_cost(
        cost,
        tenant.context,
        query.question,
        query.k,
        query.filter,
        max_tokens=query.max_tokens,
        syntax=query.syntax,
    )
    return _respond(result, explain=query.explain)


@router.post("/v1/answer", responses={200: {"model": Answer, "content": EVENTS}})
async def answer(query: AnswerRequest, caller: Reader, request: Request) -> Response:
    """Answer a question from the evidence, or refuse.

    The answer is sent as events with `Accept: text/event-stream`.
    """
    _check_scope(query, caller)
    options = {
        "k": query.k,
        "filter": query.filter,
        "max_tokens": query.max_tokens,
        "history": to_turns(query.history),
        "syntax": query.syntax,
    }
    scope = caller.scope(query.collection, read_your_writes=query.read_your_writes)
    events = await stream_answer(caller, scope, query.question, options)
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return EventStreamResponse(events, explain=query.explain)
    complete = await events.answer(request.receive)
    return Response(status_code=499) if complete is None else _respond(complete, explain=query.explain)


@router.post("/v1/feedback")
async def feedback(body: FeedbackRequest, caller: Reader) -> Feedback:
    """Rate a result or one of its passages.

    A new rating replaces your previous one of the same.
    """
    return await caller.run(
        caller.scope(body.collection).feedback,
        body.rating,
        retrieval_id=body.retrieval_id,
        question=body.question,
        chunk_id=body.chunk_id,
        comment=body.comment,
        reason=body.reason,
    )
