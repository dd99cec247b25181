"""What two kinds of servers are sent and answer: the OpenAI chat protocol, and Ollama's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.protocols import Message

_TOO_LONG = "length"


class NotOfProtocolError(Exception):
    """A line is not what the protocol has."""


class ServerSaidError(Exception):
    """A line reports a failure of the server, which is the message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What one line of an answer says."""

    text: str = ""
    ended: bool = False
    """Whether the answer ends with it."""
    cut: bool = False
    """Whether it ends there because it may not be longer."""


class ChatProtocol(Protocol):
    """How a server is asked for a chat, and how its lines are read."""

    path: str
    """Behind the base address."""
    example: str
    """A base address."""

    def request(self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int) -> dict[str, Any]:
        """Return the body of the request, for an answer at temperature 0."""
        ...

    def read(self, line: str) -> Said:
        """Read a line without its end. Raises NotOfProtocolError, ServerSaidError."""
        ...


class OpenAI:
    """Server-sent events with an object each, and `[DONE]` at the end."""

    path = "/chat/completions"
    example = "http://localhost:8000/v1"

    def request(self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int) -> dict[str, Any]:
        """Return the body of the request."""
        return {
            "model": settings.model,
            "messages": _said(messages),
            "temperature": 0,
            "max_tokens": max_tokens,
            "stream": True,
        }

    def read(self, line: str) -> Said:
        """Read a line of an event stream."""
        field, colon, value = line.partition(":")
        if field in ("", "event", "id", "retry"):  # a blank line ends an event, and a comment keeps the line open
            return Said()
        if field != "data" or not colon:
            raise NotOfProtocolError
        if value.strip() == "[DONE]":
            return Said(ended=True)
        event = _object(value)
        choices = event.get("choices")
        if choices == []:  # some report at the end how many tokens were used
            return Said()
        try:
            choice = choices[0]  # type: ignore[index]  # whatever came is tried
            reason = choice.get("finish_reason")
            text = _text(choice["delta"].get("content"))
            return Said(text=text, ended=reason is not None, cut=reason == _TOO_LONG)
        except (LookupError, TypeError, AttributeError):
            raise NotOfProtocolError from None


class Ollama:
    """Lines with an object each, the last of which is `done`."""

    path = "/api/chat"
    example = "http://localhost:11434"

    def request(self, messages: Sequence[Message], settings: LanguageModelSettings, max_tokens: int) -> dict[str, Any]:
        """Return the body of the request."""
        options = {"temperature": 0, "num_predict": max_tokens, "num_ctx": settings.context_tokens}
        return {"model": settings.model, "messages": _said(messages), "stream": True, "options": options}

    def read(self, line: str) -> Said:
        """Read a line of JSON."""
        if not line.strip():
            return Said()
        event = _object(line)
        ended = event.get("done") is True
        cut = event.get("done_reason") == _TOO_LONG
        try:
            return Said(text=_text(event["message"].get("content")), ended=ended, cut=cut)
        except (LookupError, TypeError, AttributeError):
            if ended:
                return Said(ended=True, cut=cut)
            raise NotOfProtocolError from None


PROTOCOLS: dict[Literal["openai", "ollama"], ChatProtocol] = {"openai": OpenAI(), "ollama": Ollama()}


def _said(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.text} for message in messages]


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NotOfProtocolError from None
    if not isinstance(value, dict):
        raise NotOfProtocolError
    error = value.get("error")
    if error is not None:
        raise ServerSaidError(error.get("message") or error if isinstance(error, dict) else error)
    return value


def _text(content: object) -> str:
    """Return a piece of the answer; the first and last ones often have none."""
    if content is None:
        return ""
    if not isinstance(content, str):
        raise TypeError
    return content
