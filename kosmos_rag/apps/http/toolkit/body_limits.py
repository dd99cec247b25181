"""Limits the size of request bodies and the time of transfers.

The time limit applies to each chunk of a body or a response.
"""

import asyncio
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag.apps.errors import PayloadTooLarge, TimedOut
from kosmos_rag.apps.http.toolkit.errors import send_problem
from kosmos_rag.apps.problem_details import PROBLEMS, Problem
from kosmos_rag.core.config import Settings

_REQUEST_TIMEOUT = replace(PROBLEMS[TimedOut], status=408)
_MIN_BYTES_PER_S = 1024
"""Slowest body that is waited for: at that rate the wait grows with the body."""
_LINGER_S = 1.0
_LINGER_BYTES = 1 << 20

logger = logging.getLogger("kosmos_rag.apps.http")


class BodyLimits:
    """Limits the size of bodies, and times out stalled clients.

    The size is that of the bytes that arrive, not of the header. A chunk of a body or a response takes at most
    `service.body_wait_s` seconds. All waits for a body together take at most that and one second for each 1,024 bytes,
    so that a body of one byte a second ends.
    """

    def __init__(self, app: ASGIApp, settings: Settings, uploads: Collection[str] = ()) -> None:
        """Wrap an application.

        Args:
            uploads: Paths whose bodies may be as large as `ingestion.max_file_mb`.
        """
        self._app = app
        self._uploads = frozenset(uploads)
        self._limit = settings.service.max_body_kb * 1024
        self._upload_limit = settings.ingestion.max_file_bytes
        self._timeout_s = settings.service.body_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        A body that is too large (413) or too slow (408) is refused.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "POST" and scope["path"] in self._uploads
        limit = self._upload_limit if upload else self._limit
        exchange = _Exchange(scope, receive, send, limit=limit, timeout_s=self._timeout_s)
        if not exchange.exceeds_limit:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except Exception:
                if not exchange.aborted:
                    raise
        with suppress(_ExchangeAborted):
            await exchange.refuse()


class _ExchangeAborted(Exception):
    """Stops the route that reads or writes an aborted exchange."""


class _Exchange:
    """One request and its response; counts the bytes of the body."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, limit: int, timeout_s: float) -> None:
        headers = Headers(scope=scope)
        self._path: str = scope["path"]
        content_length = headers.get("content-length", "0")
        self._content_length = int(content_length[:20]) if content_length.isdecimal() else 0
        self._ended = self._content_length == 0 and "transfer-encoding" not in headers
        self._receive, self._send = receive, send
        self._limit, self._timeout_s = limit, timeout_s
        self._read = 0
        self._waited_s = 0.0
        self._refusal: tuple[Problem, str] | None = None
        self.aborted = False

    @property
    def exceeds_limit(self) -> bool:
        """Whether the content length exceeds the limit.

        The body is not read then.
        """
        if self._content_length > self._limit:
            self._abort(PROBLEMS[PayloadTooLarge], self._too_large_detail())
        return self.aborted

    def _abort(self, problem: Problem, detail: str) -> None:
        self.aborted, self._refusal = True, (problem, detail)

    def _too_large_detail(self) -> str:
        return f"the body exceeds the limit of {self._limit:,} bytes; send less"

    def _too_slow_detail(self, allowed_s: float) -> str:
        if allowed_s < self._timeout_s:
            return f"the body arrives more slowly than {_MIN_BYTES_PER_S:,} bytes a second; send it faster"
        return f"no data of the body arrived for {self._timeout_s:g} seconds; send it again"

    async def receive(self) -> Message:
        """Return the next chunk of the body.

        After its end, wait for the client to disconnect.
        """
        if self._ended:
            return await self._receive()
        began = time.monotonic()
        allowed_s = self._timeout_s + self._read / _MIN_BYTES_PER_S - self._waited_s
        try:
            async with asyncio.timeout(min(self._timeout_s, allowed_s)):
                message = await self._receive()
        except TimeoutError:
            self._abort(_REQUEST_TIMEOUT, self._too_slow_detail(allowed_s))
            raise _ExchangeAborted from None
        self._waited_s += time.monotonic() - began
        self._count(message)
        if self._read > self._limit:
            self._abort(PROBLEMS[PayloadTooLarge], self._too_large_detail())
            raise _ExchangeAborted
        return message

    def _count(self, message: Message) -> None:
        self._read += len(message.get("body", b""))
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)

    async def send(self, message: Message) -> None:
        """Send a chunk of the response.

        Drop it where the exchange is aborted.
        """
        if not self.aborted:
            await self._forward(message)

    async def refuse(self) -> None:
        """Send the problem of an aborted exchange, and close the connection."""
        if self._refusal is not None:
            await send_problem(self._forward, self._path, *self._refusal, connection="close")

    async def _forward(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and not self._ended:
            await self._send_with_timeout({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._send_with_timeout(message)

    async def _send_with_timeout(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._send(message)
        except TimeoutError:
            self.aborted = True
            logger.info(
                "the client has read nothing for %g seconds: its response is aborted",
                self._timeout_s,
                extra={"action": "client_stalled"},
            )
            raise _ExchangeAborted from None

    async def _linger(self) -> None:
        """Continue to read for a short time.

        Closing a connection with unread data may discard the response.
        """
        read_before = self._read
        try:
            async with asyncio.timeout(_LINGER_S):
                while not self._ended and self._read - read_before < _LINGER_BYTES:
                    self._count(await self._receive())
                if not self._ended:
                    await asyncio.sleep(_LINGER_S)
        except TimeoutError:
            pass
