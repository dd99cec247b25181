"""The asynchronous face: many calls at once, each with its own result or error, and an event loop that goes on."""

import asyncio

import pytest

from kosmos_rag import AsyncEngine, Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder


def test_run__answers_many_questions_at_once(settings: Settings, tenant_name: str) -> None:
    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            scopes = [engine.tenant(f"{tenant_name}-{number}") for number in range(4)]
            for scope in scopes:
                await engine.run(scope.ingest, [SourceDocument(source="a", data=f"secret of {scope.name}".encode())])
            found = await asyncio.gather(*(engine.run(scope.search, "secret", k=1) for scope in scopes * 10))
            for scope, retrieval in zip(scopes * 10, found, strict=True):
                assert [hit.text for hit in retrieval.hits] == [f"secret of {scope.name}"]

    asyncio.run(ask())


def test_run__raises_what_the_call_raises(settings: Settings, tenant_name: str) -> None:
    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            with pytest.raises(RequestError, match="the question is empty"):
                await engine.run(engine.tenant(tenant_name).search, "")

    asyncio.run(ask())


def test_run__leaves_the_event_loop_free(settings: Settings) -> None:
    import threading

    async def ask() -> None:
        async with AsyncEngine(Engine(settings, embedder=HashingEmbedder())) as engine:
            free = threading.Event()
            waiting = asyncio.ensure_future(engine.run(free.wait, 10))
            await asyncio.sleep(0.01)
            free.set()
            assert await waiting is True

    asyncio.run(ask())
