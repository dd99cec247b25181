"""Visitors of the console: credentials in a cookie that its routes alone read, and posts from its own pages alone.

A key or token is shown once and kept by the browser, out of reach of scripts. The API reads no cookie: a page of
somebody else's can make a browser send one, and never an Authorization header.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request, Response

from kosmos_rag.apps.auth.api_keys import ADMIN, INGEST, READ
from kosmos_rag.apps.auth.identity import LOOPBACK, Identity
from kosmos_rag.apps.http import dependencies
from kosmos_rag.apps.http.csrf import is_same_origin
from kosmos_rag.apps.http.dependencies import Caller
from kosmos_rag.core.errors import NotPermitted

_CREDENTIALS = re.compile(r"[A-Za-z0-9._-]{1,3800}")
_SECURE, _ON_LOOPBACK = "__Host-kosmos-console", "kosmos-console"


def kept(request: Request) -> str | None:
    """Return the credentials that a visitor's browser keeps; None where it keeps none."""
    return request.cookies.get(_cookie(request))


def keep(request: Request, response: Response, credentials: str) -> None:
    """Have the visitor's browser keep credentials until it is closed."""
    response.set_cookie(
        _cookie(request), credentials, path="/", httponly=True, samesite="strict", secure=_is_secure(request)
    )


def forget(request: Request, response: Response) -> None:
    """Have the visitor's browser forget the credentials."""
    response.delete_cookie(_cookie(request), path="/", httponly=True, samesite="strict", secure=_is_secure(request))


def _cookie(request: Request) -> str:
    return _SECURE if _is_secure(request) else _ON_LOOPBACK


def _is_secure(request: Request) -> bool:
    # What ends TLS in front of the service may not say so: beyond loopback a cookie goes over TLS or not at all.
    return request.url.scheme == "https" or request.url.hostname not in LOOPBACK


async def authenticate(request: Request, credentials: str | None) -> Identity:
    """Return whose credentials these are; in development, of nobody's.

    Raises NotAuthenticated, TooManyRequests, Overloaded, TimedOut, DatabaseError.
    """
    well_formed = credentials is None or _CREDENTIALS.fullmatch(credentials)
    authorization = None if credentials is None else f"Bearer {credentials if well_formed else ''}"
    return await dependencies.authenticate(request.app.state.service, request.scope, authorization)


def visitor_of(request: Request) -> Identity | None:
    """Return who visits, where that has been found out."""
    identity: Identity | None = getattr(request.state, "visitor", None)
    return identity


def require_own_page(request: Request) -> None:
    """Raise NotPermitted unless a page of this very origin has sent a post."""
    if not is_same_origin(request.headers):
        raise NotPermitted("the console takes what its own pages send; open it and send it from there")


def _visits(scope: str) -> Callable[..., Awaitable[Caller]]:
    async def visitor(request: Request) -> Caller:
        identity = await authenticate(request, kept(request))
        request.state.visitor = identity
        identity.require(scope)
        return Caller(identity=identity, service=request.app.state.service)

    return visitor


VisitingReader = Annotated[Caller, Depends(_visits(READ))]
VisitingWriter = Annotated[Caller, Depends(_visits(INGEST))]
VisitingAdministrator = Annotated[Caller, Depends(_visits(ADMIN))]
