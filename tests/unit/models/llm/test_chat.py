"""Both chat protocols against a server of its own: answers, failures, deadlines, giving up."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pydantic import SecretStr

from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.errors import ConfigError, ModelError, ModelUnavailable
from kosmos_rag.core.protocols import BoundedStream, LanguageModel, Message, complete
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.models.llm.client import ChatModel, _Completion
from tests.unit.core.recording import RecordingTracer
from tests.unit.models.llm.chat_server import (
    ChatServer,
    Handler,
    Reply,
    breaks_off,
    drips,
    drips_body,
    drips_headers,
    hangs,
    hangs_up,
    returns,
    running,
    sends,
    writes,
    writes_and_then,
)
from tests.waiting import eventually

KEY = "sk-secret-0123456789"
QUESTION = [Message(role="system", text="Be brief."), Message(role="user", text="a question")]
FAILS: Reply = lambda handler: handler.line({"error": {"message": "out of\nmemory"}})  # noqa: E731
BASES = {"openai": "/v1", "ollama": ""}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """One whose clients wait as long as usual before they ask again."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as opened:
        yield opened


@pytest.fixture(params=["openai", "ollama"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def tracer(monkeypatch: pytest.MonkeyPatch) -> RecordingTracer:
    """An SDK that collects."""
    recording = RecordingTracer()
    monkeypatch.setattr(tracing, "_TRACER", recording)
    return recording


Model = Callable[..., ChatModel]


@pytest.fixture
def model(server: ChatServer) -> Iterator[Model]:
    """A model behind the server that gives these replies."""
    with ExitStack() as stack:

        def build(*replies: Reply, protocol: str = "openai", **settings: Any) -> ChatModel:
            server.replies = list(replies)
            values = {"url": server.url(BASES[protocol]), "api_key": SecretStr(KEY), "protocol": protocol, **settings}
            return stack.enter_context(closing(ChatModel(LanguageModelSettings(**values))))

        yield build


def _ask(model: LanguageModel) -> str:
    return complete(model, "a question", max_tokens=50)


def test_stream__sends_what_the_openai_protocol_has(server: ChatServer, model: Model) -> None:
    assert list(model(writes("Kündi", "gungs\u2028rate\n")).stream(QUESTION, max_tokens=50)) == [
        "Kündi",
        "gungs\u2028rate\n",
    ]
    path, headers, body = server.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "llama3.2",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a question"}],
        "temperature": 0,
        "max_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_stream__sends_what_the_ollama_protocol_has(server: ChatServer, model: Model) -> None:
    opened = model(writes("fi", "ne"), protocol="ollama", context_tokens=4096)
    assert list(opened.stream(QUESTION, max_tokens=50)) == ["fi", "ne"]
    path, _, body = server.requests[0]
    assert path == "/api/chat"
    assert body["options"] == {"temperature": 0, "num_predict": 50, "num_ctx": 4096}
    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_stream__gives_a_piece_when_it_comes(model: Model, protocol: str) -> None:
    pieces = model(writes_and_then(hangs, "first"), protocol=protocol).stream(QUESTION, max_tokens=5)
    assert next(pieces) == "first"
    pieces.close()


def _event(content: str, rest: str = "") -> str:
    return f'data: {{"choices": [{{"delta": {{{content}}}{rest}}}]}}'


FINE = _event('"content": "fine"')


@pytest.mark.parametrize(
    "lines",
    [
        [_event('"role": "assistant"'), "", FINE, "", "data: [DONE]", ""],
        [": hello", "", "event: x", "id: 1", "retry: 5", FINE.replace("data: ", "data:"), "", "data:[DONE]"],
        [FINE + "\r", "\r", 'data: {"choices": [], "usage": {}}\r', "\r", "data: [DONE]"],
        [_event('"content": " \\n"'), FINE, _event('"content": null', ', "finish_reason": "length"'), ""],
        [_event('"content": "fi"', ', "finish_reason": ""'), _event('"content": "ne"', ', "finish_reason": "stop"')],
    ],
)
def test_stream__reads_any_order_of_events(model: Model, lines: list[str]) -> None:
    body = "\n".join(lines).encode()
    assert _ask(model(returns(200, body))) == "fine"


CUT = {
    "openai": {"choices": [{"delta": {"content": None}, "finish_reason": "length"}]},
    "ollama": {"message": {"content": ""}, "done": True, "done_reason": "length"},
}


@pytest.mark.parametrize("cut", [True, False])
def test_stream__tells_whether_the_answer_was_cut(model: Model, protocol: str, cut: bool) -> None:
    replies: list[Reply] = [lambda handler: handler.line(CUT[protocol]) if cut else handler.end()]
    pieces = model(writes_and_then(replies[0], "fi", "ne"), protocol=protocol).stream(QUESTION, max_tokens=2)
    assert isinstance(pieces, BoundedStream)
    assert (next(pieces), next(pieces)) == ("fi", "ne")
    assert (list(pieces), pieces.truncated) == ([], cut)


def test_stream__that_failed_was_not_cut(model: Model) -> None:
    pieces = model(writes_and_then(FAILS, "fine")).stream(QUESTION, max_tokens=2)
    with pytest.raises(ModelError, match="out of memory"):
        list(pieces)
    assert not pieces.truncated


@pytest.mark.parametrize("key", [None, SecretStr("")])
def test_stream__without_a_key_sends_none(server: ChatServer, model: Model, key: SecretStr | None) -> None:
    _ask(model(writes("fine"), api_key=key, url=server.url("/v1/")))
    assert "Authorization" not in server.requests[0][1]
    assert server.requests[0][0] == "/v1/chat/completions"


def test_model__asks_for_the_one_that_is_configured(server: ChatServer, model: Model, protocol: str) -> None:
    opened = model(writes("fine"), protocol=protocol, model="qwen")
    _ask(opened)
    assert opened.name == server.requests[0][2]["model"] == "qwen"


@pytest.mark.parametrize("first", [returns(429), returns(503), hangs_up, returns(200, b"", **{"Content-Length": "9"})])
def test_stream__asks_again_once(server: ChatServer, model: Model, first: Reply, protocol: str) -> None:
    assert _ask(model(first, writes("fine"), protocol=protocol)) == "fine"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "error", "message", "requests"),
    [
        (returns(401, b"who?"), ModelUnavailable, r"refused the key \(401: who\?\): correct .*api_key", 1),
        (returns(403), ModelUnavailable, r"refused the key \(403: nothing\)", 1),
        (returns(404, b"pull it"), ModelUnavailable, r"does not have model 'llama3.2' \(404: pull it\)", 1),
        (returns(429), ModelUnavailable, r"is busy \(429: nothing\)", 2),
        (returns(503), ModelUnavailable, r"is busy \(503: nothing\)", 2),
        (hangs_up, ModelUnavailable, "cannot be reached: .*: start it, or correct language_model.url", 2),
        (returns(500, b"out of\nmemory"), ModelError, r"failed \(500: out of memory\): look into its log", 1),
        (returns(500, b"x" * 100_000), ModelError, r"failed \(500: x{200}\)", 1),
        (returns(307, Location="/v2"), ModelError, r"failed \(307: nothing\)", 1),
        (returns(200, b"<html>"), ModelError, r"not of the protocol \w+ \(<html>\): correct language_model\.pro", 1),
        (returns(200, b'{"choices": []}'), ModelError, "not of the protocol", 1),
        (returns(200, b"data: {\n"), ModelError, "not of the protocol", 1),
        (returns(200, b"data: 5\n"), ModelError, "not of the protocol", 1),
        (returns(200, b"[" * 100_000), ModelError, "not of the protocol", 1),
        (returns(200, b'"\xff"'), ModelError, "not of the protocol", 1),
        (returns(200), ModelError, "ended before its answer was complete: look", 1),
        (writes(), ModelError, "answered without a text: correct", 1),
        (writes(None, " \n"), ModelError, "answered without a text: correct", 1),
        (writes(["text"]), ModelError, "not of the protocol", 1),
        (writes_and_then(FAILS), ModelError, r"failed \(out of memory\): look", 1),
        (returns(200, b"no gzip", **{"Content-Encoding": "gzip"}), ModelError, "sent an unreadable response", 1),
        (returns(200, b" " * 4_100_000), ModelError, "sent more than 4000000 bytes", 1),
    ],
)
def test_stream__names_what_failed(
    server: ChatServer,
    model: Model,
    protocol: str,
    reply: Reply,
    error: type[ModelError],
    message: str,
    requests: int,
) -> None:
    with pytest.raises(ModelError) as raised:
        _ask(model(reply, protocol=protocol))
    assert re.search(message, str(raised.value))
    assert str(raised.value).startswith(f"language model server {server.url(BASES[protocol])} ")
    assert str(raised.value).isprintable()
    assert type(raised.value) is error
    assert len(server.requests) == requests


@pytest.mark.parametrize(
    ("then", "message"),
    [
        (hangs_up, "ended before its answer was complete: look into its log, and ask again"),
        (sends(b"garbage\n"), r"sent a line that is not of the protocol \w+ \(garbage\)"),
        (FAILS, r"failed \(out of memory\): look"),
        (lambda handler: handler.line({"error": "out of memory"}), r"failed \(out of memory\): look"),
    ],
)
def test_stream__that_fails_after_it_has_begun_is_not_asked_again(
    server: ChatServer, model: Model, protocol: str, then: Reply, message: str
) -> None:
    pieces = model(writes_and_then(then, "Churn is "), writes("fine"), protocol=protocol).stream(QUESTION, max_tokens=5)
    assert next(pieces) == "Churn is "
    with pytest.raises(ModelError, match=message):
        next(pieces)
    with pytest.raises(ModelError):
        next(pieces)
    assert len(server.requests) == 1


def test_stream__that_breaks_off_says_so(server: ChatServer, model: Model, protocol: str) -> None:
    pieces = model(breaks_off, protocol=protocol).stream(QUESTION, max_tokens=5)
    assert next(pieces) == "Churn is "
    with pytest.raises(ModelError, match="ended the connection during its answer"):
        next(pieces)
    assert len(server.requests) == 1


@pytest.mark.parametrize("padding", [0, 180])
def test_errors__never_show_the_key(model: Model, padding: int, protocol: str) -> None:
    data = b"x" * padding + f" wrong key {KEY}".encode()
    fails = writes_and_then(lambda handler: handler.line({"error": data.decode()}))
    for reply in (returns(500, data), returns(200, data), sends(data), fails):
        with pytest.raises(ModelError) as raised:
            _ask(model(reply, protocol=protocol))
        assert "sk-" not in str(raised.value)


def test_errors__never_show_a_password(model: Model) -> None:
    with pytest.raises(ModelUnavailable, match=r"http://me:\*\*\*@127.0.0.1:1/v1 cannot be reached"):
        _ask(model(writes("fine"), url="http://me:hidden@127.0.0.1:1/v1"))


@pytest.mark.parametrize("reply", [hangs, drips_headers, drips_body])
@pytest.mark.parametrize("key", ["first_token_s", "timeout_s"])
def test_stream__has_to_begin_in_time(model: Model, reply: Reply, key: str) -> None:
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match=rf"gave no answer within 0\.3 s: raise language_model\.{key}"):
        _ask(model(reply, **{key: 0.3}))
    assert time.monotonic() - started < 15


def test_stream__has_to_end_in_time(model: Model, protocol: str) -> None:
    opened = model(writes_and_then(drips, "Churn is "), protocol=protocol, first_token_s=1.0, timeout_s=1.5)
    pieces = opened.stream(QUESTION, max_tokens=5)
    assert next(pieces) == "Churn is "
    with pytest.raises(ModelUnavailable, match=r"did not end its answer within 1\.5 s: raise language_model.timeout_s"):
        next(pieces)


def test_stream__may_take_longer_than_its_beginning(model: Model) -> None:
    def slow(handler: Handler) -> None:
        handler.begin()
        for piece in "fine":
            handler.piece(piece)
            time.sleep(0.4)
        handler.end()

    assert _ask(model(slow, first_token_s=1.0)) == "fine"


@pytest.mark.parametrize("headers", [{}, {"Retry-After": "30"}])
def test_stream__asks_again_within_the_deadline_only(server: ChatServer, model: Model, headers: dict[str, str]) -> None:
    """A pause that would pass the deadline is not begun."""
    with pytest.raises(ModelUnavailable, match=r"is busy \(503: soon\)"):
        _ask(model(returns(503, b"soon", **headers), writes("late"), first_token_s=10.0 if headers else 0.2))
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [drips_body, writes_and_then(drips, "Churn is ")], ids=["before", "after"])
def test_close__hangs_up_at_once(server: ChatServer, model: Model, protocol: str, reply: Reply) -> None:
    pieces = model(reply, protocol=protocol).stream(QUESTION, max_tokens=5)
    eventually(lambda: bool(server.requests))
    pieces.close()
    assert server.given_up.wait(20), "the server still writes"


def test_close__by_another_thread_ends_the_waiting(server: ChatServer, model: Model) -> None:
    pieces = model(hangs).stream(QUESTION, max_tokens=5)
    eventually(lambda: bool(server.requests))
    closing = threading.Timer(0.1, pieces.close)
    closing.start()
    started = time.monotonic()
    with pytest.raises(ModelError, match="was cancelled"):
        next(pieces)
    assert time.monotonic() - started < 15
    closing.join()


def test_close__at_once_and_at_the_end_does_no_harm(model: Model) -> None:
    opened = model(writes("fine"))
    pieces = opened.stream(QUESTION, max_tokens=5)
    pieces.close()
    with pytest.raises(ModelError, match="was cancelled"):
        next(pieces)
    pieces = opened.stream(QUESTION, max_tokens=5)
    assert list(pieces) == ["fine"]
    pieces.close()
    assert list(pieces) == []


def test_stream__that_nobody_reads_is_given_up(server: ChatServer, model: Model) -> None:
    pieces = model(drips_body).stream(QUESTION, max_tokens=5)
    eventually(lambda: bool(server.requests))
    del pieces
    assert server.given_up.wait(20)


def test_model__that_is_closed_gives_up_its_answers(server: ChatServer, model: Model) -> None:
    opened = model(hangs)
    pieces = opened.stream(QUESTION, max_tokens=5)
    eventually(lambda: bool(server.requests))
    opened.close()
    with pytest.raises(ModelError, match="was cancelled"):
        next(pieces)
    with pytest.raises(ModelError, match="is closed"):
        opened.stream(QUESTION, max_tokens=5)
    opened.close()


def test_stream__after_a_late_answer_gives_the_next_question_its_own(model: Model) -> None:
    opened = model(hangs, writes("the second"), first_token_s=1.0)
    with pytest.raises(ModelUnavailable):
        _ask(opened)
    assert _ask(opened) == "the second"


def test_model__serves_threads_at_once(model: Model) -> None:
    together = threading.Barrier(4, timeout=10)

    def meets_the_others(handler: Handler) -> None:
        together.wait()
        writes("fine")(handler)

    opened = model(meets_the_others)
    result: list[str] = []
    threads = [threading.Thread(target=lambda: result.append(_ask(opened))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == ["fine"] * 4


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://host:port/v1", f"http://{'a' * 70}/v1", "http://a..b/v1"])
def test_model__refuses_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"has no valid address .* set language_model.url"):
        ChatModel(LanguageModelSettings(url=url))


def test_model__refuses_to_be_without_an_address() -> None:
    with pytest.raises(ConfigError, match=r"language_model\.url is null: set it"):
        ChatModel(LanguageModelSettings())


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", f"{KEY}ü", f"{KEY}\x00"])
def test_model__refuses_a_key_that_no_header_takes(key: str) -> None:
    with pytest.raises(ConfigError, match=r"language_model\.api_key contains") as raised:
        ChatModel(LanguageModelSettings(url="http://127.0.0.1/v1", api_key=SecretStr(key)))
    assert "sk-" not in str(raised.value)


def test_requests__are_json(server: ChatServer, model: Model, protocol: str) -> None:
    _ask(model(writes("fine"), protocol=protocol))
    _, headers, body = server.requests[0]
    assert headers["Content-Type"] == "application/json"
    assert json.dumps(body)


def test_stream__is_a_span_that_ends_with_the_answer(model: Model, tracer: RecordingTracer) -> None:
    assert list(model(writes("fine")).stream(QUESTION, max_tokens=5)) == ["fine"]
    eventually(lambda: bool(tracer.spans and tracer.spans[0].ended_at is not None))
    (span,) = tracer.spans
    assert span.name == "chat llama3.2"
    assert span.attributes["gen_ai.request.max_tokens"] == 5
    assert span.attributes["gen_ai.response.finish_reasons"] == ["stop"]


def test_stream__that_fails_is_a_span_with_the_type_of_its_error(model: Model, tracer: RecordingTracer) -> None:
    with pytest.raises(ModelError):
        list(model(writes_and_then(FAILS, "fine")).stream(QUESTION, max_tokens=5))
    eventually(lambda: bool(tracer.spans and tracer.spans[0].ended_at is not None))
    assert tracer.spans[0].attributes["error.type"] == "ModelError"
    assert "memory" not in str(tracer.spans[0].attributes)


def test_line__of_many_pieces_is_read_in_linear_time() -> None:
    class Pieces:
        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            for _ in range(60_000):
                yield b"-" * 64
            yield b"\r\nnext\nla"
            yield b"st"

    async def read() -> list[str]:
        completion: Any = object.__new__(_Completion)
        return [line async for line in completion._read_lines(Pieces())]

    began = time.process_time()
    assert asyncio.run(read()) == ["-" * 3_840_000, "next", "last"]
    assert time.process_time() - began < 3
