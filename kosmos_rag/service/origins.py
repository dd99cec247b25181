"""Pages in a browser: which of them has sent a request, and no foreign one's where nobody needs credentials."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.errors import NotPermitted
from kosmos_rag.problems import PROBLEMS
from kosmos_rag.service.problems import send_problem

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def is_of_own_page(headers: Headers) -> bool | None:
    """Whether a page of this very origin has sent a request; None where no browser says. No page can change it."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return None if origin is None else origin.partition("://")[2] == headers.get("host")


class OwnPages:
    """Refuses what pages of others send to change something: any page can have a browser send a simple request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and scope["method"] not in _SAFE and is_of_own_page(Headers(scope=scope)) is False:
            detail = "a page of another origin has sent this; send it from a program or from the console"
            await send_problem(send, PROBLEMS[NotPermitted], detail)
            return
        await self._app(scope, receive, send)
