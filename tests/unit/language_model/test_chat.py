"""The chat protocol against a server of its own: answers, failures, deadlines."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from pydantic import SecretStr

from kosmos_rag.config import LanguageModelSettings
from kosmos_rag.errors import ConfigError, ModelError, ModelUnavailable
from kosmos_rag.language_model.chat import ChatModel
from kosmos_rag.ports import LanguageModel

KEY = "sk-secret-0123456789"
Reply = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the next of the server's replies, the last of which stays."""

    server: "ChatServer"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.requests.append((self.path, dict(self.headers), body))
            replies = self.server.replies
            reply = replies.pop(0) if len(replies) > 1 else replies[0]
        reply(self)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


class ChatServer(ThreadingHTTPServer):
    """A server on a free port that answers as a test says."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self.replies: list[Reply] = [answers("fine")]
        self.requests: list[tuple[str, dict[str, str], Any]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what is tested."""


def answers(text: object) -> Reply:
    return returns(200, json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode())


def returns(status: int, body: bytes = b"", **headers: str) -> Reply:
    return lambda handler: handler.send(status, body, **headers)


def hangs(handler: Handler) -> None:
    handler.server.closing.wait(20)


def hangs_up(handler: Handler) -> None:
    handler.close_connection = True


def drips_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Drip: ")
    _drip(handler)


def drips_body(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    _drip(handler)


def _drip(handler: Handler) -> None:
    while not handler.server.closing.wait(0.02):
        handler.wfile.write(b" ")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with ChatServer() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.closing.set()
        running.shutdown()
        thread.join()


def _url(server: ChatServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


@pytest.fixture
def ask(server: ChatServer) -> Iterator[Callable[..., str]]:
    """Ask the server once, with these settings, after which it gives these replies."""
    opened = []

    def once(*replies: Reply, **settings: Any) -> str:
        server.replies = list(replies)
        model = ChatModel(LanguageModelSettings(**{"url": _url(server), "api_key": SecretStr(KEY), **settings}))
        opened.append(model)
        return model.complete("a question", max_tokens=50)

    yield once
    for model in opened:
        model.close()


def test_complete__returns_the_text(server: ChatServer, ask: Callable[..., str]) -> None:
    assert ask(answers("Kündigungsrate\n")) == "Kündigungsrate\n"
    path, headers, body = server.requests[0]
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert body == {
        "model": "llama3.2",
        "messages": [{"role": "user", "content": "a question"}],
        "temperature": 0,
        "max_tokens": 50,
        "stream": False,
    }


@pytest.mark.parametrize("key", [None, SecretStr("")])
def test_complete__without_a_key_sends_none(server: ChatServer, ask: Callable[..., str], key: SecretStr | None) -> None:
    ask(answers("fine"), api_key=key, url=_url(server) + "/")
    assert "Authorization" not in server.requests[0][1]
    assert server.requests[0][0] == "/v1/chat/completions"


def test_complete__asks_for_the_model_that_is_configured(server: ChatServer) -> None:
    opened = ChatModel(LanguageModelSettings(url=_url(server), model="qwen"))
    model: LanguageModel = opened
    model.complete("a question", max_tokens=5)
    assert model.name == server.requests[0][2]["model"] == "qwen"
    opened.close()


@pytest.mark.parametrize("first", [returns(429), returns(503), hangs_up], ids=["429", "503", "hangs up"])
def test_complete__asks_again_once(server: ChatServer, ask: Callable[..., str], first: Reply) -> None:
    assert ask(first, answers("fine")) == "fine"
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
        (returns(307, Location="/v2"), ModelError, r"failed \(307: nothing\)", 1),
        (returns(200, b"<html>"), ModelError, r"answered without a text \(<html>\): correct .*url", 1),
        (returns(200), ModelError, r"answered without a text \(nothing\)", 1),
        (returns(200, b'{"choices": []}'), ModelError, "answered without a text", 1),
        (returns(200, b'{"choices": [{"message": null}]}'), ModelError, "answered without a text", 1),
        (returns(200, b"[" * 100_000), ModelError, "answered without a text", 1),
        (returns(200, b'"\xff"'), ModelError, "answered without a text", 1),
        (answers(None), ModelError, "answered without a text", 1),
        (answers(" \n"), ModelError, "answered without a text", 1),
        (answers(["text"]), ModelError, "answered without a text", 1),
        (returns(200, b"no gzip", **{"Content-Encoding": "gzip"}), ModelError, "sent what cannot be read", 1),
        (returns(200, b" " * 1_100_000), ModelError, "sent more than 1000000 bytes", 1),
    ],
)
def test_complete__names_what_failed(
    server: ChatServer, ask: Callable[..., str], reply: Reply, error: type[ModelError], message: str, requests: int
) -> None:
    with pytest.raises(ModelError) as raised:
        ask(reply)
    assert type(raised.value) is error
    assert re.search(message, str(raised.value))
    assert str(raised.value).startswith(f"language model server {_url(server)} ")
    assert "\n" not in str(raised.value)
    assert len(server.requests) == requests


@pytest.mark.parametrize("padding", [0, 180])
def test_complete__never_shows_the_key(ask: Callable[..., str], padding: int) -> None:
    with pytest.raises(ModelError) as raised:
        ask(returns(500, b"x" * padding + f" wrong key {KEY}".encode()))
    assert "sk-" not in str(raised.value)


def test_complete__never_shows_a_password(ask: Callable[..., str]) -> None:
    with pytest.raises(ModelUnavailable, match=r"http://me:\*\*\*@127.0.0.1:1/v1 cannot be reached"):
        ask(answers("fine"), url="http://me:hidden@127.0.0.1:1/v1")


@pytest.mark.parametrize("reply", [hangs, drips_headers, drips_body])
def test_complete__keeps_the_deadline(ask: Callable[..., str], reply: Reply) -> None:
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match=r"gave no answer within 0\.3 s: raise language_model.timeout_s"):
        ask(reply, timeout_s=0.3)
    assert time.monotonic() - started < 2


def test_complete__asks_again_within_the_deadline_only(ask: Callable[..., str]) -> None:
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="gave no answer within"):
        ask(returns(503), answers("late"), timeout_s=0.2)
    assert time.monotonic() - started < 2


def test_complete__after_a_late_answer_gives_the_next_question_its_own(server: ChatServer) -> None:
    server.replies = [hangs, answers("the second")]
    model = ChatModel(LanguageModelSettings(url=_url(server), timeout_s=1.0))
    with pytest.raises(ModelUnavailable):
        model.complete("first", max_tokens=5)
    assert model.complete("second", max_tokens=5) == "the second"
    model.close()


def test_complete__serves_threads_at_once(server: ChatServer) -> None:
    together = threading.Barrier(4, timeout=10)

    def meets_the_others(handler: Handler) -> None:
        together.wait()
        answers("fine")(handler)

    server.replies = [meets_the_others]
    model = ChatModel(LanguageModelSettings(url=_url(server)))
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(model.complete("question", max_tokens=5))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["fine"] * 4
    model.close()


@pytest.mark.parametrize("url", ["http://[::1/v1", "http://host:port/v1", f"http://{'a' * 70}/v1", "http://a..b/v1"])
def test_model__refuses_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigError, match=r"has no valid address .* set language_model.url"):
        ChatModel(LanguageModelSettings(url=url))


def test_model__refuses_to_be_without_an_address() -> None:
    with pytest.raises(ConfigError, match=r"language_model\.url is null: set it"):
        ChatModel(LanguageModelSettings())


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY} ", f"{KEY}ü", f"{KEY}\x00"])
def test_model__refuses_a_key_that_no_header_takes(key: str) -> None:
    with pytest.raises(ConfigError, match=r"language_model\.api_key holds") as raised:
        ChatModel(LanguageModelSettings(url="http://127.0.0.1/v1", api_key=SecretStr(key)))
    assert "sk-" not in str(raised.value)
