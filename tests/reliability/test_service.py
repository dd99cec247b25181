"""What a service outlasts: hundreds of streams, uploads without end, and a database that goes away.

    python -m pytest -s tests/reliability/test_service.py [-k streams | upload | restarts | killed]

Each prints its figures. `KOSMOS_TEST_SHARE=0.1` makes all of it a tenth as large, to see that it works.
"""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import embedded
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.apps.http.test_streams import QUESTION, chat_server, writing_service
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import ChatServer, Handler
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MB = 1 << 20
SHARE = float(os.environ.get("KOSMOS_TEST_SHARE", "1"))
CLIENTS = 2 * round(250 * SHARE)
UPLOAD = round(10_240 * MB * SHARE)
AWAY_S = 30 * SHARE
RECOVERED_WITHIN_S = 5.0
KILLS = 4
RECOVERED_FROM_A_KILL_WITHIN_S = 15.0

chat = pytest.fixture(chat_server)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path)


def _drops(handler: Handler) -> None:
    """Write a word now and then, until the client hangs up."""
    handler.begin()
    while not handler.server.closing.wait(2.0):
        handler.piece("leave ")


def _tasks(running: Running) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return asyncio.run_coroutine_threadsafe(count(), running.loop).result(10)


def test_streams__of_many_clients_of_which_half_are_cut(settings: Settings, signer: Signer, chat: ChatServer) -> None:
    chat.replies = [_drops]
    wide = {"max_streams": CLIENTS, "queue_timeout_s": 120.0, "drain_s": 1.0}
    limits = httpx.Limits(max_connections=None)
    headers = {"authorization": f"Bearer {signer.token()}"}
    with writing_service(settings, signer, chat, **wide) as running:
        idle_tasks, idle_threads = _tasks(running), threading.active_count()

        async def ask(client: httpx.AsyncClient, cut: asyncio.Event, *, leaves: bool) -> str:
            async with client.stream("POST", "/api/chat", json=QUESTION) as response:
                async for line in response.aiter_lines():
                    if line.startswith("event: error"):
                        return "ended"
                    if leaves and cut.is_set():
                        return "left"
            return "cut off"

        async def until(most: int) -> float:
            began = time.monotonic()
            while running.service.streams.in_flight > most:
                await asyncio.sleep(0.02)
            return time.monotonic() - began

        async def storm() -> tuple[Counter[str], float, float]:
            cut = asyncio.Event()
            async with httpx.AsyncClient(
                base_url=running.url, headers=headers, timeout=120, limits=limits, trust_env=False
            ) as client:
                tasks = [asyncio.ensure_future(ask(client, cut, leaves=n % 2 == 0)) for n in range(CLIENTS)]
                while running.service.streams.in_flight < CLIENTS or running.service.limiter.in_flight:
                    await asyncio.sleep(0.1)
                cut.set()
                await asyncio.gather(*tasks[::2])
                half_s = await until(CLIENTS // 2)
                running.loop.call_soon_threadsafe(running.service.streams.stop)
                ends = Counter(await asyncio.gather(*tasks))
                return ends, half_s, await until(0)

        ends, half_s, all_s = asyncio.run(storm())
        back_s = eventually(lambda: _tasks(running) <= idle_tasks, within_s=RECOVERED_WITHIN_S)
        pool = running.service.engine.sync_engine.database.app._pool.get_stats()
        print(
            f"{CLIENTS} streams: {dict(ends)}; half gone after {half_s:.2f} s, all {all_s:.2f} s, tasks back to "
            f"{idle_tasks} after {back_s:.2f} s more; threads {idle_threads} -> {threading.active_count()}, "
            f"connections {pool['pool_available']} of {pool['pool_size']} free"
        )
        assert ends == {"left": CLIENTS // 2, "ended": CLIENTS // 2}
        assert max(half_s, all_s) < RECOVERED_WITHIN_S
        assert pool["pool_available"] == pool["pool_size"]


@contextmanager
def _highest_memory() -> Iterator[list[int]]:
    """Yield a list whose one number is the most bytes that this process has held meanwhile."""
    process, highest, over = psutil.Process(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            highest[0] = max(highest[0], process.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield highest
    finally:
        over.set()
        watching.join()


def test_upload__of_gigabytes_is_refused_with_flat_memory(settings: Settings, signer: Signer) -> None:
    byte_count = 0

    def endless() -> Iterator[bytes]:
        nonlocal byte_count
        piece = b"x" * 65_536
        while byte_count < UPLOAD:
            byte_count += len(piece)
            yield piece

    mine = with_tokens(settings, signer)
    limit = mine.ingestion.max_file_bytes
    with (
        Engine(mine, embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
        running.client(scope="ingest") as client,
    ):
        client.post("/v1/documents", params={"source": "warm"}, content=b"x" * MB)
        before = psutil.Process().memory_info().rss
        with _highest_memory() as highest:
            began = time.monotonic()
            response = client.post("/v1/documents", params={"source": "a"}, content=endless())
            seconds = time.monotonic() - began
    grown = (highest[0] - before) / MB
    print(
        f"upload of {UPLOAD // MB:,} MB: {response.status_code} after {byte_count // MB:,} MB (limit {limit // MB:,}) "
        f"and {seconds:.1f} s; memory grew by {grown:.1f} MB"
    )
    assert response.status_code == 413
    assert byte_count < limit + 32 * MB, "what the buffers of client and sockets take, it may have sent in vain"
    assert grown < 20


def test_database__that_restarts_under_load_is_come_back_to(settings: Settings, signer: Signer, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small = changed(settings, {"database.connect_timeout_s": 2.0, "database.pool_size": 4})
    tokens = with_tokens(
        small.model_copy(update={"database": small.database.model_copy(update=_embedded(data))}),
        signer,
        **{"rates.tenant_per_minute": 0, "rates.subject_per_minute": 0},
    )
    statuses: Counter[int] = Counter()
    over = threading.Event()
    answered_at = [0.0] * 8

    def load(running: Running, number: int) -> None:
        with running.client() as client:
            while not over.is_set():
                status = client.post("/v1/search", json={"question": f"words {number}"}).status_code
                statuses[status] += 1
                if status == 200:
                    answered_at[number] = time.monotonic()

    with Engine(tokens, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Words."))
        with serving(engine, signer) as running, ThreadPoolExecutor(8) as threads:
            clients = [threads.submit(load, running, number) for number in range(8)]
            try:
                time.sleep(2)
                for away_s in (0.0, AWAY_S):
                    back_at = _restarted(data, engine, away_s)
                    eventually(lambda since=back_at: min(answered_at) > since, within_s=60)
                    slowest = max(answered_at) - back_at
                    ready_s = eventually(lambda: httpx.get(f"{running.url}/readyz", trust_env=False).is_success)
                    recovered_s = time.monotonic() - back_at
                    print(
                        f"database away for {away_s:.0f} s more than a restart takes: all clients answered "
                        f"{slowest:.2f} s after it was back, ready {ready_s:.2f} s later; statuses {dict(statuses)}"
                    )
                    assert recovered_s < RECOVERED_WITHIN_S
                    assert set(statuses) <= {200, 503}
            finally:
                over.set()
            for client in clients:
                client.result()


def test_embedded_database__that_is_killed_under_load_is_started_and_come_back_to(
    settings: Settings, signer: Signer, tmp_path: Path
) -> None:
    """Nobody but the service is there to start it: each call waits or answers 503, and then all are served again."""
    data = tmp_path / "data"
    tokens = with_tokens(
        settings.model_copy(update={"database": settings.database.model_copy(update=_embedded(data))}),
        signer,
        **{"rates.tenant_per_minute": 0, "rates.subject_per_minute": 0},
    )
    statuses: Counter[int] = Counter()
    over = threading.Event()
    answered_at = [0.0] * 4

    def load(running: Running, number: int) -> None:
        with running.client() as client:
            while not over.is_set():
                began = time.monotonic()
                status = client.post("/v1/search", json={"question": f"words {number}"}).status_code
                statuses[status] += 1
                if status == 200:
                    answered_at[number] = began

    def write(engine: Engine) -> None:
        for number in itertools.count():
            if over.is_set():
                return
            with suppress(DatabaseError):
                text = f"Page {number} says words. " * 200
                engine.tenant("acme").ingest(SourceDocument(source=f"{number % 50}", data=text.encode()))

    with Engine(tokens, embedder=HashingEmbedder()) as engine:
        engine.tenant("acme").ingest(SourceDocument(source="a", data=b"Words."))
        with serving(engine, signer) as running, ThreadPoolExecutor(5) as threads:
            calls = [threads.submit(load, running, number) for number in range(4)]
            calls.append(threads.submit(write, engine))
            try:
                for _ in range(KILLS):
                    time.sleep(3)
                    pidfile = data / "postmaster.pid"
                    killed_at = time.monotonic()
                    os.kill(int(pidfile.read_text().splitlines()[0]), signal.SIGKILL)
                    # Answers to questions that began after the kill.
                    eventually(lambda since=killed_at: min(answered_at) > since, within_s=60)
                    recovered_s = time.monotonic() - killed_at
                    print(f"killed: all clients answered {recovered_s:.2f} s later; statuses {dict(statuses)}")
                    assert recovered_s < RECOVERED_FROM_A_KILL_WITHIN_S
                    assert set(statuses) <= {200, 503}
            finally:
                over.set()
            for call in calls:
                call.result()


def _embedded(data: Path) -> dict[str, object]:
    return {
        "data_dir": data,
        **{name: getattr(DatabaseSettings(), name) for name in ("url", "worker_url", "admin_url")},
    }


def _restarted(data: Path, engine: Engine, away_s: float) -> float:
    """Stop the server, as an administrator does who does not wait, start it again, and return when it answered."""
    pidfile = data / "postmaster.pid"
    os.kill(int(pidfile.read_text().splitlines()[0]), signal.SIGINT)
    while pidfile.exists():
        time.sleep(0.02)
    time.sleep(away_s)
    embedded.start(data)
    psycopg.connect(engine.database.admin_conninfo).close()
    return time.monotonic()
