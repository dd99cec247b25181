"""The asynchronous face: many calls at once, each with its own result or error, and an event loop that goes on."""

import asyncio
import contextvars
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from kosmos_rag import AsyncEngine, Engine, Settings, SourceDocument
from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import AnswerDone, AnswerPiece, AnswerSources
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import hangs, running, writes, writes_and_then

LEAVE = SourceDocument(source="leave.md", data=b"# Leave\n\nEmployees receive 20 days of paid annual leave per year.\n")
QUESTION = "How many days of paid annual leave do employees receive?"

pytestmark = pytest.mark.emptied_database


def test_run__answers_many_questions_at_once(settings: Settings, tenant_name: str) -> None:
    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            scopes = [engine.tenant(f"{tenant_name}-{number}") for number in range(4)]
            for scope in scopes:
                await scope.ingest([SourceDocument(source="a", data=f"secret of {scope.name}".encode())])
            results = await asyncio.gather(*(scope.search("secret", k=1) for scope in scopes * 10))
            for scope, retrieval in zip(scopes * 10, results, strict=True):
                assert [hit.text for hit in retrieval.hits] == [f"secret of {scope.name}"]

    asyncio.run(ask())


def test_run__raises_what_the_call_raises(settings: Settings, tenant_name: str) -> None:
    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            with pytest.raises(RequestError, match="the question is empty"):
                await engine.tenant(tenant_name).search("")

    asyncio.run(ask())


def test_run__leaves_the_event_loop_free(settings: Settings) -> None:
    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            free = threading.Event()
            waiting = asyncio.ensure_future(engine.run(free.wait, 10))
            await asyncio.sleep(0.01)
            free.set()
            assert await waiting is True

    asyncio.run(ask())


def test_open__opens_and_closes_the_engine(settings: Settings, tenant_name: str) -> None:
    async def use() -> AsyncEngine:
        async with AsyncEngine.open(settings) as engine:
            tenant = engine.tenant(tenant_name, collection="handbook", subject="ada")
            assert (tenant.name, tenant.id) == (tenant_name, engine.sync_engine.tenant(tenant_name).id)
            assert await tenant.documents() == []
        with pytest.raises(RequestError, match="the engine is closed"):
            await tenant.documents()
        await engine.close()
        return engine

    asyncio.run(use())


def test_open__closes_an_engine_that_nobody_waits_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    opening, may_open, closed = threading.Event(), threading.Event(), threading.Event()

    class SlowEngine(Engine):
        def __init__(self, *arguments: Any) -> None:
            opening.set()
            assert may_open.wait(10)
            super().__init__(*arguments)

        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr("kosmos_rag.engine.aio.Engine", SlowEngine)

    async def give_up() -> None:
        task = asyncio.ensure_future(AsyncEngine.open(settings).__aenter__())
        await asyncio.to_thread(opening.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    may_open.set()
    assert closed.wait(10)


def test_run__drops_a_cancelled_call_that_waits(settings: Settings) -> None:
    async def cancel() -> None:
        ran: list[str] = []
        free = threading.Event()
        item = changed(settings, {"database.pool_size": 1})
        engine = AsyncEngine(Engine(item, embedder=HashingEmbedder()))
        async with engine:
            running_call = asyncio.ensure_future(engine.run(free.wait, 10))
            waiting_call = asyncio.ensure_future(engine.run(ran.append, "dropped"))
            await asyncio.sleep(0)
            waiting_call.cancel()
            # The engine closes after the call that runs, even if its own closing is cancelled.
            closing = asyncio.ensure_future(engine.close())
            await asyncio.sleep(0)
            closing.cancel()
            free.set()
            assert await running_call is True
        assert ran == []

    asyncio.run(cancel())


def test_run__carries_the_context_of_the_caller(settings: Settings) -> None:
    request: contextvars.ContextVar[str] = contextvars.ContextVar("request")

    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            request.set("r-1")
            assert await engine.run(request.get) == "r-1"

    asyncio.run(ask())


def test_stream_answer__is_an_asynchronous_iterator(
    settings: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as chat:
        model = LanguageModelSettings(protocol="openai", url=chat.url("/v1"), api_key=SecretStr("sk-hidden"))
        overrides = {"language_model": model, "rag.answer.mode": "generative", "rag.answer.threshold": 0.0}

        async def ask() -> None:
            async with AsyncEngine(Engine(changed(settings, overrides), embedder=HashingEmbedder())) as engine:
                tenant = engine.tenant(tenant_name)
                await tenant.ingest([LEAVE])
                chat.replies = [writes("Employees receive 20 days ", "of paid annual leave per year [1].")]
                events = [event async for event in tenant.stream_answer(QUESTION)]
                assert isinstance(events[0], AnswerSources)
                assert isinstance(events[-1], AnswerDone)
                assert all(isinstance(event, AnswerPiece) for event in events[1:-1])
                assert events[-1].answer.text == "Employees receive 20 days of paid annual leave per year [1]."

                # Cancelled while the model is silent: its request ends, and the engine can be closed.
                chat.replies = [writes_and_then(hangs, "Employees ")]
                waits = asyncio.Event()

                async def read() -> None:
                    async for event in tenant.stream_answer(QUESTION):
                        if isinstance(event, AnswerSources):
                            waits.set()

                reading = asyncio.ensure_future(read())
                await waits.wait()
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading

        asyncio.run(ask())


def test_documentation__runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    monkeypatch.setattr(Engine, "open", lambda _: Engine(settings, embedder=HashingEmbedder(dimensions=512)))
    (code,) = re.findall(r"```python\n(.*?)```", (root / "docs" / "library.md").read_text(), re.DOTALL)
    exec(compile(code, "library.md", "exec"), {})
    out = capsys.readouterr().out
    assert "(1, 'knowledge_base/" in out
    assert out.count("\n") >= 2
