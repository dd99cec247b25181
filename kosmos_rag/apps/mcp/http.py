"""MCP over streamable HTTP, stateless.

Each request has a token or a key.
"""

import asyncio
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.apps.auth.identity import LOOPBACK, Identity
from kosmos_rag.apps.errors import NotAuthenticated, NotPermitted
from kosmos_rag.apps.http.toolkit import health
from kosmos_rag.apps.http.toolkit.body_limits import BodyLimits
from kosmos_rag.apps.http.toolkit.dependencies import authenticate
from kosmos_rag.apps.http.toolkit.errors import handle_library_error, public_detail, send_problem, to_problem
from kosmos_rag.apps.http.toolkit.header_limits import HeaderLimits
from kosmos_rag.apps.http.toolkit.middleware import RequestMiddleware
from kosmos_rag.apps.http.toolkit.server import Server as HttpServer
from kosmos_rag.apps.http.toolkit.server import open_service
from kosmos_rag.apps.http.toolkit.service import Service
from kosmos_rag.apps.http.toolkit.service import create_service as create_http_service
from kosmos_rag.apps.mcp import server as mcp
from kosmos_rag.apps.mcp.oauth import ProtectedResource, challenge
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.engine.api_keys import READ

PATH = "/mcp"


class Authentication:
    """Authenticates each request as the HTTP service does.

    A challenge says where agents log in.
    """

    def __init__(self, app: ASGIApp, service: Service, resource: ProtectedResource | None) -> None:
        self._app = app
        self._service = service
        self._resource = resource

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises what `authenticate` raises but for credentials."""
        # GET listens to a session and DELETE ends it; there are no sessions.
        if scope["method"] != "POST":
            await PlainTextResponse("POST only\n", 405, {"allow": "POST"})(scope, receive, send)
            return
        authorization = Headers(scope=scope).get("authorization")
        try:
            identity = await authenticate(self._service, scope, authorization)
            identity.require(READ)
        except (NotAuthenticated, NotPermitted) as error:
            problem, header = to_problem(error), challenge(self._resource, error, anonymous=authorization is None)
            detail, headers = public_detail(error, problem), {"www-authenticate": header}
            await send_problem(send, scope["path"], problem, detail, **headers)
            return
        scope.setdefault("state", {})["identity"] = identity
        await self._app(scope, receive, send)


def create_service(engine: AsyncEngine) -> Service:
    """Create the service of an open engine. Raises ConfigError.

    Where agents log in, a token must be issued for this server: its public URL is the audience.
    """
    return create_http_service(engine, audience=engine.settings.mcp.url, console=False)


def create_server(service: Service) -> Server[Any]:
    """Create the MCP server of a service; requests are authenticated by HTTP."""
    return mcp.create_server(service, _identity)


def _identity(context: mcp.Context) -> Identity:
    assert context.request is not None, "HTTP always has a request"
    identity: Identity = context.request.state.identity
    return identity


def create_app(service: Service, server: Server[Any]) -> ASGIApp:
    """Create the application; it needs `server.session_manager.run()` while it serves.

    Raises ConfigError where agents could not log in by the settings.
    """
    resource = ProtectedResource.from_settings(service.settings)
    app = Starlette(
        routes=[
            Route("/livez", _livez),
            Route("/readyz", health.readyz),
            Route(PATH, Authentication(_mcp_app(server, service.settings), service, resource)),
            *([] if resource is None else resource.routes()),
        ],
        middleware=[
            Middleware(RequestMiddleware, metrics=service.metrics),
            Middleware(BodyLimits, settings=service.settings),
            Middleware(HeaderLimits),
        ],
        exception_handlers={KosmosError: handle_library_error},
    )
    app.state.service = service
    return app


async def _livez(_: Request) -> Response:
    return PlainTextResponse(await health.livez())


def _mcp_app(server: Server[Any], settings: Settings) -> ASGIApp:
    names = [f"[{name}]" if ":" in name else name for name in sorted(LOOPBACK)]
    return server.streamable_http_app(
        streamable_http_path=PATH,
        stateless_http=True,
        max_request_body_size=settings.service.max_body_kb * 1024,
        # A development service needs no credentials: web pages must not reach it.
        transport_security=TransportSecuritySettings(
            enable_dns_rebinding_protection=settings.service.development.tenant is not None,
            allowed_hosts=[f"{name}:*" for name in names],
            allowed_origins=[f"http://{name}:*" for name in names],
        ),
    )


def serve(settings: Settings) -> None:
    """Serve until SIGTERM. Raises ConfigError, DatabaseError, ModelUnavailable before the port opens."""
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    async with open_service(settings, create_service) as service:
        server = create_server(service)
        app = create_app(service, server)
        async with server.session_manager.run():
            await HttpServer(service, app).serve()
