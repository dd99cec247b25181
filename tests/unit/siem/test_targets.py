"""Targets of events over real files, sockets and requests."""

import json
import re
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.siem.targets import ExportError, open_target
from tests.certificates import create_certificate

EVENT: dict[str, Any] = {
    "class_uid": 6003,
    "category_uid": 6,
    "activity_id": 2,
    "type_uid": 600302,
    "severity_id": 1,
    "time": 1_000_123,
}
EVENTS: list[dict[str, Any]] = [{**EVENT, "message": "Größe\nof two lines"}, {**EVENT, "severity_id": 3}]


def test_file__has_a_line_for_each_event_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    target = open_target(str(path))
    target.write(EVENTS[:1])
    path.rename(tmp_path / "events.1")  # rotated
    target.write(EVENTS[1:])
    assert [json.loads(line) for line in (tmp_path / "events.1").read_text().splitlines()] == EVENTS[:1]
    assert [json.loads(line) for line in path.read_text().splitlines()] == EVENTS[1:]
    assert path.stat().st_mode & 0o077 == 0


def test_file__that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be written: No such file"):
        open_target(str(tmp_path / "missing" / "events.jsonl")).write(EVENTS)


def test_file__that_is_full_keeps_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    target = open_target(str(path))
    target.write(EVENTS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
        with pytest.raises(ExportError, match="cannot be written"):
            target.write(EVENTS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    with path.open("a") as crashed:
        crashed.write('{"half a li')
    target.write(EVENTS)
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in (*lines[:2], *lines[3:])] == EVENTS + EVENTS


def _serve_once(handle: Callable[[socket.socket], None]) -> tuple[int, threading.Thread]:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener, listener.accept()[0] as connection:
            handle(connection)

    thread = threading.Thread(target=run)
    thread.start()
    return listener.getsockname()[1], thread


def test_syslog__gets_messages_of_rfc_5424_with_their_lengths() -> None:
    received = bytearray()

    def read(connection: socket.socket) -> None:
        while data := connection.recv(4096):
            received.extend(data)

    port, thread = _serve_once(read)
    open_target(f"tcp://127.0.0.1:{port}").write(EVENTS)
    thread.join(10)
    rest, messages = bytes(received), []
    while rest:
        length, _, rest = rest.partition(b" ")
        messages.append(rest[: int(length)].decode())
        rest = rest[int(length) :]
    pattern = r"<(\d+)>1 1970-01-01T00:16:40\.123Z \S+ kosmos-rag \d+ OCSF6003 - (\{.*\})"
    matches = [re.fullmatch(pattern, message) for message in messages]
    assert [(match[1], json.loads(match[2])) for match in matches if match] == [
        (str(13 * 8 + 6), EVENTS[0]), (str(13 * 8 + 4), EVENTS[1])
    ]  # fmt: skip


def test_syslog__that_does_not_answer_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ExportError, match=f"the syslog server 127.0.0.1:{port} did not take the events"):
        open_target(f"tcp://127.0.0.1:{port}").write(EVENTS)


def test_tls__takes_all_of_a_large_batch_to_a_slow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tickets of TLS 1.3 lie unread in the buffer of the sender: to close that socket would discard the rest."""
    certificate, received = create_certificate(tmp_path, "localhost"), bytearray()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def read(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            time.sleep(0.5)
            while data := secure.recv(4096):
                received.extend(data)

    port, thread = _serve_once(read)
    events = [{**EVENT, "message": "x" * 1000}] * 2000
    open_target(f"tls://localhost:{port}").write(events)
    thread.join(30)
    assert received.count(b"OCSF6003") == len(events)


def test_tls__refuses_a_server_without_a_certificate() -> None:
    port, thread = _serve_once(lambda connection: connection.close())
    with pytest.raises(ExportError, match="did not take the events"):
        open_target(f"tls://127.0.0.1:{port}").write(EVENTS)
    thread.join(10)


def test_syslog__that_is_kept_open_has_one_connection_until_the_server_closes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = open_target(f"tcp://127.0.0.1:{listener.getsockname()[1]}", keep_open=True)
        for size in (2, 1):
            target.write(EVENTS)
            connection, _ = listener.accept()
            target.write(EVENTS[:size])
            received = b""
            while received.count(b"OCSF6003") < len(EVENTS) + size:
                received += connection.recv(4096)
            connection.close()  # the next batch needs another connection
            time.sleep(0.05)
        target.close()


class _Collector(BaseHTTPRequestHandler):
    answer: Callable[[str], tuple[int, bytes]]
    """From the content of a request."""
    bodies: list[dict[str, Any]] = []  # noqa: RUF012 — of one test

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = type(self).answer(json.dumps(self.bodies[-1]))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 — as the base class has it
        pass


def _send_to_collector(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[str], tuple[int, bytes]],
    events: list[dict[str, Any]] = EVENTS,
) -> tuple[int, list[dict[str, Any]]]:
    """Return how many events were refused, and the requests."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    bodies: list[dict[str, Any]] = []
    handler = type("Handler", (_Collector,), {"answer": staticmethod(answer), "bodies": bodies})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            refused = open_target(f"http://127.0.0.1:{server.server_port}/v1/logs").write(events)
        finally:
            server.shutdown()
            thread.join(10)
    return refused, bodies


def test_otlp__gets_log_records_in_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, (body,) = _send_to_collector(monkeypatch, lambda _: (200, b"{}"))
    assert refused == 0
    records = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert [json.loads(record["body"]["stringValue"]) for record in records] == EVENTS
    assert [record["severityNumber"] for record in records] == [9, 13]
    assert records[0]["timeUnixNano"] == "1000123000000"


@pytest.mark.parametrize("events", [EVENTS, EVENTS[:1]])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 422, 429, 503])
def test_otlp__that_takes_no_event_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int, events: list[dict[str, Any]]
) -> None:
    """A collector answers a request without events itself, and passes on the status of its next stage for others."""
    with pytest.raises(ExportError, match=f"answered {status}"):
        _send_to_collector(monkeypatch, lambda body: (status if "timeUnixNano" in body else 200, b"{}"), events)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_otlp__that_refuses_an_event_for_a_right_or_a_path_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    with pytest.raises(ExportError, match=f"answered {status}"):
        _send_to_collector(monkeypatch, lambda body: (status if "two lines" in body else 200, b"{}"))


@pytest.mark.parametrize("status", [400, 413, 422])
def test_otlp__skips_and_logs_an_event_that_is_refused_forever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    refused, bodies = _send_to_collector(monkeypatch, lambda body: (status if "two lines" in body else 200, b"{}"))
    assert refused == 1
    assert "two lines" not in json.dumps(bodies[-1])
    assert len(bodies[-1]["resourceLogs"]) == 1  # the other event was sent
    assert f"the collector refuses an event, which is skipped: it answered {status}" in caplog.text


def test_otlp__counts_and_logs_what_a_collector_takes_only_in_part(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer = b'{"partialSuccess": {"rejectedLogRecords": "1", "errorMessage": "too old"}}'
    assert _send_to_collector(monkeypatch, lambda _: (200, answer))[0] == 1
    assert "rejected 1 of 2 events, which are skipped: too old" in caplog.text


SURROGATE = {**EVENT, "message": "half a sign: \ud83d"}


def test_surrogate__is_an_escape_in_each_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON of a log may have half of a sign, which UTF-8 has no bytes for."""
    open_target(str(tmp_path / "events.jsonl")).write([SURROGATE])
    assert json.loads((tmp_path / "events.jsonl").read_text()) == SURROGATE
    _, (body,) = _send_to_collector(monkeypatch, lambda _: (200, b"{}"), [SURROGATE])
    (record,) = body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert json.loads(record["body"]["stringValue"]) == SURROGATE
    received = bytearray()

    def read(connection: socket.socket) -> None:
        while data := connection.recv(4096):
            received.extend(data)

    port, thread = _serve_once(read)
    open_target(f"tcp://127.0.0.1:{port}").write([SURROGATE])
    thread.join(10)
    assert json.loads(received.partition(b" - ")[2]) == SURROGATE


@pytest.mark.parametrize(
    "address",
    [
        "udp://localhost:514", "tcp://localhost", "tls://:6514", "tcp://localhost:99999", "tls://[::1:6514",
        "http://[::1/v1/logs", "http://localhost:port/v1/logs", "https://",
    ],
)  # fmt: skip
def test_address__of_no_target_is_refused(address: str) -> None:
    with pytest.raises(RequestError, match="is no target; name a file"):
        open_target(address)
