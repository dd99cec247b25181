"""BodyLimits: what comes in has a limit, and no piece of what comes or goes is waited for without end."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag.apps.http.errors import send_problem
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import PayloadTooLarge, TimedOut
from kosmos_rag.core.problem_details import PROBLEMS, Problem

UPLOADS = frozenset({"/v1/documents", "/documents"})
"""The paths whose bodies may be as large as a document: of the API, and of the console."""

_LATE = replace(PROBLEMS[TimedOut], status=408)
_LINGER_S = 1.0
_LINGER_BYTES = 1 << 20

logger = logging.getLogger("kosmos_rag.apps.http")


class BodyLimits:
    """Counts the bytes of a body as they come, whatever its headers say, and waits only so long for each, in or out."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limit = settings.service.max_body_kb * 1024
        self._upload_limit = settings.ingestion.max_file_bytes
        self._wait_s = settings.service.body_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a body that is too large or too slow is answered here, whatever the route makes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "POST" and scope["path"] in UPLOADS
        limit = self._upload_limit if upload else self._limit
        exchange = _Exchange(Headers(scope=scope), receive, send, limit=limit, wait_s=self._wait_s)
        if not exchange.announces_too_much:
            try:
                await self._app(scope, exchange.receive, exchange.send)
            except Exception:
                if not exchange.given_up:
                    raise
        with suppress(_GivenUp):
            await exchange.refuse()


class _GivenUp(Exception):
    """Ends whatever reads or writes a body that is given up."""


class _Exchange:
    """One request and its answer, on their way through."""

    def __init__(self, headers: Headers, receive: Receive, send: Send, *, limit: int, wait_s: float) -> None:
        length = headers.get("content-length", "0")
        self._announced = int(length[:20]) if length.isdecimal() else 0
        self._ended = self._announced == 0 and "transfer-encoding" not in headers
        self._receive, self._send = receive, send
        self._limit, self._wait_s = limit, wait_s
        self._read = 0
        self._refusal: tuple[Problem, str] | None = None
        self.given_up = False

    @property
    def announces_too_much(self) -> bool:
        """Whether the body is too large by its own headers, and need not be looked at."""
        if self._announced > self._limit:
            self._give_up(PROBLEMS[PayloadTooLarge], self._too_large())
        return self.given_up

    def _give_up(self, problem: Problem, detail: str) -> None:
        self.given_up, self._refusal = True, (problem, detail)

    def _too_large(self) -> str:
        return f"the body has more than the {self._limit:,} bytes that are taken; send less"

    async def receive(self) -> Message:
        """Return the next piece of the body, and after its end wait for the client to go, for as long as it takes."""
        if self._ended:
            return await self._receive()
        try:
            async with asyncio.timeout(self._wait_s):
                message = await self._receive()
        except TimeoutError:
            self._give_up(_LATE, f"no piece of the body came for {self._wait_s:g} seconds; send it again")
            raise _GivenUp from None
        self._count(message)
        if self._read > self._limit:
            self._give_up(PROBLEMS[PayloadTooLarge], self._too_large())
            raise _GivenUp
        return message

    def _count(self, message: Message) -> None:
        self._read += len(message.get("body", b""))
        self._ended = message["type"] != "http.request" or not message.get("more_body", False)

    async def send(self, message: Message) -> None:
        """Send a piece of the answer, unless the body was given up: then what the route says of it is not sent."""
        if not self.given_up:
            await self._sent(message)

    async def refuse(self) -> None:
        """Say why the body was given up, where it was; what the client still sends is not read."""
        if self._refusal is not None:
            await send_problem(self._sent, *self._refusal, connection="close")

    async def _sent(self, message: Message) -> None:
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if last and not self._ended:
            await self._in_time({**message, "more_body": True})
            await self._linger()
            message = {"type": "http.response.body", "body": b""}
        await self._in_time(message)

    async def _in_time(self, message: Message) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._send(message)
        except TimeoutError:
            self.given_up = True
            logger.info(
                "the client has read nothing for %g seconds: its answer is given up",
                self._wait_s,
                extra={"action": "client_stalled"},
            )
            raise _GivenUp from None

    async def _linger(self) -> None:
        """Give the answer time to arrive: a connection closed before all of a body was read may take it along."""
        begun = self._read
        try:
            async with asyncio.timeout(_LINGER_S):
                while not self._ended and self._read - begun < _LINGER_BYTES:
                    self._count(await self._receive())
                if not self._ended:
                    await asyncio.sleep(_LINGER_S)
        except TimeoutError:
            pass
