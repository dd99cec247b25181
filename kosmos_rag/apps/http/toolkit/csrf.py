"""Protects a service without credentials from other origins' pages.

The attacks are CSRF and DNS rebinding.
"""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.apps.auth.identity import LOOPBACK
from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.apps.http.toolkit.errors import send_problem
from kosmos_rag.apps.problem_details import PROBLEMS

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def is_same_origin(headers: Headers) -> bool | None:
    """Whether a page of this origin sent the request.

    Returns None without a browser.

    Browsers set these headers; no page can change them.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return None if origin is None else origin.partition("://")[2] == headers.get("host")


def is_loopback_host(headers: Headers) -> bool:
    """Whether the request names the loopback host.

    Another name may point here by DNS rebinding.
    """
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname in LOOPBACK
    except ValueError:
        return False


class SameOriginOnly:
    """Refuses other host names, and unsafe methods from other origins.

    Any page can make a browser send a simple request, and its host name can resolve to this machine.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        detail = _refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if detail is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(send, scope["path"], PROBLEMS[NotPermitted], detail)


def _refusal(method: str, headers: Headers) -> str | None:
    if not is_loopback_host(headers):
        return f"a development service answers only to {', '.join(sorted(LOOPBACK))}; use one of these host names"
    if method not in _SAFE and is_same_origin(headers) is False:
        return "a page of another origin sent this request; send it from a program or from the console"
    return None
