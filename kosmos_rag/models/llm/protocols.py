"""Chat protocols: OpenAI's, which vLLM and llama.cpp speak too, and Ollama's own.

Ollama's OpenAI-compatible endpoint has no option for the context length (`num_ctx`), and Ollama truncates longer
prompts without an error.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.protocols import Message


class ProtocolError(Exception):
    """A line does not belong to the protocol."""


class ServerError(Exception):
    """A line reports a failure of the server.

    Its message is the server's.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamChunk:
    """Content of one line of a response."""

    text: str = ""
    ended: bool = False
    """Whether the answer ends here."""
    truncated: bool = False
    """Whether it ends here because of its maximum length."""
    input_tokens: int | None = None
    """Tokens of the conversation; None where the line does not report them."""
    output_tokens: int | None = None
    """Tokens of the answer; None where the line does not report them."""


class ChatProtocol(Protocol):
    """Builds requests and parses the lines of responses."""

    path: str
    """Path of the endpoint, after the base URL."""
    example: str
    """Example of a base URL."""
    reports_usage_last: bool
    """Whether token counts follow the end of the answer."""

    def build_request(
        self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int
    ) -> dict[str, Any]:
        """Build the body of a streaming request at temperature 0.

        Args:
            settings: model name and context length.
        """
        ...

    def parse_line(self, line: str) -> StreamChunk:
        """Parse a line without its line end. Raises ProtocolError, ServerError."""
        ...


class OpenAI:
    """Server-sent events with one object each; `[DONE]` ends the stream."""

    path = "/chat/completions"
    example = "http://localhost:8000/v1"
    reports_usage_last = True

    def build_request(
        self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int
    ) -> dict[str, Any]:
        """Build the body of a request."""
        options = {"stream_options": {"include_usage": True}} if settings.report_usage else {}
        return {
            "model": settings.model,
            "messages": _message_objects(messages),
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": True,
            **options,
        }

    def parse_line(self, line: str) -> StreamChunk:
        """Parse a line of an event stream."""
        field, colon, value = line.partition(":")
        if field in ("", "event", "id", "retry"):  # a blank line ends an event; a comment keeps the connection open
            return StreamChunk()
        if field != "data" or not colon:
            raise ProtocolError
        if value.strip() == "[DONE]":
            return StreamChunk(ended=True)
        event = _parse_object(value)
        choices = event.get("choices")
        counts = _parse_counts(event.get("usage"), "prompt_tokens", "completion_tokens")
        if choices == []:  # token counts come in a last event
            return StreamChunk(**counts)
        try:
            choice = choices[0]  # type: ignore[index]  # any other shape raises below
            reason = choice.get("finish_reason")
            text = _parse_text(choice["delta"].get("content"))
            chunk = StreamChunk(text=text, ended=bool(reason), truncated=reason == "length")
            return replace(chunk, **counts)
        except (LookupError, TypeError, AttributeError):
            raise ProtocolError from None


class Ollama:
    """Lines with one object each; the last one is `done`."""

    path = "/api/chat"
    example = "http://localhost:11434"
    reports_usage_last = False

    def build_request(
        self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int
    ) -> dict[str, Any]:
        """Build the body of a request."""
        options = {"temperature": 0, "num_predict": max_tokens, "num_ctx": settings.context_tokens}
        return {"model": settings.model, "messages": _message_objects(messages), "stream": True, "options": options}

    def parse_line(self, line: str) -> StreamChunk:
        """Parse a line of JSON."""
        if not line.strip():
            return StreamChunk()
        event = _parse_object(line)
        ended = event.get("done") is True
        truncated = event.get("done_reason") == "length"
        counts = _parse_counts(event, "prompt_eval_count", "eval_count")
        try:
            text = _parse_text(event["message"].get("content"))
            return replace(StreamChunk(text=text, ended=ended, truncated=truncated), **counts)
        except (LookupError, TypeError, AttributeError):
            if ended:
                return replace(StreamChunk(ended=True, truncated=truncated), **counts)
            raise ProtocolError from None


PROTOCOLS: dict[Literal["openai", "ollama"], ChatProtocol] = {"openai": OpenAI(), "ollama": Ollama()}


def _message_objects(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError from None
    if not isinstance(value, dict):
        raise ProtocolError
    error = value.get("error")
    if error is not None:
        raise ServerError(error.get("message") or error if isinstance(error, dict) else error)
    return value


def _parse_counts(usage: object, input_name: str, output_name: str) -> dict[str, Any]:
    """Return the token counts that a server reports, as fields of StreamChunk."""
    if not isinstance(usage, dict):
        return {}
    reported = {"input_tokens": usage.get(input_name), "output_tokens": usage.get(output_name)}
    return {name: count for name, count in reported.items() if isinstance(count, int)}


def _parse_text(content: object) -> str:
    if content is None:  # in the first and last events of an answer
        return ""
    if not isinstance(content, str):
        raise TypeError
    return content
