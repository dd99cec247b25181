"""Sessions of the console, in HttpOnly cookies.

Posts are accepted from its own pages only.

Only console routes read the cookies. The API reads none: a page of another origin can make a browser send a cookie,
but never an Authorization header.
"""

import base64
import json
import re
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Literal, TypedDict

from fastapi import Depends, Request, Response

from kosmos_rag.apps.auth.identity import LOOPBACK, Identity, view_as
from kosmos_rag.apps.errors import NotAuthenticated, NotPermitted
from kosmos_rag.apps.http.toolkit import dependencies
from kosmos_rag.apps.http.toolkit.csrf import is_same_origin
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import AuditKind, AuditOutcome, are_names
from kosmos_rag.engine.api_keys import ADMIN, INGEST, OPERATE, READ

_CREDENTIALS = re.compile(r"[A-Za-z0-9._-]{1,3800}")
_MAX_VIEW_CHARS = 3800


class Cookie(StrEnum):
    """The cookies of the console."""

    CREDENTIALS = "kosmos-console"
    """A key or a token."""
    SESSION = "kosmos-session"
    """The sealed session of a user whom the identity provider signed in."""
    VIEW = "kosmos-view"
    """The reader as whom an administrator looks. It needs no seal: each page asks for the scope, and is recorded."""

    def read(self, request: Request) -> str | None:
        """Return the value of the cookie; None without one."""
        return request.cookies.get(cookie_name(request, self))

    def store(self, request: Request, response: Response, value: str) -> None:
        """Store a value until the browser is closed.

        Args:
            request: the request; the cookie requires TLS unless the host is loopback.
            value: letters, digits, `.`, `_` and `-`.
        """
        response.set_cookie(cookie_name(request, self), value, **cookie_attributes(request, "strict"))

    def clear(self, request: Request, response: Response) -> None:
        """Delete the cookie."""
        response.delete_cookie(cookie_name(request, self), **cookie_attributes(request, "strict"))


class CookieAttributes(TypedDict):
    """Attributes of a cookie."""

    path: str
    httponly: bool
    samesite: Literal["lax", "strict"]
    secure: bool


class MalformedView(RequestError):
    """The cookie of a view cannot be read."""

    def __init__(self) -> None:
        super().__init__(
            "the reader as whom you look at the console cannot be read, and the view has ended; open the page again"
        )


def is_signed_in(request: Request) -> bool:
    """Whether the browser has a session or credentials, valid or not."""
    return any(cookie.read(request) is not None for cookie in (Cookie.SESSION, Cookie.CREDENTIALS))


def end_session(request: Request, response: Response) -> None:
    """Delete the cookies that the request sent.

    A link from another site sends none, and must not end the session of the other tabs.
    """
    for cookie in Cookie:
        if cookie.read(request) is not None:
            cookie.clear(request, response)


def cookie_name(request: Request, name: str) -> str:
    """Return the name of a cookie.

    With TLS, it is one that no other host can set.
    """
    return f"__Host-{name}" if _is_secure(request) else str(name)


def cookie_attributes(request: Request, same_site: Literal["lax", "strict"]) -> CookieAttributes:
    """Return the attributes of a cookie that no script can read."""
    return {"path": "/", "httponly": True, "samesite": same_site, "secure": _is_secure(request)}


def _is_secure(request: Request) -> bool:
    # A proxy may end TLS without saying so: beyond loopback, cookies need TLS.
    service: Service = request.app.state.service
    has_tls = request.url.scheme == "https" or (service.settings.service.openid.url or "").startswith("https://")
    return has_tls or request.url.hostname not in LOOPBACK


async def authenticate(request: Request, credentials: str | None) -> Identity:
    """Identify the owner of credentials; None is valid in development only.

    Raises NotAuthenticated, TooManyRequests, Overloaded, TimedOut, DatabaseError.
    """
    well_formed = credentials is None or _CREDENTIALS.fullmatch(credentials)
    authorization = None if credentials is None else f"Bearer {credentials if well_formed else ''}"
    return await dependencies.authenticate(request.app.state.service, request.scope, authorization)


async def identify(request: Request) -> Identity:
    """Identify the user of a page, by session or credentials. Raises as `authenticate`."""
    service: Service = request.app.state.service
    session = Cookie.SESSION.read(request)
    if service.openid is None or session is None:
        return await authenticate(request, Cookie.CREDENTIALS.read(request))
    identity = service.openid.open_session(session)
    if identity is None:
        raise NotAuthenticated("the session is over; sign in again")
    service.rate_limiter.count(identity)
    return await dependencies.add_groups(service, identity)


def store_view(request: Request, response: Response, view: Identity) -> None:
    """Let an administrator look as a reader from the next page on.

    Raises RequestError where the principals are too many for a cookie.

    Args:
        request: the request of the administrator.
        view: what `view_as` returns.
    """
    text = json.dumps({"reader": view.viewed_reader, "principals": view.principals})
    value = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    if len(value) > _MAX_VIEW_CHARS:
        raise RequestError("these are too many principals for a view; name those that decide")
    Cookie.VIEW.store(request, response, value)


def _apply_view(request: Request, identity: Identity) -> Identity:
    """Return the identity of the viewed reader, where an administrator looks as one.

    Raises MalformedView: the rights of the administrator must not come back unseen.
    """
    value = Cookie.VIEW.read(request)
    if value is None or not identity.has(ADMIN) or not request.app.state.service.settings.service.view_as:
        return identity
    try:
        view = json.loads(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
        reader, principals = view["reader"], view["principals"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise MalformedView from None
    if not are_names([reader]) or not are_names(principals):
        raise MalformedView
    return view_as(identity, reader, principals)


async def record_view(request: Request, caller: Caller) -> None:
    """Write to the audit log that a page was opened as another reader.

    The tenant of such a caller is watched: it also records what the page reads.
    """
    page = f"{request.method} {request.url.path} as {caller.identity.viewed_reader}"
    await caller.run(caller.tenant().record_access, AuditKind.SEARCH, page, AuditOutcome.HITS)


def current_identity(request: Request) -> Identity | None:
    """Return the identity of an authenticated request; else None."""
    identity: Identity | None = getattr(request.state, "identity", None)
    return identity


def require_same_origin(request: Request) -> None:
    """Raise NotPermitted unless a page of this origin sent the request."""
    if not is_same_origin(request.headers):
        raise NotPermitted("only pages of the console may send this request; open the console and send it from there")


def _require_scope(*scopes: str) -> Callable[..., Awaitable[Caller]]:
    async def caller(request: Request) -> Caller:
        identity = _apply_view(request, await identify(request))
        request.state.identity = identity
        identity.require(*scopes)
        caller = Caller(identity=identity, service=request.app.state.service)
        if identity.viewed_reader is not None:
            await record_view(request, caller)
        return caller

    return caller


ConsoleReader = Annotated[Caller, Depends(_require_scope(READ))]
ConsoleWriter = Annotated[Caller, Depends(_require_scope(INGEST))]
ConsoleJobManager = Annotated[Caller, Depends(_require_scope(INGEST, OPERATE))]
ConsoleHealthViewer = Annotated[Caller, Depends(_require_scope(READ, OPERATE))]
ConsoleOperator = Annotated[Caller, Depends(_require_scope(OPERATE))]
ConsoleAdministrator = Annotated[Caller, Depends(_require_scope(ADMIN))]
