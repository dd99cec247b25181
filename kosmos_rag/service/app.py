"""The application: routes, middleware, and one place where every error becomes a problem."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kosmos_rag.async_engine import AsyncEngine
from kosmos_rag.errors import KosmosError
from kosmos_rag.service.caller import Service
from kosmos_rag.service.identity import LOOPBACK, Authenticator
from kosmos_rag.service.keys import ApiKeys
from kosmos_rag.service.metrics import ServiceMetrics
from kosmos_rag.service.middleware import Bodies, Requests
from kosmos_rag.service.problems import INVALID, MEDIA_TYPE, Problem, body, headers_of, problem_of, told
from kosmos_rag.service.rates import Rates
from kosmos_rag.service.routes import asking, holdings, operations
from kosmos_rag.service.streaming import Streams
from kosmos_rag.service.turns import Turns
from kosmos_rag.version import __version__

_DESCRIPTION = """Cited retrieval over a tenant's documents. Errors are problems (RFC 9457) of media type
`application/problem+json`, told apart by `type`. Each response has an `X-Request-ID`, yours where you send one."""

logger = logging.getLogger("kosmos_rag.service")


def create_service(engine: AsyncEngine) -> Service:
    """Compose what the routes work with, over an open engine. Raises ConfigError."""
    settings = engine.settings
    metrics, turns = ServiceMetrics(), Turns(engine, settings)
    streams = Streams(settings.service, metrics)
    metrics.watch(turns=lambda: turns.taken, streams=lambda: streams.taken)
    return Service(
        settings=settings,
        engine=engine,
        turns=turns,
        streams=streams,
        authenticator=Authenticator(settings, ApiKeys(engine.parts.database), turns),
        rates=Rates(settings.service.rates),
        metrics=metrics,
    )


def create_app(service: Service) -> FastAPI:
    """Return the application of a service: any ASGI server runs it."""
    settings = service.settings
    # Whoever comes to a development service needs no credentials: a web page must not reach it under another name.
    guard = [Middleware(TrustedHostMiddleware, allowed_hosts=sorted(LOOPBACK - {"::1"} | {"[::1]"}))]
    app = FastAPI(
        title="kosmos_rag",
        version=__version__,
        description=_DESCRIPTION,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        responses=_documented(),
        middleware=[
            Middleware(Requests, metrics=service.metrics),
            *(guard if settings.service.development.tenant is not None else []),
            Middleware(Bodies, settings=settings),
        ],
    )
    app.state.service = service
    for router in (asking.router, holdings.router, operations.router):
        app.include_router(router)
    app.add_exception_handler(KosmosError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    return app


async def _of_ours(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning("%s %s: %s", request.method, request.url.path, error)
    return _response(problem, told(error, problem), headers_of(error, problem))


async def _of_validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [{"place": list(fault["loc"]), "message": fault["msg"]} for fault in error.errors()]
    return _response(INVALID, f"{len(faults)} values are missing or not as they should be", {}, errors=faults)


async def _of_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    problem = Problem(status=error.status_code, name=phrase.lower().replace(" ", "-"), title=phrase)
    return _response(problem, str(error.detail), dict(error.headers or {}))


def _response(problem: Problem, detail: str, headers: dict[str, str], **more: Any) -> Response:
    return Response(body(problem, detail, **more), problem.status, headers, MEDIA_TYPE)


def _documented() -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors that any route may answer with."""
    schema = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
        },
    }
    statuses = (400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504)
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }
