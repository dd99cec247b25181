"""Pages of the console: response headers, forms, and errors as pages."""

import logging
import re
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from posixpath import normpath
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.errors import NotAuthenticated
from kosmos_rag.apps.http.console.rendering import render
from kosmos_rag.apps.http.console.sessions import (
    Cookie,
    MalformedView,
    current_identity,
    end_session,
    is_signed_in,
    require_same_origin,
)
from kosmos_rag.apps.http.toolkit.errors import public_detail, response_headers, to_problem
from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.apps.http.wings import load_http_wings
from kosmos_rag.core.errors import KosmosError, RequestError
from kosmos_rag.core.version import __version__
from kosmos_rag.engine.api_keys import ADMIN, INGEST, OPERATE, READ

POLICY_HEADER = "content-security-policy"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    POLICY_HEADER: POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not "no-referrer": browsers would send forms without an Origin.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_NAVIGATION = (
    ("/", "Ask", (READ,)),
    ("/inspector", "Inspector", (ADMIN,)),
    ("/documents", "Documents", (READ,)),
    ("/jobs", "Jobs", (INGEST, OPERATE)),
    ("/access", "Access", (ADMIN,)),
)
_LAST = ("/health", "Health", (READ, OPERATE))
_SAFE = frozenset({"GET", "HEAD"})
_MAX_FIELDS = 50
_LOCAL_PATH = re.compile(r"/(?![/\\])[!-\[\]-~]{0,2000}")
"""Browsers take `//host` and `/\\host` for other hosts, and drop tabs and line ends before they look."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

logger = logging.getLogger("kosmos_rag.apps.http")


class PageRoute(APIRoute):
    """A console route: browsers get errors as pages, scripts as problems."""

    def get_route_handler(self) -> Handler:
        """Return the handler of a request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                if request.method not in _SAFE:
                    require_same_origin(request)
                response = await handler(request)
            except (KosmosError, RequestValidationError, HTTPException) as error:
                if not wants_page(request):
                    raise
                response = _error_response(request, error)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handle


def render_page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Render a page with the identity and the navigation.

    Args:
        request: the request, for its identity and path.
    """
    identity = current_identity(request)
    common = {
        "identity": identity,
        "navigation": [] if identity is None else _navigation(identity),
        "current_path": request.url.path,
        "signed_in": is_signed_in(request),
        "version": __version__,
    }
    return HTMLResponse(render(template, **common, **values), status)


def _navigation(identity: Identity) -> list[tuple[str, str]]:
    of_wings = [(link.path, link.title, (link.scope,)) for wing in load_http_wings() for link in wing.links]
    return [(path, name) for path, name, scopes in (*_NAVIGATION, *of_wings, _LAST) if identity.has(*scopes)]


def home_path(identity: Identity) -> str:
    """Return the path of the first page that an identity may open."""
    return next((path for path, _ in _navigation(identity)), "/")


def redirect(path: str) -> Response:
    """Redirect to a page after a form."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


async def read_form(request: Request) -> dict[str, str]:
    """Return the non-empty fields of a form.

    Raises RequestError where the body is not a form.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise RequestError("the body is not a form; send application/x-www-form-urlencoded")
    try:
        text = (await request.body()).decode("ascii")
        return {name: value for name, value in parse_qsl(text, max_num_fields=_MAX_FIELDS, errors="strict") if value}
    except ValueError as error:
        raise RequestError("the form cannot be read; send it from the page") from error


def wants_page(request: Request) -> bool:
    """Whether a browser requests a page, and not a script."""
    return "text/html" in request.headers.get("accept", "")


def missing_page(request: Request, error: HTTPException) -> Response:
    """Return the page of an address that no route has."""
    response = _error_response(request, error)
    response.headers.update(_HEADERS)
    return response


def _error_response(request: Request, error: Exception) -> Response:
    if isinstance(error, NotAuthenticated):
        response = redirect(_sign_in_path(request))
        end_session(request, response)
        return response
    if isinstance(error, HTTPException):
        status, title, detail, headers = error.status_code, HTTPStatus(error.status_code).phrase, error.detail, {}
        if status == HTTPStatus.NOT_FOUND and detail == title:
            title, detail = "There is no such page", "Check the address."
    elif isinstance(error, KosmosError):
        problem = to_problem(error)
        if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning(
                "%s %s: %s", request.method, problem.name, error,
                extra={"action": "page_refused", "texts": {"path": request.url.path}},
            )  # fmt: skip
        status, title, detail = problem.status, problem.title, public_detail(error, problem)
        headers = response_headers(error, problem)
    else:
        status, title, detail, headers = 422, "The address is invalid", "a part of it is not a number or an id", {}
    response = render_page(request, "error.html", status=status, code=status, title=title, detail=detail)
    response.headers.update(headers)
    if isinstance(error, MalformedView):
        Cookie.VIEW.clear(request, response)
    return response


def _sign_in_path(request: Request) -> str:
    """Return the sign-in page that leads back to the requested one."""
    parameters = {"ended": "1"} if is_signed_in(request) else {}
    if request.method in _SAFE and request.url.path != "/":
        parameters["next"] = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return f"/sign-in?{urlencode(parameters)}" if parameters else "/sign-in"


def is_local_path(path: str) -> bool:
    """Whether a path leads to a page of this host, other than the sign-in pages."""
    if not _LOCAL_PATH.fullmatch(path):
        return False
    target = normpath(unquote(urlsplit(path).path))
    return target != "/sign-in" and not target.startswith("/sign-in/")


def get_service(request: Request) -> Service:
    """Return the service."""
    service: Service = request.app.state.service
    return service
