"""Routes of responses and chat completions."""

from typing import Any

from fastapi import APIRouter, Request, Response

from kosmos_rag.apps.http.toolkit.dependencies import Reader
from kosmos_rag.apps.http.toolkit.streaming import MEDIA_TYPE, EventStreamResponse
from kosmos_rag.openai.answers import start
from kosmos_rag.openai.chat import ChatCompletion, ChatCompletionRequest, ChatEncoder, completion
from kosmos_rag.openai.responses import ResponseBuilder, ResponseObject, ResponseRequest

router = APIRouter(prefix="/openai/v1", tags=["openai: answers"])

_CLIENT_CLOSED_REQUEST = 499
_EVENTS: dict[str, Any] = {
    MEDIA_TYPE: {
        "schema": {"type": "string", "description": "Events, with `stream: true`."},
        "example": "data: [DONE]\n\n",
    }
}


@router.post("/chat/completions", responses={200: {"model": ChatCompletion, "content": _EVENTS}})
async def chat(body: ChatCompletionRequest, caller: Reader, request: Request) -> Response:
    """Answer a question from vector stores, with citations.

    They are those of the tool `file_search`, else the default collection of the key, or all.
    """
    events = await start(caller, body.model, body.messages, body.tools or [])
    count = caller.tenant().count_tokens
    if body.stream:
        include_usage = body.stream_options is not None and body.stream_options.include_usage
        return EventStreamResponse(events, encode_item=ChatEncoder(body.model, count, include_usage=include_usage))
    answer = await events.answer(request.receive)
    if answer is None:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    return _json(completion(answer, body.model, count))


@router.post("/responses", responses={200: {"model": ResponseObject, "content": _EVENTS}})
async def respond(body: ResponseRequest, caller: Reader, request: Request) -> Response:
    """Answer a question from vector stores, with citations.

    They are those of the tool `file_search`, else the default collection of the key, or all.
    """
    events = await start(caller, body.model, body.messages, body.tools)
    builder = ResponseBuilder(body, caller.tenant().count_tokens)
    if body.stream:
        return EventStreamResponse(events, encode_item=builder.encode)
    answer = await events.answer(request.receive)
    if answer is None:
        return Response(status_code=_CLIENT_CLOSED_REQUEST)
    return _json(builder.build(answer))


def _json(record: ChatCompletion | ResponseObject) -> Response:
    return Response(record.model_dump_json(), media_type="application/json")
