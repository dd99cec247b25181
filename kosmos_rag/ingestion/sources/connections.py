"""HTTP connections to addresses that were checked."""

import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import TYPE_CHECKING, Any, cast

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.ingestion.sources.addresses import resolve_allowed

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

AGENT = "kosmos-rag"
"""The name by which servers and robots.txt know these requests."""
_HEADERS = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
_PORTS = {"http": 80, "https": 443}
_REPEATABLE = ("GET", "HEAD")
_SWITCHING_PROTOCOLS = 101
_REQUEST_TIMEOUT = 408
_MAX_IDLE = 8
"""Connections without a request that are kept: those used last."""

_Origin = tuple[str, str, int]


class HostConnections:
    """Connections that are kept for the next request to their host.

    A host of another name has its own, also at the same address: a connection proves the certificate of one name.
    A request owns its connection until its end, so a request that is given up can disturb no other one.
    """

    def __init__(self, settings: UrlSettings, section: str, create_tls: Callable[[], ssl.SSLContext]) -> None:
        """Create them without one.

        Args:
            settings: allowed hosts.
            section: where the settings are, for messages.
            create_tls: returns the authorities of certificates.
        """
        self._settings, self._section, self._create_tls = settings, section, create_tls
        self._lock = threading.Lock()
        self._idle_by_origin: dict[_Origin, socket.socket] = {}
        self._is_closed = False

    @contextmanager
    def send(
        self, method: str, url: str, until: float, headers: Mapping[str, str], body: bytes | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request; the connection is kept if the response is read completely.

        Args:
            method: of the request.
            url: its address.
            until: when it must have ended, by the monotonic clock; each step is bounded by it.
            headers: added to those of each request.
            body: what is sent; None for nothing.

        Raises:
            SourceError: The host or one of its addresses is not allowed.
            OSError: The server cannot be reached.
            HTTPException: It sends no response of HTTP.
        """
        import httpx

        target = httpx.URL(url)
        origin = (target.scheme, target.raw_host.decode("ascii"), target.port or _PORTS[target.scheme])
        fields = _HEADERS | {name.title(): value for name, value in headers.items()}
        fields["Host"] = target.netloc.decode("ascii")

        def request(connected: socket.socket) -> HTTPResponse:
            connection = HTTPConnection(*origin[1:])
            connection.auto_open = 0  # it would look the host up again
            connection.response_class = _FinalResponse
            connection.sock = cast("socket.socket", _BoundedStream(connected, until))
            try:
                connection.request(method, target.raw_path.decode("ascii"), body, fields)
            except ValueError as error:
                raise HTTPException(f"a header cannot be sent: {error}") from error
            return connection.getresponse()

        connected, response = self._exchange(origin, until, request, is_repeatable=method in _REPEATABLE)
        try:
            yield response
        except (OSError, HTTPException):
            response.will_close = True  # where its next response begins is not known
            raise
        finally:
            is_read = response.length == 0 or (response.chunked and response.isclosed())
            is_complete = is_read and not response.will_close and response.status != _SWITCHING_PROTOCOLS
            response.close()
            if is_complete:
                self._keep(origin, connected)
            else:
                connected.close()

    def _exchange(
        self, origin: _Origin, until: float, request: Callable[[socket.socket], HTTPResponse], *, is_repeatable: bool
    ) -> tuple[socket.socket, HTTPResponse]:
        """Send a request on the connection that is kept, or else on a new one."""
        if is_repeatable and (idle := self._take(origin)) is not None:
            # Its server may close it at any time, and some say so by a response.
            with suppress(OSError, HTTPException):
                response = request(idle)
                if response.status != _REQUEST_TIMEOUT:
                    return idle, response
            idle.close()
        connected = self._connect(origin, until)
        try:
            return connected, request(connected)
        except BaseException:
            connected.close()
            raise

    def _take(self, origin: _Origin) -> socket.socket | None:
        """Return the connection that is kept for a host, if nothing was received on it since.

        What a server sends without a request is its end, or would be taken for the next response.
        """
        with self._lock:
            connected = self._idle_by_origin.pop(origin, None)
        if connected is None:
            return None
        received = select.poll()  # `select.select` refuses descriptors above 1023
        received.register(connected, select.POLLIN)
        if received.poll(0) or (isinstance(connected, ssl.SSLSocket) and connected.pending()):
            connected.close()
            return None
        return connected

    def _keep(self, origin: _Origin, connected: socket.socket) -> None:
        with self._lock:
            if replaced := self._idle_by_origin.pop(origin, None):
                replaced.close()
            self._idle_by_origin[origin] = connected
            while len(self._idle_by_origin) > (0 if self._is_closed else _MAX_IDLE):
                self._idle_by_origin.pop(next(iter(self._idle_by_origin))).close()

    def _connect(self, origin: _Origin, until: float) -> socket.socket:
        """Connect in a thread: nothing else bounds the time of a look-up of a name."""
        future: Future[socket.socket] = Future()

        def run() -> None:
            try:
                connected = self._connect_by_address(origin, until)
            except BaseException as error:  # noqa: BLE001 — handed to the waiting thread
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
                return
            if future.set_running_or_notify_cancel():
                future.set_result(connected)
            else:
                connected.close()

        threading.Thread(target=run, name="kosmos-rag-connect", daemon=True).start()
        try:
            return future.result(timeout=_seconds_until(until))
        except TimeoutError:
            if not future.cancel():
                future.result().close()
            raise

    def _connect_by_address(self, origin: _Origin, until: float) -> socket.socket:
        """Connect to the first address that accepts a connection, by TLS for https."""
        scheme, host, port = origin
        _seconds_until(until)  # a request that was given up asks for no address
        *first_addresses, last = resolve_allowed(host, port, self._settings, section=self._section)

        def connect(address: str) -> socket.socket:
            return socket.create_connection((address, port), timeout=_seconds_until(until))

        connected = None
        for address in first_addresses:
            with suppress(OSError):
                connected = connect(address)
                break
        connected = connected or connect(last)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are sent apart
            if scheme == "https":
                connected.settimeout(_seconds_until(until))
                connected = self._create_tls().wrap_socket(connected, server_hostname=host)
        except BaseException:
            connected.close()
            raise
        return connected

    def close(self) -> None:
        """Close the connections that are kept, and keep none any more."""
        with self._lock:
            self._is_closed = True
            while self._idle_by_origin:
                self._idle_by_origin.popitem()[1].close()


class _BoundedStream(io.RawIOBase):
    """What `http.client` takes for a socket: each step ends by one time.

    The timeout of a socket bounds a step, and a server may make as many steps as it likes: lines after the last chunk.
    """

    def __init__(self, connected: socket.socket, until: float) -> None:
        self._connected, self._until = connected, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        self._connected.settimeout(_seconds_until(self._until))
        return self._connected.recv_into(buffer)

    def sendall(self, data: "ReadableBuffer") -> None:
        rest = memoryview(data)
        while rest:
            self._connected.settimeout(_seconds_until(self._until))
            rest = rest[self._connected.send(rest) :]

    def makefile(self, _mode: str) -> Any:
        return io.BufferedReader(self)

    def close(self) -> None:
        """Leave the connection open: `HostConnections` closes it."""


class _FinalResponse(HTTPResponse):
    """The response after those that only announce it, of which `http.client` knows one."""

    def begin(self) -> None:
        super().begin()
        while self.status < 200 and self.status != _SWITCHING_PROTOCOLS:
            self.headers = self.msg = None  # type: ignore[assignment]  # begin() reads the next one
            super().begin()


def _seconds_until(until: float) -> float:
    """Return the seconds until a time. Raises TimeoutError after it."""
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the time of the request is over")
    return seconds
