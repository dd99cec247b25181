"""Responses: requests, results and the events of their stream."""

import secrets
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.bodies import QUESTION, RequestBody
from kosmos_rag.apps.http.toolkit.errors import public_detail
from kosmos_rag.apps.http.toolkit.streaming import format_event, report_early_end
from kosmos_rag.core.types import Answer, AnswerEvent, AnswerPiece, AnswerSources, Context
from kosmos_rag.openai.answers import ConversationMessage, FileCitation, Sampling, Tools, cite
from kosmos_rag.openai.chat import CountTokens, TextFormat, count_input
from kosmos_rag.openai.errors import openai_error
from kosmos_rag.openai.search import SearchResultObject, merge_hits

RESULTS = "file_search_call.results"


class TextOptions(RequestBody):
    """The format of an answer."""

    format: TextFormat | None = None
    verbosity: Any = None


class InputMessage(ConversationMessage):
    """A message of the conversation; an answer of an earlier response too."""

    type: Literal["message"] = "message"


class FileSearchItem(BaseModel):
    """A search of an earlier response; it has no effect."""

    type: Literal["file_search_call"]


class ResponseRequest(Sampling):
    """A question, or a conversation whose last message is one."""

    model: str = Field(description="The language model of the service.")
    input: (
        Annotated[str, Field(min_length=1, examples=[QUESTION])]
        | Annotated[list[InputMessage | FileSearchItem], Field(min_length=1, max_length=400)]
    )
    tools: Tools = Field(default=[])
    tool_choice: Literal["auto", "required"] | None = None
    include: list[Literal["file_search_call.results"]] | None = None
    stream: bool | None = None
    background: Literal[False] | None = None
    text: TextOptions | None = None
    instructions: Any = Field(default=None, description="Without effect: the prompt is that of the service.")
    max_output_tokens: Any = None
    truncation: Any = None
    reasoning: Any = None

    @property
    def messages(self) -> list[ConversationMessage]:
        """The conversation."""
        if isinstance(self.input, str):
            return [ConversationMessage(role="user", content=self.input)]
        return [entry for entry in self.input if isinstance(entry, ConversationMessage)]


class FileSearchResult(BaseModel):
    """A passage that the answer may use."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, str | int | float | bool]
    text: str


class FileSearchCall(BaseModel):
    """The search of an answer."""

    id: str
    type: Literal["file_search_call"] = "file_search_call"
    status: Literal["in_progress", "searching", "completed"] = "completed"
    queries: list[str]
    results: list[FileSearchResult] | None = None


class OutputText(BaseModel):
    """The text of an answer with its citations."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[FileCitation]


class OutputMessage(BaseModel):
    """The answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    content: list[OutputText]


class TokenDetails(BaseModel):
    """Details that are not counted here."""

    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ResponseUsage(BaseModel):
    """Tokens of evidence, question and answer, as the embedding model counts them."""

    input_tokens: int
    input_tokens_details: TokenDetails = TokenDetails()
    output_tokens: int
    output_tokens_details: TokenDetails = TokenDetails()
    total_tokens: int


class IncompleteDetails(BaseModel):
    """Why an answer is not complete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ResponseObject(BaseModel):
    """An answer from the documents."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[FileSearchCall | OutputMessage]
    error: None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = False
    previous_response_id: None = None
    temperature: None = None
    tool_choice: Literal["auto"] = "auto"
    tools: list[dict[str, Any]]
    top_p: None = None
    usage: ResponseUsage | None = None


class ResponseBuilder:
    """Builds a response, complete or event by event."""

    def __init__(self, body: ResponseRequest, count: CountTokens) -> None:
        self._count = count
        self._with_results = RESULTS in (body.include or ())
        self._call_id, self._message_id = f"fs_{secrets.token_hex(12)}", f"msg_{secrets.token_hex(12)}"
        self._response = ResponseObject(
            id=f"resp_{secrets.token_hex(12)}",
            created_at=int(time.time()),
            status="in_progress",
            model=body.model,
            output=[],
            tools=[tool.model_dump(mode="json", exclude_none=True) for tool in body.tools],
        )
        self._number = 0

    def build(self, answer: Answer) -> ResponseObject:
        """Return the response of a complete answer."""
        input_tokens, output_tokens = count_input(answer, self._count), self._count(answer.text)
        usage = ResponseUsage(
            input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
        )
        status: Literal["completed", "incomplete"] = "incomplete" if answer.truncated else "completed"
        message = self._message(answer.text, cite(answer)).model_copy(update={"status": status})
        output = [self._call(answer.context), message]
        details = IncompleteDetails() if answer.truncated else None
        return self._response.model_copy(
            update={"status": status, "incomplete_details": details, "output": output, "usage": usage}
        )

    def encode(self, item: AnswerEvent | Exception) -> Sequence[bytes]:
        """Encode a part of an answer, or the error that ended it."""
        if isinstance(item, Exception):
            problem = report_early_end(item)
            error = openai_error(problem, public_detail(item, problem), {})["error"]
            failure = {"code": "server_error", "message": error["message"]}
            failed = self._response.model_copy(update={"status": "failed"}).model_dump(mode="json")
            return [
                self._event("error", code=error["code"], message=error["message"], param=None),
                self._event("response.failed", response={**failed, "error": failure}),
            ]
        if isinstance(item, AnswerSources):
            return self._begin(item)
        if isinstance(item, AnswerPiece):
            return [self._part_event("response.output_text.delta", delta=item.text, logprobs=[])]
        return self._end(item.answer)

    def _begin(self, sources: AnswerSources) -> list[bytes]:
        response = self._response.model_dump(mode="json")
        call = self._call(sources.context)
        searching = call.model_copy(update={"status": "in_progress", "results": None}).model_dump(mode="json")
        place = {"output_index": 0, "item_id": self._call_id}
        message = {**self._message("", []).model_dump(mode="json"), "status": "in_progress", "content": []}
        return [
            self._event("response.created", response=response),
            self._event("response.in_progress", response=response),
            self._event("response.output_item.added", output_index=0, item=searching),
            self._event("response.file_search_call.in_progress", **place),
            self._event("response.file_search_call.searching", **place),
            self._event("response.file_search_call.completed", **place),
            self._event("response.output_item.done", output_index=0, item=call.model_dump(mode="json")),
            self._event("response.output_item.added", output_index=1, item=message),
            self._part_event("response.content_part.added", part=OutputText(text="", annotations=[]).model_dump()),
        ]

    def _end(self, answer: Answer) -> list[bytes]:
        response = self.build(answer)
        message = response.output[1].model_dump(mode="json")
        (part,) = message["content"]
        added = [
            self._part_event("response.output_text.annotation.added", annotation_index=index, annotation=annotation)
            for index, annotation in enumerate(part["annotations"])
        ]
        return [
            *added,
            self._part_event("response.output_text.done", text=answer.text, logprobs=[]),
            self._part_event("response.content_part.done", part=part),
            self._event("response.output_item.done", output_index=1, item=message),
            self._event(f"response.{response.status}", response=response.model_dump(mode="json")),
        ]

    def _call(self, context: Context) -> FileSearchCall:
        results = None
        if self._with_results:
            hits = context.retrieval.hits
            objects = [SearchResultObject.from_record(*hit) for hit in merge_hits([hits], limit=len(hits))]
            results = [
                FileSearchResult(**entry.model_dump(exclude={"content"}), text=entry.content[0].text)
                for entry in objects
            ]
        return FileSearchCall(id=self._call_id, queries=[context.question], results=results)

    def _message(self, text: str, citations: list[FileCitation]) -> OutputMessage:
        return OutputMessage(id=self._message_id, content=[OutputText(text=text, annotations=citations)])

    def _part_event(self, name: str, **data: Any) -> bytes:
        return self._event(name, item_id=self._message_id, output_index=1, content_index=0, **data)

    def _event(self, name: str, **data: Any) -> bytes:
        self._number += 1
        return format_event(name, {"type": name, "sequence_number": self._number - 1, **data})
