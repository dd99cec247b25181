"""Answers that stream: what they hold while they do, and how they end."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, parse_events, serving, with_tokens
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import ChatServer, Handler, breaks_off, hangs, running, writes
from tests.waiting import eventually

QUESTION = {"query": "How many days of paid annual leave do employees get?"}

pytestmark = pytest.mark.emptied_database


def trickles(handler: Handler) -> None:
    """Write a word now and then, until the client hangs up."""
    handler.begin()
    while not handler.server.closing.wait(0.05):
        handler.piece("leave ")


def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A language model that says what it is told to."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as started:
        yield started


chat = pytest.fixture(chat_server)


@pytest.fixture
def writing(settings: Settings, signer: Signer, chat: ChatServer) -> Iterator[Running]:
    """A service whose answers a model writes, with few turns and room for many streams."""
    with writing_service(settings, signer, chat, max_streams=40, heartbeat_s=0.3, drain_s=0.5) as started:
        yield started


@contextmanager
def writing_service(settings: Settings, signer: Signer, chat: ChatServer, **service: Any) -> Iterator[Running]:
    """A service whose answers a model writes."""
    model = LanguageModelSettings(protocol="openai", url=chat.url("/v1"), api_key=SecretStr("sk-hidden"))
    usual = {
        "language_model": model,
        "rag.answer.mode": "generative",
        "rag.answer.threshold": 0.0,
        "database.pool_size": 2,
    }
    mine = with_tokens(changed(settings, usual), signer, **service)
    with Engine(mine, embedder=HashingEmbedder()) as engine:
        leave = b"# Leave\n\nAll employees get 20 days of paid annual leave per year.\n"
        engine.tenant("acme").ingest(SourceDocument(source="leave.md", data=leave))
        with serving(engine, signer) as started:
            yield started


def _first_event(client: httpx.Client) -> tuple[Any, Iterator[tuple[str, str]]]:
    opened = client.stream("POST", "/api/chat", json=QUESTION)
    events = parse_events(opened.__enter__().iter_lines())
    assert next(events)[0] == "sources"
    return opened, events


def test_model__is_let_go_when_the_client_is_gone(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        _, events = _first_event(client)
        assert next(events)[0] == "token"
    assert chat.given_up.wait(20)
    eventually(lambda: writing.service.streams.in_flight == 0)


def test_model__is_let_go_when_the_client_of_a_whole_answer_is_gone(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.post("/v1/answer", json.dumps({"question": QUESTION["query"]}).encode()):
        eventually(lambda: bool(chat.requests), within_s=30)
    assert chat.given_up.wait(20)
    eventually(lambda: writing.service.streams.in_flight == 0)


def test_streams__hold_no_turn_and_no_connection(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    pool = writing.service.engine.sync_engine.database.app._pool
    with writing.client() as client:
        opened = [_first_event(client) for _ in range(20)]
        assert writing.service.streams.in_flight == 20
        eventually(lambda: writing.service.limiter.in_flight == 0)
        for _ in range(10):
            assert client.post("/v1/search", json={"question": "leave"}).status_code == 200
        assert pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"]
        for stream, _ in opened[:10]:
            stream.__exit__(None, None, None)
        eventually(lambda: writing.service.streams.in_flight == 10, within_s=5)
    eventually(lambda: writing.service.streams.in_flight == 0, within_s=5)


def test_streams__are_refused_where_there_is_no_room(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        opened = [_first_event(client) for _ in range(40)]
        refused = client.post("/api/chat", json=QUESTION)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        for stream, _ in opened:
            stream.__exit__(None, None, None)
        eventually(lambda: writing.service.streams.in_flight == 0, within_s=5)
        chat.replies = [writes("20 days. [1]")]
        assert client.post("/api/chat", json=QUESTION).status_code == 200


def test_streams__say_that_they_live_while_a_model_thinks(writing: Running, chat: ChatServer) -> None:
    chat.replies = [hangs]
    with writing.client() as client, client.stream("POST", "/api/chat", json=QUESTION) as response:
        lines = response.iter_lines()
        assert ": still here" in [next(lines) for _ in range(4)]


def test_streams__end_with_an_error_where_the_model_fails(writing: Running, chat: ChatServer) -> None:
    chat.replies = [breaks_off]
    with writing.client() as client, client.stream("POST", "/api/chat", json=QUESTION) as response:
        events = list(parse_events(response.iter_lines()))
    name, data = events[-1]
    assert name == "error"
    assert json.loads(data)["type"] == "urn:kosmos-rag:problem:model-failed"
    assert "sk-hidden" not in data
    labels = {"method": "POST", "route": "/api/chat", "status": str(json.loads(data)["status"])}
    get = writing.service.metrics.registry.get_sample_value
    eventually(lambda: get("kosmos_http_requests_total", labels) == 1)
    assert labels["status"].startswith("5")


def test_streams__that_would_begin_while_the_service_stops_are_not_begun(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        _first_event(client)
        writing.loop.call_soon_threadsafe(writing.service.streams.stop)
        refused = client.post("/api/chat", json=QUESTION)
    assert refused.status_code == 503
    assert "the service is stopping" in refused.json()["detail"]


def test_streams__are_told_to_end_when_the_service_stops(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        _, events = _first_event(client)
        writing.server.should_exit = True
        began = time.monotonic()
        rest = list(events)
    assert 0.3 < time.monotonic() - began < 20
    assert rest[-1][0] == "error"
    assert "the service is stopping" in rest[-1][1]
