"""Tenants that share a service: nobody is shut out by another tenant or by made-up keys."""

import asyncio
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.auth import key_verifier
from kosmos_rag.engine.api_keys import KeyReader, ParsedKey, StoredKey
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.rate_clock import stop_rate_clock
from tests.waiting import eventually

CALLS, CALL_S = 20, 0.2

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def narrow(settings: Settings, signer: Signer) -> Iterator[Running]:
    """A service with two slots, for which a call waits less long than the calls of one tenant last together."""
    two = with_tokens(changed(settings, {"database.pool_size": 2}), signer, queue_timeout_s=3 * CALL_S)
    with Engine(two, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        for name in ("loud", "quiet"):
            engine.tenant(name).ingest(SourceDocument(source="a", data=b"Words."))
        yield started


def test_tenant__is_answered_while_another_has_a_backlog(narrow: Running) -> None:
    """A tenant gets answers while another tenant has a backlog."""
    over = threading.Event()

    async def backlog() -> None:
        """Keep `CALLS` calls of the other tenant waiting without a timeout."""
        slots = narrow.service.limiter._slots

        async def ask() -> None:
            while not over.is_set():
                await slots.acquire("loud", 1)
                await asyncio.sleep(CALL_S)
                slots.release("loud", 1)

        await asyncio.gather(*(ask() for _ in range(CALLS)))

    attack = asyncio.run_coroutine_threadsafe(backlog(), narrow.loop)
    try:
        eventually(lambda: narrow.service.limiter.in_flight == 2)
        with narrow.client(tenant="quiet") as client:
            statuses = Counter(client.post("/v1/search", json={"question": "words"}).status_code for _ in range(16))
    finally:
        over.set()
        attack.result(30)
    assert statuses == {200: 16}


def _made_up(name: str = "acme") -> str:
    return f"kosmos.{name}.{uuid.uuid4().hex}.{'a' * 43}"


def test_key__is_verified_while_all_slots_are_taken(narrow: Running) -> None:
    """Keys are verified while all slots are taken."""
    event = threading.Event()
    for _ in range(2):
        asyncio.run_coroutine_threadsafe(narrow.service.limiter.run("loud", 1, event.wait, 10), narrow.loop)
    eventually(lambda: narrow.service.limiter.in_flight == 2)
    try:
        with narrow.client(_made_up()) as client:
            assert client.get("/v1/documents").status_code == 401
    finally:
        event.set()


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[uuid.UUID]:
    """Record the ids of the keys that are read from the database."""
    read: list[uuid.UUID] = []
    find = KeyReader.find

    def recorded(reader: KeyReader, key: ParsedKey) -> StoredKey | None:
        read.append(key.id)
        return find(reader, key)

    monkeypatch.setattr(KeyReader, "find", recorded)
    return read


def test_key__is_read_once_for_many_requests_valid_or_not(running: Running, lookups: list[uuid.UUID]) -> None:
    valid, invalid = running.key("laptop", "read"), _made_up()
    with running.client(valid) as item, running.client(invalid) as other, ThreadPoolExecutor(8) as threads:
        statuses = Counter(
            threads.map(lambda client: client.get("/v1/documents").status_code, [item, other] * 20)  # at once
        )
    assert statuses == {200: 20, 401: 20}
    assert len(lookups) == 2


def test_made_up_keys__take_bounded_memory_and_displace_no_key(
    settings: Settings, signer: Signer, lookups: list[uuid.UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invented keys use bounded memory and displace no valid key."""
    monkeypatch.setattr(key_verifier, "_MAX_ENTRIES", 5)
    free = with_tokens(settings, signer, **{"rates.refused_per_minute": 0}, key_cache_s=600.0)
    with Engine(free, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        key = running.key("laptop", "read")
        with running.client(key) as client:
            assert client.get("/v1/documents").status_code == 200
            for _ in range(20):
                refused = client.get("/v1/documents", headers={"authorization": f"Bearer {_made_up()}"})
                assert refused.status_code == 401
            assert client.get("/v1/documents").status_code == 200
        keys = running.service.authenticator._keys
        assert (len(keys._valid), len(keys._invalid)) == (1, 5)
    assert len(lookups) == 21


def test_made_up_keys__are_refused_unread_after_so_many_and_known_credentials_are_not(
    settings: Settings, signer: Signer, lookups: list[uuid.UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After too many invented keys from one address, further ones are refused unread; known credentials are not."""
    monkeypatch.setattr("kosmos_rag.apps.http.toolkit.dependencies._REFUSAL_DELAY_S", 0.05)
    stop_rate_clock(monkeypatch)
    limited = with_tokens(settings, signer, **{"rates.refused_per_minute": 5}, key_cache_s=0.01)
    with Engine(limited, embedder=HashingEmbedder()) as engine, serving(engine, signer) as running:
        key = running.key("laptop", "read")
        with running.client(key) as holder, running.client() as bearer:
            assert holder.get("/v1/documents").status_code == 200
            refused = [_status(running, _made_up()) for _ in range(30)]
            assert refused == [401] * 5 + [429] * 25
            assert len(lookups) == 6
            assert holder.get("/v1/documents").status_code == 200
            assert bearer.get("/v1/documents").status_code == 200
            with running.client("") as anonymous:
                refused = [anonymous.get("/v1/documents").status_code for _ in range(8)]
            assert refused == [401] * 5 + [429] * 3, "of a direct connection the address is that of the client"
            assert holder.get("/v1/documents").status_code == 200


def _status(running: Running, credentials: str) -> int:
    headers = {"authorization": f"Bearer {credentials}"}
    return httpx.get(f"{running.url}/v1/documents", headers=headers, trust_env=False).status_code
