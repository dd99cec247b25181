"""HTTP connections to addresses that were checked."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.ingestion.sources.addresses import resolve_allowed

AGENT = "kosmos-rag"
"""The name by which servers and robots.txt know these requests."""
_HEADERS = {"User-Agent": AGENT, "Accept": "*/*", "Accept-Encoding": "identity"}
_PORTS = {"http": 80, "https": 443}
_REPEATABLE = ("GET", "HEAD")


class HostConnections:
    """One connection for each host, in one thread at a time.

    A host of another name has its own, also at the same address: a connection proves the certificate of one name.
    """

    def __init__(self, settings: UrlSettings, section: str, create_tls: Callable[[], ssl.SSLContext]) -> None:
        """Create them without one.

        Args:
            settings: allowed hosts.
            section: where the settings are, for messages.
            create_tls: returns the authorities of certificates.
        """
        self._settings, self._section, self._create_tls = settings, section, create_tls
        self._by_origin: dict[tuple[str, str, int], HTTPConnection] = {}

    @contextmanager
    def send(
        self, method: str, url: str, until: float, headers: Mapping[str, str], body: bytes | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request; the connection is kept if the response is read completely.

        Args:
            method: of the request.
            url: its address.
            until: when it must have ended, by the monotonic clock.
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

        def request(connection: HTTPConnection) -> HTTPResponse:
            connection.sock.settimeout(max(0.001, until - time.monotonic()))
            try:
                connection.request(method, target.raw_path.decode("ascii"), body, fields)
            except ValueError as error:
                raise HTTPException(f"a header cannot be sent: {error}") from error
            return connection.getresponse()

        connection = self._by_origin.get(origin)
        response = None
        if connection is not None and connection.sock is not None and method in _REPEATABLE:
            with suppress(OSError, HTTPException):  # its server may close it at any time
                response = request(connection)
        if connection is None or response is None:
            connection = self._connect(origin, until)
            response = request(connection)
        try:
            yield response
        finally:
            is_read = response.isclosed() or response.length == 0
            response.close()
            # A connection that its server closes has no socket any more.
            if not is_read or connection.sock is None or time.monotonic() > until:
                self._close(origin)

    def _connect(self, origin: tuple[str, str, int], until: float) -> HTTPConnection:
        """Connect to the first address that accepts a connection."""
        self._close(origin)
        scheme, host, port = origin
        *first_addresses, last = resolve_allowed(host, port, self._settings, section=self._section)

        def connect(address: str) -> socket.socket:
            return socket.create_connection((address, port), timeout=max(0.001, until - time.monotonic()))

        connected = None
        for address in first_addresses:
            with suppress(OSError):
                connected = connect(address)
                break
        connected = connected or connect(last)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body of a request are sent apart
        connection = self._by_origin[origin] = HTTPConnection(host, port)
        connection.auto_open = 0  # it would look the host up again
        connection.sock = connected
        if scheme == "https":
            secured = self._create_tls().wrap_socket(connected, server_hostname=host, do_handshake_on_connect=False)
            connection.sock = secured
            secured.do_handshake()
        return connection

    def close(self) -> None:
        """Close the connections, also while a request of another thread waits."""
        for origin in list(self._by_origin):
            self._close(origin)

    def _close(self, origin: tuple[str, str, int]) -> None:
        connection = self._by_origin.pop(origin, None)
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # ends a read that waits
        if connection is not None:
            connection.close()
