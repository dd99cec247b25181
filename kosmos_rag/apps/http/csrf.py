"""Pages in a browser: which of them has sent a request, and no foreign one's where nobody needs credentials."""

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.apps.auth.identity import LOOPBACK
from kosmos_rag.apps.http.errors import send_problem
from kosmos_rag.core.errors import NotPermitted
from kosmos_rag.core.problem_details import PROBLEMS

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def is_same_origin(headers: Headers) -> bool | None:
    """Whether a page of this very origin has sent a request; None where no browser says. No page can change it."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return None if origin is None else origin.partition("://")[2] == headers.get("host")


def is_loopback_host(headers: Headers) -> bool:
    """Whether a request was sent to a name of the loopback address: any other name may be a foreign page's own."""
    try:
        return urlsplit(f"//{headers.get('host', '')}").hostname in LOOPBACK
    except ValueError:
        return False


class SameOriginOnly:
    """Refuses what pages of others send, under a name of theirs, or to change something.

    Any page can have a browser send a simple request, and its name can be pointed at this machine.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        detail = _refusal(scope["method"], Headers(scope=scope)) if scope["type"] == "http" else None
        if detail is None:
            await self._app(scope, receive, send)
        else:
            await send_problem(send, PROBLEMS[NotPermitted], detail)


def _refusal(method: str, headers: Headers) -> str | None:
    if not is_loopback_host(headers):
        return f"a development service answers to {', '.join(sorted(LOOPBACK))} alone; ask it by one of these names"
    if method not in _SAFE and is_same_origin(headers) is False:
        return "a page of another origin has sent this; send it from a program or from the console"
    return None
