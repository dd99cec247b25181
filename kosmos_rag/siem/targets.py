"""Where events are sent to: a file, a syslog server, or an OTLP collector.

`write` returns when the target has them, and raises ExportError otherwise. A syslog server does not acknowledge: a
connection that breaks may lose the last events of a batch.
"""

import json
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from kosmos_rag.core.errors import KosmosError, RequestError

_TIMEOUT_S = 30.0
_CLOSE_S = 1.0
_FACILITY_LOG_AUDIT = 13
"""`log audit` of RFC 5424."""
_SYSLOG_SEVERITIES = {1: 6, 2: 5, 3: 4, 4: 3, 5: 2}
"""Severities of syslog by `severity_id`: informational to critical."""
_OTLP_SEVERITIES = {1: 9, 2: 10, 3: 13, 4: 17, 5: 21}
"""Numbers of OpenTelemetry by `severity_id`: INFO, INFO2, WARN, ERROR, FATAL."""
_REMEDY = "run the command again when the target works: it continues after the last events that were taken"
EVENT = dict[str, Any]


class ExportError(KosmosError):
    """A target did not take the events; the next export sends them again."""


class EventTarget(Protocol):
    """Takes events in their order."""

    def write(self, events: Sequence[EVENT]) -> None:
        """Send a batch of events. Raises ExportError."""
        ...


def open_target(address: str) -> EventTarget:
    """Return the target of an address.

    Args:
        address: The path of a file, `tcp://HOST:PORT` or `tls://HOST:PORT` of a syslog server, or the URL of
            OTLP's logs, such as `http://localhost:4318/v1/logs`.

    Raises RequestError where the address is none of these.
    """
    scheme, separator, _ = address.partition("://")
    if not separator:
        return FileTarget(Path(address))
    parts = urlsplit(address)
    if scheme in ("http", "https"):
        return OtlpTarget(address)
    if scheme in ("tcp", "tls") and parts.hostname and parts.port:
        return SyslogTarget(parts.hostname, parts.port, encrypted=scheme == "tls")
    raise RequestError(
        f"--to {address!r} is no target; name a file, tcp://HOST:PORT, tls://HOST:PORT, or http://HOST:4318/v1/logs"
    )


class FileTarget:
    """Appends JSON lines, on disk when `write` returns.

    The file is opened for each batch, so it can be rotated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, events: Sequence[EVENT]) -> None:
        """Append a batch of events."""
        lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)  # questions of readers
            try:
                _append(descriptor, lines.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ExportError(f"{self._path} cannot be written: {error.strerror}; {_REMEDY}") from error


def _append(descriptor: int, lines: bytes) -> None:
    """Append lines, or none of them: the next batch must not continue half a line."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":  # a crash has left half a line
        lines = b"\n" + lines
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


class SyslogTarget:
    """Sends messages of RFC 5424 over TCP or TLS.

    Each has its length before it (RFC 6587, RFC 5425).
    """

    def __init__(self, host: str, port: int, *, encrypted: bool) -> None:
        self._address = (host, port)
        self._encrypted = encrypted
        self._hostname = socket.gethostname() or "-"

    def write(self, events: Sequence[EVENT]) -> None:
        """Send a batch of events over one connection."""
        frames = b"".join(self._frame(event) for event in events)
        try:
            with socket.create_connection(self._address, timeout=_TIMEOUT_S) as plain:
                if not self._encrypted:
                    _send(plain, frames)
                    return
                with ssl.create_default_context().wrap_socket(plain, server_hostname=self._address[0]) as secure:
                    _send(secure, frames)
        except OSError as error:
            name = ":".join(map(str, self._address))
            raise ExportError(f"the syslog server {name} did not take the events: {error}; {_REMEDY}") from error

    def _frame(self, event: EVENT) -> bytes:
        priority = _FACILITY_LOG_AUDIT * 8 + _SYSLOG_SEVERITIES[event["severity_id"]]
        at = datetime.fromtimestamp(event["time"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        header = f"<{priority}>1 {at} {self._hostname} kosmos-rag {os.getpid()} OCSF{event['class_uid']} - "
        message = header.encode() + json.dumps(event, ensure_ascii=False).encode()
        return b"%d " % len(message) + message


def _send(connection: socket.socket, frames: bytes) -> None:
    connection.sendall(frames)
    connection.settimeout(_CLOSE_S)
    # The end of the answer shows that the server has read all; one that keeps the connection open shows nothing.
    with suppress(TimeoutError, ssl.SSLError):
        if isinstance(connection, ssl.SSLSocket):
            _end_tls(connection)
        else:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
            connection.recv(1)


def _end_tls(connection: ssl.SSLSocket) -> None:
    """Say that no more follows, and read what has come.

    A socket that is closed with unread data discards what is on its way.
    """
    try:
        connection.unwrap()
    except OSError as error:
        if error.errno:  # without a number the server has closed its side too
            raise


class OtlpTarget:
    """Sends log records to an OTLP collector over HTTP, in JSON."""

    def __init__(self, url: str) -> None:
        self._url = url

    def write(self, events: Sequence[EVENT]) -> None:
        """Send a batch of events as one request."""
        import httpx

        scope = {"name": "kosmos_rag.siem"}
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "kosmos_rag"}}]}
        records = [_log_record(event) for event in events]
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}
        try:
            response = httpx.post(self._url, json=body, timeout=_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise ExportError(f"the collector at {self._url} did not answer: {error}; {_REMEDY}") from error
        if response.status_code != HTTPStatus.OK:
            raise ExportError(f"the collector at {self._url} answered {response.status_code}; {_REMEDY}")
        if rejected := _count_rejected(response.content):
            raise ExportError(f"the collector at {self._url} rejected {rejected} of {len(events)} events; {_REMEDY}")


def _log_record(event: EVENT) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event["time"] * 1_000_000),
        "severityNumber": _OTLP_SEVERITIES[event["severity_id"]],
        "eventName": f"ocsf.{event['class_uid']}",
        "body": {"stringValue": json.dumps(event, ensure_ascii=False)},
        "attributes": [
            {"key": f"ocsf.{name}", "value": {"intValue": str(event[name])}}
            for name in ("class_uid", "category_uid", "activity_id", "type_uid")
        ],
    }


def _count_rejected(content: bytes) -> int:
    """Return how many records a collector has rejected.

    An answer that is not of the protocol rejects none.
    """
    try:
        return int(json.loads(content or b"{}")["partialSuccess"]["rejectedLogRecords"])
    except (ValueError, LookupError, TypeError):
        return 0
