"""Chat completions: requests, results and their stream."""

import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.apps.http.toolkit.errors import public_detail
from kosmos_rag.apps.http.toolkit.streaming import report_early_end
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources
from kosmos_rag.openai.answers import ConversationMessage, FileCitation, Sampling, Tools, cite
from kosmos_rag.openai.errors import openai_error

CountTokens = Callable[[str], int]
FinishReason = Literal["stop", "length"]


class StreamOptions(RequestBody):
    """What a stream has in addition."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class TextFormat(RequestBody):
    """The format of an answer: text."""

    type: Literal["text"]


class ChatCompletionRequest(Sampling):
    """A conversation whose last message is the question."""

    model: str = Field(description="The language model of the service.")
    messages: Annotated[list[ConversationMessage], Field(min_length=1, max_length=400)]
    tools: Tools | None = None
    tool_choice: Literal["auto", "required"] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    response_format: TextFormat | None = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    seed: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None


class ChatMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    annotations: list[FileCitation]


class Choice(BaseModel):
    """The one answer."""

    index: Literal[0] = 0
    message: ChatMessage
    finish_reason: FinishReason
    logprobs: None = None


class CompletionUsage(BaseModel):
    """Tokens of evidence, question and answer, as the embedding model counts them."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(BaseModel):
    """An answer from the documents."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: CompletionUsage


def completion(answer: Answer, model: str, count: CountTokens) -> ChatCompletion:
    """Convert a complete answer.

    Args:
        model: Name of the language model.
    """
    message = ChatMessage(content=answer.text, annotations=cite(answer))
    return ChatCompletion(
        id=_new_id(),
        created=int(time.time()),
        model=model,
        choices=[Choice(message=message, finish_reason=_find_finish_reason(answer))],
        usage=_usage(answer, count),
    )


def _find_finish_reason(answer: Answer) -> FinishReason:
    return "length" if answer.truncated else "stop"


class ChatEncoder:
    """Encodes an answer as the chunks of a chat completion."""

    def __init__(self, model: str, count: CountTokens, *, include_usage: bool) -> None:
        self._head = {
            "id": _new_id(),
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        self._count = count
        self._include_usage = include_usage

    def __call__(self, item: AnswerEvent | Exception) -> Sequence[bytes]:
        """Encode a part of an answer, or the error that ended it."""
        if isinstance(item, Exception):
            problem = report_early_end(item)
            return [_event(openai_error(problem, public_detail(item, problem), {}))]
        if isinstance(item, AnswerSources):
            return [self._chunk({"role": "assistant", "content": ""})]
        if isinstance(item, AnswerPiece):
            return [self._chunk({"content": item.text})]
        return self._end(item)

    def _end(self, event: AnswerDone) -> list[bytes]:
        annotations = [citation.model_dump() for citation in cite(event.answer)]
        chunks = [self._chunk({"annotations": annotations}, finish_reason=_find_finish_reason(event.answer))]
        if self._include_usage:
            usage = _usage(event.answer, self._count).model_dump()
            chunks.append(_event({**self._head, "choices": [], "usage": usage}))
        return [*chunks, b"data: [DONE]\n\n"]

    def _chunk(self, delta: dict[str, Any], *, finish_reason: FinishReason | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _event({**self._head, "choices": [choice]})


def _usage(answer: Answer, count: CountTokens) -> CompletionUsage:
    prompt, completion = count_input(answer, count), count(answer.text)
    return CompletionUsage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)


def count_input(answer: Answer, count: CountTokens) -> int:
    """Return the number of tokens of an answer's evidence and question."""
    return answer.context.tokens + count(answer.question)


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")
