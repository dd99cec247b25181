"""Clients that send half a request, an ambiguous one, or nothing: they end, and others are served meanwhile."""

import asyncio
import json
import logging
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.http.toolkit.connections import log_accept_errors
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.commands import database_variables
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.ports import find_free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[4]
HALF = b"GET /livez HTTP/1.1\r\nhost: x\r\nx-pad: "

pytestmark = pytest.mark.emptied_database


@contextmanager
def _limited(settings: Settings, signer: Signer, **service: object) -> Iterator[Running]:
    with (
        Engine(with_tokens(settings, signer, **service), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as running,
    ):
        yield running


def _connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def _send(url: str, request: bytes) -> bytes:
    """Send bytes and return all that comes until the server closes the connection."""
    with _connect(url) as connection:
        connection.sendall(request)
        return _read_all(connection)


def _read_all(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    return received


def _seconds_until_closed(connection: socket.socket) -> float:
    """Send a byte now and then until the server closes the connection."""
    began = time.monotonic()
    while time.monotonic() - began < 20:
        try:
            connection.sendall(b"x")
        except OSError:
            break
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.parametrize("data", [b"", HALF], ids=["nothing", "half a header"])
def test_headers__that_do_not_come_end_the_connection(settings: Settings, signer: Signer, data: bytes) -> None:
    with _limited(settings, signer, header_timeout_s=0.5) as running, _connect(running.url) as connection:
        began = time.monotonic()
        connection.sendall(data)
        received = _read_all(connection)
        assert 0.4 < time.monotonic() - began < 8
        assert received.startswith(b"HTTP/1.1 408 " if data else b"")
        with running.client("") as client:
            assert client.get("/livez").status_code == 200


def test_headers__that_trickle_end_the_connection_on_a_used_one_too(settings: Settings, signer: Signer) -> None:
    """A connection whose headers do not arrive, or arrive too slowly, is closed."""
    with _limited(settings, signer, header_timeout_s=0.5) as running, _connect(running.url) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        assert b"200 OK" in connection.recv(65_536)
        time.sleep(1.0)  # idle between two requests is no half request
        connection.sendall(HALF)
        assert _seconds_until_closed(connection) < 10


def test_body__of_a_byte_at_a_time_is_ended(settings: Settings, signer: Signer) -> None:
    """A connection whose body arrives one byte at a time is closed."""

    def trickle() -> Iterator[bytes]:
        yield b'{"question": "'
        for _ in range(200):
            time.sleep(0.1)
            yield b"x"

    with _limited(settings, signer, body_wait_s=0.5) as running, running.client() as client:
        began = time.monotonic()
        response = client.post("/v1/search", content=trickle(), headers={"content-type": "application/json"})
        assert response.status_code == 408
        assert "more slowly" in response.json()["detail"]
        assert time.monotonic() - began < 8


def test_body__that_goes_on_after_the_answer_is_ended(settings: Settings, signer: Signer) -> None:
    with _limited(settings, signer, header_timeout_s=0.5) as running, _connect(running.url) as connection:
        connection.sendall(
            b"POST /v1/documents?source=a HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n"  # no credentials
        )
        assert _seconds_until_closed(connection) < 10


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"content-length: 5\r\ntransfer-encoding: chunked\r\n", 400),
        (b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", 400),
        (b"authorization: Bearer a\r\nauthorization: Bearer b\r\n", 400),
        (b"x-pad: " + b"x" * 17_000 + b"\r\n", 431),
        (b"".join(b"x-%d: %s\r\n" % (n, b"x" * 1000) for n in range(17)), 431),
    ],
    ids=["both lengths", "both lengths, other order", "two credentials", "long header", "many headers"],
)
def test_headers__that_are_ambiguous_or_too_large_are_refused(running: Running, headers: bytes, status: int) -> None:
    """`Content-Length` with `Transfer-Encoding`, two `Authorization` headers, and headers over 16 KB are refused,
    and the connection closes.
    """
    smuggled = b"0\r\n\r\nGET /livez HTTP/1.1\r\nhost: x\r\n\r\n"
    received = _send(running.url, b"POST /v1/search HTTP/1.1\r\nhost: x\r\n" + headers + b"\r\n" + smuggled)
    head, _, body = received.partition(b"\r\n\r\n")
    # h11 refuses headers that do not come at once, before they reach us.
    assert head.startswith((b"HTTP/1.1 %d " % status, b"HTTP/1.1 400 "))
    assert b"connection: close" in head
    assert received.count(b"HTTP/1.1 ") == 1
    if b"problem+json" in head:
        assert json.loads(body)["status"] == status


def test_connections__at_the_limit_replace_those_that_wait_longest(settings: Settings, signer: Signer) -> None:
    """At the limit a new connection replaces the one that waits longest for its request."""
    with _limited(settings, signer, max_connections=20) as running, ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(_connect(running.url)).sendall(HALF)
        with running.client() as client:
            statuses = [client.post("/v1/search", json={"question": "words"}).status_code for _ in range(5)]
            statuses += [httpx.get(f"{running.url}/livez", trust_env=False).status_code for _ in range(30)]
        assert statuses == [200] * 35
        assert len(running.server.server_state.connections) <= 20


def test_connections__of_requests_that_run_are_not_replaced(settings: Settings, signer: Signer) -> None:
    slow = b"POST /v1/search HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\ncontent-type: application/json\r\n\r\n{"
    with _limited(settings, signer, max_connections=3) as running, ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(_connect(running.url)).sendall(slow)
        eventually(lambda: len(running.server.server_state.tasks) == 3)
        received = _read_all(stack.enter_context(_connect(running.url)))
        assert received.startswith(b"HTTP/1.1 503 ")
        assert len(running.server.server_state.tasks) == 3


def test_accept_errors__are_logged_once_a_period(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    log_accept_errors(loop)
    context = {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    with caplog.at_level(logging.INFO):
        for _ in range(1000):
            loop.call_exception_handler(dict(context))
    loop.close()
    (record,) = caplog.records
    assert "Too many open files" in record.getMessage()


def test_invalid_requests__are_logged_once_a_period(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            assert _send(running.url, b"not HTTP at all\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert sum("Invalid HTTP request" in record.getMessage() for record in caplog.records) <= 1


def _status(url: str) -> int:
    try:
        return httpx.get(url, trust_env=False, timeout=5).status_code
    except httpx.HTTPError:
        return 0


def test_service__with_128_files_outlasts_200_half_requests(database: DatabaseSettings, tmp_path: Path) -> None:
    """With 128 file descriptors, 200 incomplete requests stop neither liveness checks nor requests, and do not fill
    the log.
    """
    port, health_port = find_free_port(), find_free_port()
    command = [sys.executable, "-m", "benchmarks.service_quick", "serve", "--port", str(port)]
    command += ["--set", f"service.health_port={health_port}", "--set", "service.development.tenant=acme"]
    environment = os.environ | database_variables(database)
    log = tmp_path / "log"
    with log.open("wb") as stderr, ExitStack() as stack:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stderr=stderr,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128)),
        )
        stack.callback(process.wait)
        stack.callback(process.terminate)
        service, health = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{health_port}"
        eventually(lambda: _status(f"{service}/readyz") == 200, within_s=120)
        for _ in range(200):
            stack.enter_context(_connect(service)).sendall(HALF)
        statuses = []
        for _ in range(10):
            statuses += [_status(f"{health}/livez"), _status(f"{health}/readyz"), _status(f"{service}/livez")]
            statuses.append(_status(f"{service}/v1/documents"))
        assert statuses == [200] * 40
    assert log.stat().st_size < 20_000, log.read_text()[:2000]
