"""Many at once, too much at once, and bodies without end."""

import asyncio
import random
import threading
from collections.abc import Iterator

import httpx
import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, ignored, serving, with_tokens
from tests.integration.variants import changed
from tests.waiting import eventually

MB = 1 << 20

pytestmark = pytest.mark.emptied_database


def test_tenants__are_kept_apart_by_a_pool_that_all_share(settings: Settings, signer: Signer) -> None:
    small = with_tokens(changed(settings, {"database.pool_size": 5}), signer, queue_timeout_s=30.0)
    lot = random.Random(7)
    foreign: list[str] = []
    answered = 0

    async def ask(running: Running, number: int) -> None:
        nonlocal answered
        name = f"t{number % 20}"
        headers = {"authorization": f"Bearer {signer.token(tenant=name)}"}
        paths = ["/v1/search", "/v1/context", "/v1/answer", "/api/chat"]
        async with httpx.AsyncClient(
            base_url=running.url, headers=headers, timeout=60, trust_env=False, verify=False
        ) as client:
            path = paths[number % 4]
            body = {"query": "secret"} if path == "/api/chat" else {"question": "secret"}
            try:
                async with asyncio.timeout(lot.uniform(0.02, 0.6) if number % 3 == 0 else 60):
                    response = await client.post(path, json=body)
            except (TimeoutError, httpx.HTTPError):
                return
            assert response.status_code == 200, response.text
            answered += 1
            if f"secret of {name}." not in response.text:
                foreign.append(f"{name} found nothing")
            foreign.extend(f"{name} saw t{n}" for n in range(20) if n != number % 20 and f"of t{n}." in response.text)

    async def storm(running: Running) -> None:
        await asyncio.gather(*(ask(running, number) for number in range(200)))

    with Engine(small, embedder=HashingEmbedder()) as engine:
        for n in range(20):
            engine.tenant(f"t{n}").ingest(SourceDocument(source="a", data=f"The secret of t{n}.".encode()))
        with serving(engine, signer) as running:
            asyncio.run(storm(running))
            eventually(lambda: running.service.limiter.in_flight == running.service.streams.in_flight == 0)
    assert foreign == []
    assert answered >= 120


def _endless(size: int, numbers: list[int]) -> Iterator[bytes]:
    piece = b"x" * 65_536
    for _ in range(size // len(piece)):
        numbers[0] += len(piece)
        yield piece


def test_body__is_refused_where_it_passes_the_limit_and_takes_no_memory(running: Running) -> None:
    limited = changed(running.service.settings, {"ingestion.max_file_mb": 8})
    process = psutil.Process()
    with Engine(limited, embedder=HashingEmbedder()) as engine, serving(engine, running.signer) as small:
        with small.client(scope="ingest") as client:
            for _ in range(2):
                before = process.memory_info().rss
                byte_count = [0]
                response = client.post("/v1/documents", params={"source": "a"}, content=_endless(64 * MB, byte_count))
                assert response.status_code == 413
                assert response.json()["type"] == "urn:kosmos-rag:problem:payload-too-large"
                # What the client's own buffers and the sockets' take, it may have sent in vain.
                assert byte_count[0] < 32 * MB
            assert process.memory_info().rss - before < 20 * MB
            result = client.post("/v1/documents", params={"source": "a"}, content=b"x" * (9 * MB))
            assert result.status_code == 413
        with small.client() as client:
            byte_count = [0]
            json_body = client.post(
                "/v1/search", content=_endless(64 * MB, byte_count), headers={"content-type": "application/json"}
            )
            assert json_body.status_code == 413
            assert client.post("/v1/search", json={"question": "x"}).status_code == 200


def test_body__that_does_not_come_is_given_up(settings: Settings, signer: Signer) -> None:
    hasty = with_tokens(settings, signer, body_wait_s=0.3)
    with (
        Engine(hasty, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
        running.client() as client,
    ):
        with running.post("/v1/search", b'{"question": ', length=17) as connection:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 408 ")
        assert client.post("/v1/search", json={"question": "x"}).status_code == 200


@pytest.fixture
def narrow(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service with one turn."""
    tokens = with_tokens(changed(settings, {"database.pool_size": 1}), signer, queue_timeout_s=0.2, timeout_s=1.0)
    with Engine(tokens, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Words."))
        yield started


def test_turns__that_are_all_taken_are_a_503_and_free_again(narrow: Running) -> None:
    event = threading.Event()

    async def hold() -> None:
        await narrow.service.limiter.run("acme", 1, event.wait, 5)

    asyncio.run_coroutine_threadsafe(hold(), narrow.loop)
    eventually(lambda: narrow.service.limiter.in_flight == 1)
    with narrow.client() as client:
        refused = client.post("/v1/search", json={"question": "words"})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 200
        event.set()
        eventually(lambda: narrow.service.limiter.in_flight == 0)
        assert client.post("/v1/search", json={"question": "words"}).status_code == 200


def test_call__that_takes_too_long_is_a_504(narrow: Running) -> None:
    admin = narrow.service.settings.database.admin_url or ""
    with narrow.client() as client, psycopg.connect(admin) as other:
        other.execute("LOCK TABLE kosmos.documents IN ACCESS EXCLUSIVE MODE")
        response = client.get("/v1/documents")
        assert response.status_code == 504
        assert response.json()["type"] == "urn:kosmos-rag:problem:timed-out"
        other.rollback()
        eventually(lambda: narrow.service.limiter.in_flight == 0)
        assert client.get("/v1/documents").status_code == 200


def test_connections__are_kept_for_longer_than_balancers_keep_them(running: Running) -> None:
    # uvicorn's own 5 seconds make a 502 of a request that a balancer sends on a connection that is just being closed.
    assert running.server.config.timeout_keep_alive > 60


def test_database__that_drops_its_connections_is_come_back_to(running: Running) -> None:
    admin = running.service.settings.database.admin_url or ""
    with running.client() as client:
        assert client.get("/v1/documents").status_code == 200
        with psycopg.connect(admin, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND usename LIKE 'kosmos_%'"
            )
        assert eventually(lambda: client.get("/v1/documents").status_code == 200, within_s=5) < 5


@pytest.mark.slow
def test_many__are_answered_or_told_to_come_again(settings: Settings, signer: Signer) -> None:
    small = with_tokens(changed(settings, {"database.pool_size": 5}), signer, queue_timeout_s=0.5)
    statuses: list[int] = []

    async def storm(url: str) -> None:
        headers = {"authorization": f"Bearer {signer.token()}"}
        limits = httpx.Limits(max_connections=300)
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=60, limits=limits, trust_env=False
        ) as client:

            async def ask() -> None:
                with ignored:
                    statuses.append((await client.post("/v1/search", json={"question": "words"})).status_code)

            await asyncio.gather(*(ask() for _ in range(300)))

    with Engine(small, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Words."))
        asyncio.run(storm(running.url))
        with running.client() as client:
            assert client.post("/v1/search", json={"question": "words"}).status_code == 200
    assert len(statuses) == 300
    assert set(statuses) <= {200, 429, 503}
    assert statuses.count(200) >= 5
