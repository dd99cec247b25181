"""Sessions of the console, in an HttpOnly cookie.

Posts are accepted from its own pages only.

Only console routes read the cookie. The API reads none: a page of another origin can make a browser send a cookie,
but never an Authorization header.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request, Response

from kosmos_rag.apps.auth.identity import LOOPBACK, Identity
from kosmos_rag.apps.errors import NotPermitted
from kosmos_rag.apps.http.toolkit import dependencies
from kosmos_rag.apps.http.toolkit.csrf import is_same_origin
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.engine.api_keys import ADMIN, INGEST, READ

_CREDENTIALS = re.compile(r"[A-Za-z0-9._-]{1,3800}")
_SECURE_COOKIE, _LOOPBACK_COOKIE = "__Host-kosmos-console", "kosmos-console"


def read_credentials(request: Request) -> str | None:
    """Return the credentials of the cookie; None without one."""
    return request.cookies.get(_cookie(request))


def store_credentials(request: Request, response: Response, credentials: str) -> None:
    """Store credentials in a session cookie.

    Args:
        request: the request; the cookie requires TLS unless the host is loopback.
        response: the response that sets the cookie.
        credentials: a token or an API key.
    """
    response.set_cookie(
        _cookie(request), credentials, path="/", httponly=True, samesite="strict", secure=_is_secure(request)
    )


def clear_credentials(request: Request, response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(_cookie(request), path="/", httponly=True, samesite="strict", secure=_is_secure(request))


def _cookie(request: Request) -> str:
    return _SECURE_COOKIE if _is_secure(request) else _LOOPBACK_COOKIE


def _is_secure(request: Request) -> bool:
    # A proxy may end TLS without saying so: beyond loopback, cookies need TLS.
    return request.url.scheme == "https" or request.url.hostname not in LOOPBACK


async def authenticate(request: Request, credentials: str | None) -> Identity:
    """Identify the owner of credentials; None is valid in development only.

    Raises NotAuthenticated, TooManyRequests, Overloaded, TimedOut, DatabaseError.
    """
    well_formed = credentials is None or _CREDENTIALS.fullmatch(credentials)
    authorization = None if credentials is None else f"Bearer {credentials if well_formed else ''}"
    return await dependencies.authenticate(request.app.state.service, request.scope, authorization)


def current_identity(request: Request) -> Identity | None:
    """Return the identity of an authenticated request; else None."""
    identity: Identity | None = getattr(request.state, "identity", None)
    return identity


def require_same_origin(request: Request) -> None:
    """Raise NotPermitted unless a page of this origin sent the request."""
    if not is_same_origin(request.headers):
        raise NotPermitted("only pages of the console may send this request; open the console and send it from there")


def _require_scope(scope: str) -> Callable[..., Awaitable[Caller]]:
    async def caller(request: Request) -> Caller:
        identity = await authenticate(request, read_credentials(request))
        request.state.identity = identity
        identity.require(scope)
        return Caller(identity=identity, service=request.app.state.service)

    return caller


ConsoleReader = Annotated[Caller, Depends(_require_scope(READ))]
ConsoleWriter = Annotated[Caller, Depends(_require_scope(INGEST))]
ConsoleAdministrator = Annotated[Caller, Depends(_require_scope(ADMIN))]
