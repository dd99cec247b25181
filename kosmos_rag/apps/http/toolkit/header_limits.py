"""Refuses requests whose headers are ambiguous or too large."""

from collections import Counter

from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.apps.http.toolkit.connections import MAX_HEADER_BYTES
from kosmos_rag.apps.http.toolkit.errors import send_problem
from kosmos_rag.apps.problem_details import Problem

_BAD_REQUEST = Problem(status=400, name="bad-request", title="Bad Request")
_TOO_LARGE = Problem(status=431, name="headers-too-large", title="Request Header Fields Too Large")
_SEPARATORS = len(b": \r\n")


class HeaderLimits:
    """Refuses ambiguous and oversized headers, and closes the connection.

    It refuses two lengths of a body (RFC 9112, 6.1), two credentials, and headers over 16 KB.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        refusal = _refusal(scope["headers"]) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(send, scope["path"], *refusal, connection="close")


def _refusal(headers: list[tuple[bytes, bytes]]) -> tuple[Problem, str] | None:
    if sum(len(name) + len(value) + _SEPARATORS for name, value in headers) > MAX_HEADER_BYTES:
        return _TOO_LARGE, f"the headers exceed {MAX_HEADER_BYTES:,} bytes; send less"
    counts = Counter(name for name, _ in headers)
    if counts[b"content-length"] and counts[b"transfer-encoding"]:
        return _BAD_REQUEST, "the headers Content-Length and Transfer-Encoding contradict each other; send one of them"
    if counts[b"authorization"] > 1:
        return _BAD_REQUEST, "the header Authorization comes more than once; send one"
    return None
