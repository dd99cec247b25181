"""Cookies of sign-ins that have begun at the identity provider, one for each tab."""

import hashlib

from fastapi import Request, Response

from kosmos_rag.apps.auth.openid import ATTEMPT_S
from kosmos_rag.apps.http.console.sessions import CookieAttributes, cookie_attributes, cookie_name

_NAME = "kosmos-sign-in"
_MAX_KEPT_CHARS = 3800
"""Characters of older attempts that a browser keeps: all headers of a request have at most 16 KB."""


def read_attempt(request: Request, state: str) -> str | None:
    """Return the sealed attempt of a state; None without one."""
    return request.cookies.get(_attempt_name(request, state))


def store_attempt(request: Request, response: Response, state: str, sealed: str) -> None:
    """Store an attempt for as long as it counts.

    The oldest ones are dropped where there are too many.

    Args:
        request: the request, with the attempts of other tabs.
        state: identifies the attempt.
        sealed: what `OpenIdClient.seal_attempt` returns.
    """
    prefix, chars = cookie_name(request, f"{_NAME}-"), 0
    # Browsers send the oldest cookie first (RFC 6265, 5.4).
    for name, value in reversed(request.cookies.items()):
        if name.startswith(prefix):
            chars += len(value)
            if chars > _MAX_KEPT_CHARS:
                response.delete_cookie(name, **_attributes(request))
    response.set_cookie(_attempt_name(request, state), sealed, max_age=ATTEMPT_S, **_attributes(request))


def clear_attempt(request: Request, response: Response, state: str) -> None:
    """Delete the attempt of a state.

    Args:
        state: identifies the attempt.
    """
    response.delete_cookie(_attempt_name(request, state), **_attributes(request))


def _attempt_name(request: Request, state: str) -> str:
    return cookie_name(request, f"{_NAME}-{hashlib.sha256(state.encode()).hexdigest()[:16]}")


def _attributes(request: Request) -> CookieAttributes:
    # The provider sends the browser back: with "strict", the attempt would stay behind.
    return cookie_attributes(request, "lax")
