"""What responses and chat completions have in common."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.answers import stream_answer
from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.streaming import AnswerEventStream
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.stored_files import file_name, parse_file_source
from kosmos_rag.core.types import Answer, Turn
from kosmos_rag.openai.access import open_vector_stores
from kosmos_rag.openai.filters import Filters, to_filter
from kosmos_rag.openai.search import MaxResults


class ToolRanking(RequestBody):
    """Ranking of the evidence: as the settings say."""

    ranker: Literal["auto", "default-2024-11-15"] = "auto"
    score_threshold: Literal[0] = Field(default=0, description="Evidence is judged by rag.answer.threshold.")


class FileSearchTool(RequestBody):
    """Vector stores that the answer is from."""

    type: Literal["file_search"]
    vector_store_ids: Annotated[list[str], Field(min_length=1, max_length=20)]
    filters: Filters | None = None
    max_num_results: MaxResults | None = None
    ranking_options: ToolRanking | None = None


Tools = Annotated[list[FileSearchTool], Field(max_length=1, description="At most one, of type file_search.")]


class TextPart(BaseModel):
    """A part of a message; texts only."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ConversationMessage(BaseModel):
    """A message of the conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def text(self) -> str:
        """The whole text."""
        return self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)


class Sampling(RequestBody):
    """Parameters without effect: the settings of the service decide."""

    temperature: Any = None
    top_p: Any = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    parallel_tool_calls: Any = None


class FileCitation(BaseModel):
    """A file that the text cites at a position."""

    type: Literal["file_citation"] = "file_citation"
    index: int
    file_id: str
    filename: str


def to_question(messages: Sequence[ConversationMessage]) -> tuple[str, list[Turn]]:
    """Return the question and the conversation before it.

    Instructions have no effect: the prompt is that of the service. Raises RequestError where the last message is not of
    the user.
    """
    conversation = [message for message in messages if message.role in ("user", "assistant")]
    if not conversation or conversation[-1].role != "user":
        raise RequestError("messages: the last one must be the question, of the role user")
    turns = [
        Turn(question=question.text, answer=answer.text)
        for question, answer in pairwise(conversation)
        if (question.role, answer.role) == ("user", "assistant")
    ]
    return conversation[-1].text, turns


async def start(
    caller: Caller, model: str, messages: Sequence[ConversationMessage], tools: Sequence[FileSearchTool]
) -> AnswerEventStream:
    """Start an answer.

    Args:
        messages: Earlier turns, and the question last.
        tools: The vector stores; without any, the default collection of the key, or all.

    Raises:
        RequestError: no language model writes answers here, or the messages have no question.
        NotFound: there is no such model or vector store.
    """
    _require_model(caller, model)
    question, history = to_question(messages)
    options: dict[str, Any] = {"history": history}
    tenant = caller.scope(None)
    for tool in tools:
        stores = tool.vector_store_ids
        for name in stores:
            await caller.run(open_vector_stores(caller).require, name)
        tenant = caller.tenant(stores[0] if len(stores) == 1 else None)
        options["filter"] = to_filter(tool.filters, None if len(stores) == 1 else stores)
        options["k"] = tool.max_num_results
    return await stream_answer(caller, tenant, question, options)


def _require_model(caller: Caller, name: str) -> None:
    language_model = caller.tenant().language_model
    if language_model is None or caller.service.settings.rag.answer.mode != "generative":
        raise RequestError(
            "model: no language model writes answers here; set language_model and rag.answer.mode: generative, or use "
            "vector_stores.search"
        )
    if name != language_model:
        raise NotFound(f"the model {name[:100]!r} is not served here; use {language_model}")


def cite(answer: Answer) -> list[FileCitation]:
    """Return the citations of an answer's text.

    Each is at the position of its marker. Markers of sentences that their passage does not support cite nothing.
    """
    cited = {sentence.citation.marker: sentence.citation for sentence in answer.sentences}
    if not cited:
        return []
    matches = re.finditer("|".join(re.escape(marker) for marker in sorted(cited, key=len, reverse=True)), answer.text)
    citations = []
    for match in matches:
        citation = cited[match[0]]
        file_id, filename = parse_file_source(citation.source, citation.document_id)
        citations.append(FileCitation(index=match.start(), file_id=file_name(file_id), filename=filename))
    return citations
