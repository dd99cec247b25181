"""What happens to every request: it gets an id, is counted and logged, and its body has a limit as it streams in."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag.config import Settings
from kosmos_rag.errors import KosmosError, TimedOut, TooLarge
from kosmos_rag.logs import REQUEST
from kosmos_rag.problems import MEDIA_TYPE
from kosmos_rag.service.metrics import ServiceMetrics
from kosmos_rag.service.problems import INTERNAL, body, problem_of

UPLOADS = frozenset({"/v1/documents", "/documents"})
"""The paths whose bodies may be as large as a document: of the API, and of the console."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}

logger = logging.getLogger("kosmos_rag.service")


class Requests:
    """Names each request to the logs, counts it, and answers for what nobody else caught."""

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        names = _names(Headers(scope=scope))
        token = REQUEST.set(names)
        began = time.perf_counter()
        status, seconds = 0, 0.0

        async def send_on(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - began
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = names["request_id"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except Exception:
            logger.exception("%s %s failed", scope["method"], _route(scope))
            if not status:
                await _send(send_on, INTERNAL.status, body(INTERNAL, INTERNAL.title))
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            self._metrics.request(method, _route(scope), status, seconds)
            logger.info("%s %s %d %.1f ms", method, _route(scope), status, (time.perf_counter() - began) * 1000)
            REQUEST.reset(token)


def _names(headers: Headers) -> Mapping[str, str]:
    given = headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    trace = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
    if trace is None or trace[1] == _NO_TRACE or trace[2] == _NO_SPAN:
        return {"request_id": request_id, "trace_id": secrets.token_hex(16)}
    return {"request_id": request_id, "trace_id": trace[1], "parent_id": trace[2]}


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")


@dataclass(slots=True)
class _Body:
    """How far the body of a request has come."""

    limit: int
    read: int = 0
    ended: bool = False
    refused: KosmosError | None = None


class _Refused(Exception):
    """Ends whatever reads a body that has been refused."""


class Bodies:
    """Counts the bytes of a body as they come, whatever its headers say, and waits for each piece only so long."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limit = settings.service.body_kb * 1024
        self._upload_limit = settings.ingestion.max_file_bytes
        self._wait_s = settings.service.body_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; a body that is too large or too slow is answered here, whatever the route makes of it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "POST" and scope["path"] in UPLOADS
        state = _Body(limit=self._upload_limit if upload else self._limit)
        length = Headers(scope=scope).get("content-length", "")
        if length.isdecimal() and int(length[:20]) > state.limit:
            await _refuse(send, _too_large(state.limit))
            return

        async def receive_on() -> Message:
            return await self._receive(receive, state)

        async def send_on(message: Message) -> None:
            if state.refused is None:
                await send(message)

        try:
            await self._app(scope, receive_on, send_on)
        except Exception:
            if state.refused is None:
                raise
        if state.refused is not None:
            await _refuse(send, state.refused)

    async def _receive(self, receive: Receive, state: _Body) -> Message:
        if state.ended:
            return await receive()  # waits for the client to go, for as long as it takes
        try:
            async with asyncio.timeout(self._wait_s):
                message = await receive()
        except TimeoutError:
            state.refused = TimedOut(f"no piece of the body came for {self._wait_s:g} seconds; send it again")
            raise _Refused from None
        if message["type"] == "http.request":
            state.read += len(message.get("body", b""))
            state.ended = not message.get("more_body", False)
            if state.read > state.limit:
                state.refused = _too_large(state.limit)
                raise _Refused
        return message


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body has more than the {limit:,} bytes that are taken; send less")


async def _refuse(send: Send, error: KosmosError) -> None:
    problem = problem_of(error)
    # What the client still sends is not read.
    status = 408 if isinstance(error, TimedOut) else problem.status
    await _send(send, status, body(problem, str(error)), connection="close")


async def _send(send: Send, status: int, content: bytes, **headers: Any) -> None:
    named = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
