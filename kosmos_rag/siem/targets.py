"""Where events are sent to: a file, a syslog server, or an OTLP collector.

`write` returns when the target has them, and raises ExportError otherwise. A syslog server does not acknowledge: a
connection that breaks may lose the last events of a batch.
"""

import json
import logging
import os
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import KosmosError, RequestError

if TYPE_CHECKING:
    import httpx

_TIMEOUT_S = 30.0
_CLOSE_S = 1.0
_FACILITY_LOG_AUDIT = 13
"""`log audit` of RFC 5424."""
_SYSLOG_SEVERITIES = {1: 6, 2: 5, 3: 4, 4: 3, 5: 2}
"""Severities of syslog by `severity_id`: informational to critical."""
_OTLP_SEVERITIES = {1: 9, 2: 10, 3: 13, 4: 17, 5: 21}
"""Numbers of OpenTelemetry by `severity_id`: INFO, INFO2, WARN, ERROR, FATAL."""
_REFUSALS = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY})
"""Statuses that an event may be the reason of; a path, a right or a load is the reason of the others."""
EVENT = dict[str, Any]

log = logging.getLogger("kosmos_rag.siem")


class ExportError(KosmosError):
    """A target did not take the events; the next export sends them again."""


class EventTarget(Protocol):
    """Takes events in their order."""

    def write(self, events: Sequence[EVENT]) -> int:
        """Send a batch of events; return how many the target refuses forever. Raises ExportError."""
        ...

    def close(self) -> None:
        """Close a connection that is kept."""
        ...


def open_target(address: str, *, keep_open: bool = False) -> EventTarget:
    """Return the target of an address.

    Args:
        address: The path of a file, `tcp://HOST:PORT` or `tls://HOST:PORT` of a syslog server, or the URL of
            OTLP's logs, such as `http://localhost:4318/v1/logs`.
        keep_open: Whether batches share a connection to a syslog server. Only its end shows that the server has
            read them.

    Raises RequestError where the address is none of these.
    """
    scheme, separator, _ = address.partition("://")
    if not separator:
        return FileTarget(Path(address))
    if scheme in ("http", "https") and _is_url(address):
        return OtlpTarget(address)
    if scheme in ("tcp", "tls"):
        with suppress(ValueError):  # a malformed host or port
            parts = urlsplit(address)
            if parts.hostname and parts.port:
                return SyslogTarget(parts.hostname, parts.port, encrypted=scheme == "tls", keep_open=keep_open)
    raise RequestError(
        f"--to {address!r} is no target; name a file, tcp://HOST:PORT, tls://HOST:PORT, or http://HOST:4318/v1/logs"
    )


def _is_url(address: str) -> bool:
    import httpx

    try:
        return bool(httpx.URL(address).host)
    except httpx.InvalidURL:
        return False


def _encode(event: EVENT) -> bytes:
    """Return the JSON of an event.

    A lone surrogate, which UTF-8 has no bytes for, stays an escape of JSON.
    """
    return json.dumps(event, ensure_ascii=False).encode(errors="backslashreplace")


class FileTarget:
    """Appends JSON lines, on disk when `write` returns.

    The file is opened for each batch, so it can be rotated.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, events: Sequence[EVENT]) -> int:
        """Append a batch of events."""
        lines = b"".join(_encode(event) + b"\n" for event in events)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)  # questions of readers
            try:
                _append(descriptor, lines)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ExportError(f"{self._path} cannot be written: {error.strerror}") from error
        return 0

    def close(self) -> None:
        """Do nothing: each batch has closed the file."""


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

    def __init__(self, host: str, port: int, *, encrypted: bool, keep_open: bool = False) -> None:
        self._address = (host, port)
        self._encrypted = encrypted
        self._keep_open = keep_open
        self._hostname = socket.gethostname() or "-"
        self._connection: socket.socket | None = None

    def write(self, events: Sequence[EVENT]) -> int:
        """Send a batch of events over the open connection, or over a new one."""
        frames = b"".join(self._frame(event) for event in events)
        try:
            self._connect().sendall(frames)
            if not self._keep_open:
                self._end()
        except OSError as error:
            self._discard()
            name = ":".join(map(str, self._address))
            raise ExportError(f"the syslog server {name} did not take the events: {error}") from error
        return 0

    def close(self) -> None:
        """End the connection, and wait shortly until the server has read all."""
        with suppress(OSError):
            self._end()

    def _connect(self) -> socket.socket:
        if self._connection is not None and _is_closed(self._connection):
            self._discard()
        if self._connection is None:
            self._connection = socket.create_connection(self._address, timeout=_TIMEOUT_S)
            if self._encrypted:
                context = ssl.create_default_context()
                self._connection = context.wrap_socket(self._connection, server_hostname=self._address[0])
        self._connection.settimeout(_TIMEOUT_S)
        return self._connection

    def _end(self) -> None:
        try:
            if self._connection is not None:
                _end(self._connection)
        finally:
            self._discard()

    def _discard(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _frame(self, event: EVENT) -> bytes:
        priority = _FACILITY_LOG_AUDIT * 8 + _SYSLOG_SEVERITIES[event["severity_id"]]
        at = datetime.fromtimestamp(event["time"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        header = f"<{priority}>1 {at} {self._hostname} kosmos-rag {os.getpid()} OCSF{event['class_uid']} - "
        message = header.encode() + _encode(event)
        return b"%d " % len(message) + message


def _is_closed(connection: socket.socket) -> bool:
    """Return whether the server has closed the connection: what is sent now would be lost."""
    connection.settimeout(0)
    try:
        return not connection.recv(4096)
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _end(connection: socket.socket) -> None:
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

    def write(self, events: Sequence[EVENT]) -> int:
        """Send a batch of events as one request, and in parts where the collector refuses it.

        An event is refused where the collector has taken another one of its batch. A collector that refuses all may be
        the fault of its next stage, whose status it passes on.
        """
        rejected, refusals = self._send(events)
        if len(refusals) == len(events):
            raise ExportError(f"the collector at {self._url} answered {refusals[0][1]} to every event of a batch")
        for event, status in refusals:
            log.error(
                "the collector refuses an event, which is skipped: it answered %d", status,
                extra={"action": "siem_event_refused", "event": event.get("metadata", {}).get("uid")},
            )  # fmt: skip
        return rejected + len(refusals)

    def _send(self, events: Sequence[EVENT]) -> tuple[int, list[tuple[EVENT, int]]]:
        """Return how many events were rejected, and those that were refused alone, with the status."""
        response = self._post(events)
        if response.status_code not in _REFUSALS:
            self._require_success(response.status_code)
            return self._count_rejected(response.content, len(events)), []
        if len(events) == 1:
            return 0, [(events[0], response.status_code)]
        middle = len(events) // 2
        first_rejected, first_refusals = self._send(events[:middle])
        rejected, refusals = self._send(events[middle:])
        return first_rejected + rejected, first_refusals + refusals

    def close(self) -> None:
        """Do nothing: each request has closed its connection."""

    def _post(self, events: Sequence[EVENT]) -> "httpx.Response":
        import httpx

        scope = {"name": "kosmos_rag.siem"}
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "kosmos_rag"}}]}
        records = [_log_record(event) for event in events]
        body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}
        try:
            return httpx.post(self._url, json=body, timeout=_TIMEOUT_S)
        except httpx.HTTPError as error:
            raise ExportError(f"the collector at {self._url} did not answer: {error}") from error

    def _require_success(self, status: int) -> None:
        if status != HTTPStatus.OK:
            raise ExportError(f"the collector at {self._url} answered {status}")

    def _count_rejected(self, content: bytes, count: int) -> int:
        """Return how many events the collector has rejected; the protocol forbids to send these again."""
        rejected, reason = _read_rejection(content)
        if rejected:
            log.error(
                "the collector at %s rejected %d of %d events, which are skipped: %s",
                self._url, rejected, count, one_line(reason),
                extra={"action": "siem_event_refused"},
            )  # fmt: skip
        return rejected


def _log_record(event: EVENT) -> dict[str, Any]:
    return {
        "timeUnixNano": str(event["time"] * 1_000_000),
        "severityNumber": _OTLP_SEVERITIES[event["severity_id"]],
        "eventName": f"ocsf.{event['class_uid']}",
        "body": {"stringValue": _encode(event).decode()},
        "attributes": [
            {"key": f"ocsf.{name}", "value": {"intValue": str(event[name])}}
            for name in ("class_uid", "category_uid", "activity_id", "type_uid")
        ],
    }


def _read_rejection(content: bytes) -> tuple[int, str]:
    """Return how many records a collector has rejected, and why.

    An answer that is not of the protocol rejects none.
    """
    try:
        partial = json.loads(content or b"{}")["partialSuccess"]
        return int(partial["rejectedLogRecords"]), str(partial.get("errorMessage", ""))
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0, ""
