"""Limits the number of connections and the time of a request's arrival.

uvicorn has no deadline for the headers of a request, and `limit_concurrency` counts connections only once a request is
complete. Both need a protocol of our own: https://github.com/Kludex/uvicorn/issues/157.
"""

import asyncio
import logging
import resource
import time
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from kosmos_rag.core.config import ServiceSettings

MAX_HEADER_BYTES = 16_384
_RESERVED_FILES = 64
"""File descriptors that connections leave to the database, files and the health port."""
_LOG_PERIOD_S = 60.0
_BY_ANYBODY = frozenset({"Invalid HTTP request received.", "Unsupported upgrade request."})
"""Messages of uvicorn that a client causes at will."""
_OUT_OF_FILES = "socket.accept() out of system resource"
_CLOSED_SOCKET = "_start_serving"
_TIMED_OUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_AT_CAPACITY = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n"

logger = logging.getLogger("kosmos_rag.apps.http.toolkit.connections")


class OncePerPeriod:
    """Admits an event once a minute, and counts those between."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def admit(self, event: str) -> int:
        """Return how often an event has happened since it was admitted last.

        Returns 0 where it is not admitted now.
        """
        now = time.monotonic()
        count = self._counts[event] = self._counts.get(event, 0) + 1
        if event in self._last and now - self._last[event] < _LOG_PERIOD_S:
            return 0
        self._last[event], self._counts[event] = now, 0
        return count


class _ClientFaults(logging.Filter):
    """Drops repetitions of messages that a client causes at will."""

    def __init__(self) -> None:
        super().__init__()
        self._period = OncePerPeriod()

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in _BY_ANYBODY or self._period.admit(record.msg) > 0


logger.addFilter(_ClientFaults())


def log_accept_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Log once a minute that connections cannot be accepted.

    asyncio logs thousands of lines a second.
    """
    period = OncePerPeriod()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = context.get("message") or ""
        if _CLOSED_SOCKET in message and isinstance(context.get("exception"), ValueError):
            return  # the server was closed while asyncio waited to accept again
        if not message.startswith(_OUT_OF_FILES):
            loop.default_exception_handler(context)
        elif count := period.admit(_OUT_OF_FILES):
            logger.error(
                "connections cannot be accepted: %s (%d times since the last message); raise the limit of open files",
                context.get("exception"), count, extra={"action": "accept_failed"},
            )  # fmt: skip

    loop.set_exception_handler(handle)


class Connections:
    """The connections of a server that wait for a request.

    Those that have waited longest are first.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.limit = settings.max_connections
        if files != resource.RLIM_INFINITY and files - _RESERVED_FILES < self.limit:
            self.limit = max(1, files - _RESERVED_FILES)
            logger.warning(
                "at most %d connections: the limit of open files is %d; raise it for service.max_connections %d",
                self.limit, files, settings.max_connections, extra={"action": "connections_limited"},
            )  # fmt: skip
        self.header_timeout_s = settings.header_timeout_s
        self._incomplete: dict[LimitedProtocol, None] = {}
        self._idle: dict[LimitedProtocol, None] = {}

    def wait(self, connection: "LimitedProtocol", *, idle: bool) -> None:
        """Add a connection that waits for the rest of a request.

        Args:
            idle: whether it waits for its next request instead.
        """
        waiting, other = (self._idle, self._incomplete) if idle else (self._incomplete, self._idle)
        other.pop(connection, None)
        waiting.setdefault(connection)

    def remove(self, connection: "LimitedProtocol") -> None:
        """Remove a connection that has its request, or has ended."""
        self._incomplete.pop(connection, None)
        self._idle.pop(connection, None)

    def evict(self) -> bool:
        """Close the connection that has waited longest; return False without any.

        Connections with an incomplete request are closed before idle ones.
        """
        for waiting in (self._incomplete, self._idle):
            if waiting:
                connection = next(iter(waiting))
                self.remove(connection)
                connection.end()
                return True
        return False


class LimitedConfig(uvicorn.Config):
    """uvicorn's configuration with limited connections."""

    def __init__(self, app: ASGIApp, settings: ServiceSettings, **options: Any) -> None:
        super().__init__(app, http=LimitedProtocol, h11_max_incomplete_event_size=MAX_HEADER_BYTES, **options)
        self.connections = Connections(settings)


class LimitedProtocol(H11Protocol):
    """HTTP/1.1 with a deadline for headers and unread bodies.

    A body that is read has its deadline in `BodyLimits`. At the limit of connections a new one replaces the one that
    has waited longest for a request.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        assert isinstance(config, LimitedConfig)
        self._limits = config.connections
        self._deadline: asyncio.TimerHandle | None = None
        self.logger = logger

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Accept a connection; at the limit, close another one or this one."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.limit and not self._limits.evict():
            self.end(_AT_CAPACITY)
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._disarm()
        self._limits.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; the deadline ends where the headers are complete."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the rest of the body, or for the next request."""
        super().on_response_complete()
        self._watch()

    def end(self, response: bytes = b"") -> None:
        """Close the connection, with a response or without."""
        self._disarm()
        self.connections.discard(self)
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()

    def _watch(self) -> None:
        """Run a deadline while the connection waits.

        It waits for a request, or for a body after its response.
        """
        answered = self.cycle is None or self.cycle.response_complete
        if self.transport.is_closing() or not answered or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._disarm()
            self._limits.remove(self)
            return
        idle = self.timeout_keep_alive_task is not None and not self.conn.trailing_data[0]
        self._limits.wait(self, idle=idle and self.conn.their_state is h11.IDLE)
        if idle and self.conn.their_state is h11.IDLE:
            self._disarm()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.header_timeout_s, self._end_late)

    def _end_late(self) -> None:
        began = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        self._limits.remove(self)
        self.end(_TIMED_OUT if began else b"")

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
