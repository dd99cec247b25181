"""Request ids, spans, metrics and log lines of requests.

Uncaught errors are reported here.
"""

import logging
import re
import secrets
import time
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag.apps.http.toolkit.errors import INTERNAL, send_problem
from kosmos_rag.apps.http.toolkit.metrics import ServiceMetrics
from kosmos_rag.apps.http.toolkit.streaming import ERROR_STATUS
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.telemetry.logging import REQUEST

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_CLIENT_CLOSED_REQUEST = 499
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}

logger = logging.getLogger("kosmos_rag.apps.http")


class RequestMiddleware:
    """Adds request ids, and counts requests.

    Uncaught errors become problems.
    """

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
            await self._serve(scope, receive, send, _request_fields(headers))

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_fields: Mapping[str, str]) -> None:
        token = REQUEST.set(request_fields)
        started = time.perf_counter()
        status, seconds = 0, 0.0

        async def send_on(message: Message) -> None:
            nonlocal status, seconds
            if message["type"] == "http.response.start":
                status, seconds = message["status"], time.perf_counter() - started
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_fields["request_id"]
                headers["x-trace-id"] = request_fields["trace_id"]
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        except ClientDisconnect:
            status = status or _CLIENT_CLOSED_REQUEST
        except Exception:
            logger.exception("%s %s failed", scope["method"], _route(scope), extra={"action": "request_failed"})
            if not status:
                await send_problem(send_on, scope["path"], INTERNAL, INTERNAL.title)
        finally:
            self._record(scope, status, seconds, (time.perf_counter() - started) * 1000)
            REQUEST.reset(token)

    def _record(self, scope: Scope, status: int, seconds: float, took_ms: float) -> None:
        status = scope.get(ERROR_STATUS, status)
        method, route = scope["method"] if scope["method"] in _METHODS else "other", _route(scope)
        self._metrics.record_request(method, route, status, seconds)
        attributes = {"http.request.method": method, "http.route": route, "http.response.status_code": status}
        tracing.rename_span(f"{method} {route}", attributes)
        fields = {"action": "request", "method": method, "route": route, "status": status, "ms": round(took_ms, 1)}
        logger.info("%s %s %d %.1f ms", method, route, status, took_ms, extra=fields)


def _request_fields(headers: Headers) -> Mapping[str, str]:
    header = headers.get("x-request-id", "")
    request_id = header if _REQUEST_ID.fullmatch(header) else secrets.token_hex(8)
    request_fields = {"request_id": request_id, "trace_id": tracing.current_trace_id() or ""}
    caller = tracing.parse_traceparent(headers.get("traceparent"))
    return request_fields if caller is None else {**request_fields, "parent_id": f"{caller.span_id:016x}"}


def _route(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", "unmatched")
