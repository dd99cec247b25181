"""Pages over HTTP: the headers that they are sent with, forms, and errors as pages."""

import logging
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from kosmos_rag.apps.auth.api_keys import ADMIN, INGEST, READ
from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.console.rendering import render
from kosmos_rag.apps.http.console.sessions import forget, kept, require_own_page, visitor_of
from kosmos_rag.apps.http.dependencies import Service
from kosmos_rag.apps.http.errors import public_detail, response_headers, to_problem
from kosmos_rag.core.errors import KosmosError, NotAuthenticated, RequestError
from kosmos_rag.core.version import __version__

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # Not "no-referrer", with which forms are sent with no Origin to tell whose they are.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
_NAVIGATION = (
    ("/", "Ask", READ),
    ("/inspector", "Inspector", ADMIN),
    ("/documents", "Documents", READ),
    ("/jobs", "Jobs", INGEST),
    ("/health", "Health", READ),
)
_SAFE = frozenset({"GET", "HEAD"})
_MOST_FIELDS = 50

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

logger = logging.getLogger("kosmos_rag.apps.http")


class PageRoute(APIRoute):
    """A route of the console: what goes wrong is a page, unless a script has asked, which gets the problem."""

    def get_route_handler(self) -> Handler:
        """Return the handler of a request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                if request.method not in _SAFE:
                    require_own_page(request)
                response = await handler(request)
            except (KosmosError, RequestValidationError, HTTPException) as error:
                if not wants_page(request):
                    raise
                response = _of_error(request, error)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return handle


def page(request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
    """Return a page; its frame shows who the visitor is and where it may go."""
    visitor = visitor_of(request)
    common = {
        "who": visitor,
        "navigation": [] if visitor is None else _allowed(visitor),
        "here": request.url.path,
        "signed_in": kept(request) is not None,
        "version": __version__,
    }
    return HTMLResponse(render(template, **common, **values), status)


def _allowed(identity: Identity) -> list[tuple[str, str]]:
    return [(path, name) for path, name, scope in _NAVIGATION if identity.has(scope)]


def home_of(identity: Identity) -> str:
    """Return the page that a visitor sees first."""
    return next((path for path, _ in _allowed(identity)), "/")


def see_other(path: str) -> Response:
    """Return the answer to a form that sends the visitor on to a page."""
    return RedirectResponse(path, HTTPStatus.SEE_OTHER)


async def form(request: Request) -> dict[str, str]:
    """Return the fields of a form that were filled in. Raises RequestError where the body is no form."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise RequestError("the body is no form; send application/x-www-form-urlencoded")
    try:
        text = (await request.body()).decode("ascii")
        return {name: value for name, value in parse_qsl(text, max_num_fields=_MOST_FIELDS, errors="strict") if value}
    except ValueError as error:
        raise RequestError("the form cannot be read; send the page's own") from error


def wants_page(request: Request) -> bool:
    """Whether a visitor asks, and not a script."""
    return "text/html" in request.headers.get("accept", "")


def _of_error(request: Request, error: Exception) -> Response:
    if isinstance(error, NotAuthenticated):
        response = see_other("/sign-in" if kept(request) is None else "/sign-in?ended=1")
        forget(request, response)
        return response
    if isinstance(error, HTTPException):
        status, title, detail, headers = error.status_code, HTTPStatus(error.status_code).phrase, error.detail, {}
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
        status, title, detail, headers = 422, "The address is not one of a page", "a part of it is no number or id", {}
    response = page(request, "error.html", status=status, code=status, title=title, detail=detail)
    response.headers.update(headers)
    return response


def service_of(request: Request) -> Service:
    """Return what the routes work with."""
    service: Service = request.app.state.service
    return service
