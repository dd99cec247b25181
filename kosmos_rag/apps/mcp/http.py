"""MCP over streamable HTTP, stateless.

Each request has a token or a key.
"""

import asyncio

from mcp.server.mcpserver import Context
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from kosmos_rag.apps.auth.identity import LOOPBACK, Identity
from kosmos_rag.apps.http import server as http
from kosmos_rag.apps.http.app import handle_library_error
from kosmos_rag.apps.http.body_limits import BodyLimits
from kosmos_rag.apps.http.dependencies import Service, authenticate
from kosmos_rag.apps.http.header_limits import HeaderLimits
from kosmos_rag.apps.http.middleware import RequestMiddleware
from kosmos_rag.apps.http.routes import health
from kosmos_rag.apps.mcp.server import Server
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import KosmosError

PATH = "/mcp"


class Authentication:
    """Authenticates each request as the HTTP service does."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Raises what `authenticate` raises."""
        # GET listens to a session and DELETE ends it; there are no sessions.
        if scope["method"] != "POST":
            await PlainTextResponse("POST only\n", 405, {"allow": "POST"})(scope, receive, send)
            return
        identity = await authenticate(self._service, scope, Headers(scope=scope).get("authorization"))
        scope.setdefault("state", {})["identity"] = identity
        await self._app(scope, receive, send)


def create_server(service: Service) -> Server:
    """Create the MCP server of a service; requests are authenticated by HTTP."""
    return Server(service, _identity)


def _identity(context: Context) -> Identity:
    request = context.request_context.request
    assert request is not None, "HTTP always has a request"
    identity: Identity = request.state.identity
    return identity


def create_app(service: Service, server: Server) -> ASGIApp:
    """Create the application; it needs `server.session_manager.run()` while it serves."""
    app = Starlette(
        routes=[
            Route("/livez", _livez),
            Route("/readyz", health.readyz),
            Route(PATH, Authentication(_mcp_app(server, service.settings), service)),
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


def _mcp_app(server: Server, settings: Settings) -> ASGIApp:
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
    async with http.open_service(settings) as service:
        server = create_server(service)
        app = create_app(service, server)
        async with server.session_manager.run():
            await http.Server(service, app).serve()
