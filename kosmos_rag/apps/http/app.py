"""The application: routes, middleware and error handlers.

Every error becomes a problem (RFC 9457) here.
"""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from kosmos_rag.apps.auth.identity import Authenticator
from kosmos_rag.apps.auth.key_verifier import KeyVerifier
from kosmos_rag.apps.http.body_limits import BodyLimits
from kosmos_rag.apps.http.concurrency import ConcurrencyLimiter
from kosmos_rag.apps.http.console import routes as console
from kosmos_rag.apps.http.console import routes_admin as console_admin
from kosmos_rag.apps.http.console import routes_evaluation as console_evaluation
from kosmos_rag.apps.http.console import routes_monitor as console_monitor
from kosmos_rag.apps.http.console.pages import missing_page, wants_page
from kosmos_rag.apps.http.csrf import SameOriginOnly
from kosmos_rag.apps.http.dependencies import Service
from kosmos_rag.apps.http.errors import (
    INVALID,
    error_response,
    extension_members,
    public_detail,
    response_headers,
    to_problem,
)
from kosmos_rag.apps.http.grounding import GroundingCache
from kosmos_rag.apps.http.header_limits import HeaderLimits
from kosmos_rag.apps.http.metrics import ServiceMetrics
from kosmos_rag.apps.http.middleware import RequestMiddleware
from kosmos_rag.apps.http.openai import routes_answers, routes_files, routes_search, routes_vector_stores
from kosmos_rag.apps.http.openapi import JsonObject, install_openapi, openapi
from kosmos_rag.apps.http.rate_limit import RateLimiter
from kosmos_rag.apps.http.readiness import Readiness
from kosmos_rag.apps.http.routes import grounding, health, resources, search, seed_api
from kosmos_rag.apps.http.streaming import Streams
from kosmos_rag.apps.http.uploads import Uploads
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.problem_details import Problem
from kosmos_rag.core.version import __version__
from kosmos_rag.engine.aio import AsyncEngine

_DESCRIPTION = """Cited retrieval over a tenant's documents. Errors are problems (RFC 9457) of media type
`application/problem+json`; `type` identifies the error. Each response has an `X-Request-ID`, that of the request if it
has one."""

_ROUTES = (
    search,
    grounding,
    resources,
    seed_api,
    health,
    console,
    console_admin,
    console_evaluation,
    console_monitor,
    routes_files,
    routes_vector_stores,
    routes_search,
    routes_answers,
)

logger = logging.getLogger("kosmos_rag.apps.http")


def create_service(engine: AsyncEngine, *, audience: str | None = None) -> Service:
    """Create the service for an open engine. Raises ConfigError.

    Args:
        engine: the engine.
        audience: required audience of tokens; None for `service.tokens.audience`.
    """
    settings = engine.settings
    metrics, limiter = ServiceMetrics(settings.observability), ConcurrencyLimiter(engine, settings)
    engine.parts.telemetry.attach(metrics.observer)
    streams = Streams(settings.service)
    metrics.register_gauges(calls=lambda: limiter.in_flight, streams=lambda: streams.in_flight)
    return Service(
        settings=settings,
        engine=engine,
        limiter=limiter,
        streams=streams,
        uploads=Uploads(engine.parts.database, settings.service),
        authenticator=Authenticator(settings, KeyVerifier(engine.parts.database, settings.service), audience=audience),
        rate_limiter=RateLimiter(settings.service),
        groundings=GroundingCache(),
        metrics=metrics,
        readiness=Readiness(engine.parts.database),
    )


def create_app(service: Service) -> FastAPI:
    """Create the ASGI application of a service."""
    settings = service.settings
    # A development service needs no credentials, so web pages of other origins must not reach it.
    csrf = [Middleware(SameOriginOnly)] if settings.service.development.tenant is not None else []
    app = _build_app(
        Middleware(RequestMiddleware, metrics=service.metrics),
        *csrf,
        Middleware(BodyLimits, settings=settings),
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
    for module in _ROUTES:
        # The routes themselves. include_router would copy them, with their models again: 0.4 s of the first request.
        app.router.routes.extend(module.router.routes)
    return app


async def handle_library_error(request: Request, error: Exception) -> Response:
    """Respond to a library error with a problem document; log server errors."""
    problem = to_problem(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning(
            "%s %s: %s", request.method, problem.name, error,
            extra={"action": "request_refused", "texts": {"path": request.url.path}},
        )  # fmt: skip
    headers = response_headers(error, problem)
    return _response(request, problem, public_detail(error, problem), headers, **extension_members(error))


async def handle_validation_error(request: Request, error: Exception) -> Response:
    """Respond to an invalid request with a problem that lists each fault."""
    assert isinstance(error, RequestValidationError)
    errors = [{"location": list(fault["loc"]), "message": fault["msg"]} for fault in error.errors()]
    return _response(request, INVALID, "values are missing or invalid; `errors` names each", {}, errors=errors)


async def handle_http_error(request: Request, error: Exception) -> Response:
    """Respond to an unknown path or method.

    Browsers get a page, other clients a problem document.
    """
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND and wants_page(request):
        return missing_page(request, error)
    phrase = HTTPStatus(error.status_code).phrase
    problem = Problem(status=error.status_code, name=phrase.lower().replace(" ", "-"), title=phrase)
    return _response(request, problem, str(error.detail), dict(error.headers or {}))


def _response(request: Request, problem: Problem, detail: str, headers: dict[str, str], **extensions: Any) -> Response:
    error = error_response(request.url.path, problem, detail, **extensions)
    return Response(error.content, error.status, headers, error.media_type)
