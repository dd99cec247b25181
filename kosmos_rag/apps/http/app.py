"""The application: routes, middleware and error handlers.

Every error becomes a problem (RFC 9457) here.
"""

from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from kosmos_rag.apps.faults import describe_faults
from kosmos_rag.apps.http.console import access as console_access
from kosmos_rag.apps.http.console import routes as console
from kosmos_rag.apps.http.console import routes_admin as console_admin
from kosmos_rag.apps.http.console import sign_in as console_sign_in
from kosmos_rag.apps.http.console.pages import missing_page, wants_page
from kosmos_rag.apps.http.openapi import JsonObject, install_openapi, openapi
from kosmos_rag.apps.http.routes import access, resources, search, unversioned
from kosmos_rag.apps.http.toolkit import health
from kosmos_rag.apps.http.toolkit.body_limits import BodyLimits
from kosmos_rag.apps.http.toolkit.csrf import SameOriginOnly
from kosmos_rag.apps.http.toolkit.errors import INVALID, handle_library_error, register_error_formats, respond
from kosmos_rag.apps.http.toolkit.header_limits import HeaderLimits
from kosmos_rag.apps.http.toolkit.middleware import RequestMiddleware
from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.apps.http.wings import load_http_wings
from kosmos_rag.apps.problem_details import Problem
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.version import __version__

_DESCRIPTION = """Cited retrieval over a tenant's documents. Errors are problems (RFC 9457) of media type
`application/problem+json`; `type` identifies the error. Each response has an `X-Request-ID`, that of the request if it
has one."""

_ROUTES = (
    search,
    resources,
    access,
    unversioned,
    health,
    console,
    console_admin,
    console_access,
    console_sign_in,
)
_UPLOADS = ("/v1/documents", "/documents")
"""Paths whose bodies may be as large as `ingestion.max_file_mb`; wings have more."""


def create_app(service: Service) -> FastAPI:
    """Create the ASGI application of a service."""
    settings = service.settings
    # A development service needs no credentials, so web pages of other origins must not reach it.
    csrf = [Middleware(SameOriginOnly)] if settings.service.development.tenant is not None else []
    uploads = [*_UPLOADS, *(path for wing in load_http_wings() for path in wing.uploads)]
    app = _build_app(
        Middleware(RequestMiddleware, metrics=service.metrics),
        *csrf,
        Middleware(BodyLimits, settings=settings, uploads=uploads),
        Middleware(HeaderLimits),
    )
    app.state.service = service
    install_openapi(app)
    app.add_exception_handler(KosmosError, handle_library_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, handle_http_error)
    return app


def describe_api() -> JsonObject:
    """Return the OpenAPI document without a service."""
    return openapi(_build_app())


def _build_app(*middleware: Middleware) -> FastAPI:
    app = FastAPI(
        title="kosmos_rag",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere; the console has /docs
        redoc_url=None,
        middleware=middleware,
    )
    wings = load_http_wings()
    register_error_formats([wing.error_format for wing in wings if wing.error_format])
    for router in [*(module.router for module in _ROUTES), *(router for wing in wings for router in wing.routers)]:
        # The routes themselves. include_router would copy them, with their models again: 0.4 s of the first request.
        app.router.routes.extend(router.routes)
    return app


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Respond to an invalid request with a problem that lists each fault."""
    assert isinstance(error, RequestValidationError)
    errors = describe_faults(error.errors(), error.body)
    return respond(request, INVALID, "values are missing or invalid; `errors` names each", {}, errors=errors)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an unknown path or method.

    Browsers get a page, other clients a problem document.
    """
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and wants_page(request):
        return missing_page(request, error)
    phrase = HTTPStatus(error.status_code).phrase
    problem = Problem(status=error.status_code, name=phrase.lower().replace(" ", "-"), title=phrase)
    return respond(request, problem, str(error.detail), dict(error.headers or {}))
