"""Answers that stream: what they hold while they do, and how they end."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.config import LanguageModelSettings
from kosmos_rag.testing import HashingEmbedder
from tests.integration.service.serving import Running, Signer, events_of, eventually, serving, with_tokens
from tests.integration.variants import changed
from tests.unit.language_model.chat_server import ChatServer, Handler, breaks_off, hangs, running, writes

QUESTION = {"query": "How many days of paid annual leave do employees get?"}


def trickles(handler: Handler) -> None:
    """Write a word now and then, until the client hangs up."""
    handler.begin()
    while not handler.server.closing.wait(0.05):
        handler.piece("leave ")


def drops(handler: Handler) -> None:
    """Do so with long pauses."""
    handler.begin()
    while not handler.server.closing.wait(1.0):
        handler.piece("leave ")


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as started:
        yield started


@pytest.fixture
def writing(settings: Settings, signer: Signer, chat: ChatServer) -> Iterator[Running]:
    """A service whose answers a model writes, with few turns and room for many streams."""
    with _writing(settings, signer, chat, streams=40, heartbeat_s=0.3, drain_s=0.5) as started:
        yield started


@contextmanager
def _writing(settings: Settings, signer: Signer, chat: ChatServer, **service: Any) -> Iterator[Running]:
    model = LanguageModelSettings(protocol="openai", url=chat.url("/v1"), api_key=SecretStr("sk-hidden"))
    usual = {
        "language_model": model,
        "rag.answer.writer": "model",
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
    events = events_of(opened.__enter__().iter_lines())
    assert next(events)[0] == "sources"
    return opened, events


def test_model__is_let_go_when_the_client_is_gone(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        _, events = _first_event(client)
        assert next(events)[0] == "token"
    gone = time.monotonic()
    assert chat.given_up.wait(5)
    assert time.monotonic() - gone < 1
    eventually(lambda: writing.service.streams.taken == 0, within_s=1)


def test_model__is_let_go_when_the_client_of_a_whole_answer_is_gone(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post("/v1/answer", json={"question": QUESTION["query"]}, timeout=0.5)
    assert chat.given_up.wait(2)
    eventually(lambda: writing.service.streams.taken == 0, within_s=1)


def test_streams__hold_no_turn_and_no_connection(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    pool = writing.service.engine.parts.database.app._pool
    with writing.client() as client:
        opened = [_first_event(client) for _ in range(20)]
        assert writing.service.streams.taken == 20
        eventually(lambda: writing.service.turns.taken == 0)
        for _ in range(10):
            assert client.post("/v1/search", json={"question": "leave"}).status_code == 200
        assert pool.get_stats()["pool_available"] == pool.get_stats()["pool_size"]
        for stream, _ in opened[:10]:
            stream.__exit__(None, None, None)
        eventually(lambda: writing.service.streams.taken == 10, within_s=5)
    eventually(lambda: writing.service.streams.taken == 0, within_s=5)


@pytest.mark.slow
def test_streams__of_a_hundred_clients_of_which_half_are_cut(
    settings: Settings, signer: Signer, chat: ChatServer
) -> None:
    chat.replies = [drops]
    threads = threading.active_count()
    with _writing(settings, signer, chat, streams=100, wait_s=60.0, drain_s=1.0) as many:

        async def ask(client: httpx.AsyncClient, cut: asyncio.Event, *, leaves: bool) -> str:
            async with client.stream("POST", "/api/chat", json=QUESTION) as response:
                async for line in response.aiter_lines():
                    if line.startswith("event: error"):
                        return "ended"
                    if leaves and cut.is_set():
                        return "left"
            return "cut off"

        async def storm() -> list[str]:
            cut = asyncio.Event()
            headers = {"authorization": f"Bearer {signer.token()}"}
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(
                base_url=many.url, headers=headers, timeout=120, limits=limits, trust_env=False
            ) as client:
                asked = [asyncio.ensure_future(ask(client, cut, leaves=n % 2 == 0)) for n in range(100)]
                while many.service.streams.taken < 100 or many.service.turns.taken:
                    await asyncio.sleep(0.1)
                cut.set()
                await asyncio.gather(*asked[::2])
                async with asyncio.timeout(5):
                    while many.service.streams.taken > 50:
                        await asyncio.sleep(0.05)
                many.server.should_exit = True
                return await asyncio.gather(*asked)

        assert sorted(asyncio.run(storm())) == ["ended"] * 50 + ["left"] * 50
        eventually(lambda: many.service.streams.taken == 0, within_s=5)
        pool = many.service.engine.parts.database.app._pool.get_stats()
        assert pool["pool_available"] == pool["pool_size"]
    eventually(lambda: threading.active_count() <= threads + 5, within_s=5)


def test_streams__are_refused_where_there_is_no_room(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        opened = [_first_event(client) for _ in range(40)]
        refused = client.post("/api/chat", json=QUESTION)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        for stream, _ in opened:
            stream.__exit__(None, None, None)
        eventually(lambda: writing.service.streams.taken == 0, within_s=5)
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
        events = list(events_of(response.iter_lines()))
    name, data = events[-1]
    assert name == "error"
    assert json.loads(data)["type"] == "urn:kosmos-rag:problem:model-failed"
    assert "sk-hidden" not in data


def test_streams__are_told_to_end_when_the_service_stops(writing: Running, chat: ChatServer) -> None:
    chat.replies = [trickles]
    with writing.client() as client:
        _, events = _first_event(client)
        writing.server.should_exit = True
        began = time.monotonic()
        rest = list(events)
    assert 0.3 < time.monotonic() - began < 5
    assert rest[-1][0] == "error"
    assert "the service is stopping" in rest[-1][1]
