"""What happens to every request: it gets an id, is counted and logged, and what nobody else caught is answered for."""

import logging
import re
import secrets
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag.apps.http.errors import INTERNAL, send_problem
from kosmos_rag.apps.http.metrics import ServiceMetrics
from kosmos_rag.apps.http.streaming import ERROR_STATUS
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.logging import REQUEST

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_CLIENT_GONE = 499
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}

logger = logging.getLogger("kosmos_rag.apps.http")


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
        headers = Headers(scope=scope)
        with tracing.start_entry_span(scope["method"], [headers.get("traceparent")]):
            await self._serve(scope, receive, send, _names(headers))

    async def _serve(self, scope: Scope, receive: Receive, send: Send, names: Mapping[str, str]) -> None:
        token = REQUEST.set(names)
        began = time.perf_counter()
        status, seconds = 0, 0.0

        async def send_on(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - began
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = names["request_id"]
                headers["x-trace-id"] = names["trace_id"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except ClientDisconnect:
            status = status or _CLIENT_GONE
        except Exception:
            logger.exception("%s %s failed", scope["method"], _route(scope), extra={"action": "request_failed"})
            if not status:
                await send_problem(send_on, INTERNAL, INTERNAL.title)
        finally:
            self._told(scope, status, seconds, (time.perf_counter() - began) * 1000)
            REQUEST.reset(token)

    def _told(self, scope: Scope, status: int, seconds: float, took_ms: float) -> None:
        status = scope.get(ERROR_STATUS, status)
        method, route = scope["method"] if scope["method"] in _METHODS else "other", _route(scope)
        self._metrics.record_request(method, route, status, seconds)
        named = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
        tracing.rename_span(f"{method} {route}", named)
        told = {"action": "request", "method": method, "route": route, "status": status, "ms": round(took_ms, 1)}
        logger.info("%s %s %d %.1f ms", method, route, status, took_ms, extra=told)


def _names(headers: Headers) -> Mapping[str, str]:
    given = headers.get("x-request-id", "")
    request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
    names = {"request_id": request_id, "trace_id": tracing.current_trace_id() or ""}
    caller = tracing.parse_traceparent(headers.get("traceparent"))
    return names if caller is None else {**names, "parent_id": f"{caller.span_id:016x}"}


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")
