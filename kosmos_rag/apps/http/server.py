"""Runs the HTTP server: loads the models, then opens the port; drains requests on SIGTERM."""

import asyncio
import math
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from kosmos_rag.apps.http.app import create_app, create_service
from kosmos_rag.apps.http.dependencies import Service
from kosmos_rag.apps.http.metrics import serve_metrics
from kosmos_rag.core.config import Settings
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.engine.engine import Engine

_GRACE_S = 5
_KEEP_ALIVE_S = 75
"""Longer than the usual 60 seconds of load balancers: a request on a connection that closes here would fail there."""


class Server(uvicorn.Server):
    """Serves one application; `should_exit` ends it."""

    def __init__(self, service: Service, app: ASGIApp) -> None:
        settings = service.settings.service
        self._service = service
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.host,
                port=settings.port,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=bool(settings.trusted_proxies),
                forwarded_allow_ips=list(settings.trusted_proxies),
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=math.ceil(settings.drain_s) + _GRACE_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at SIGTERM and SIGINT with exit status 0: uvicorn would raise the signal again."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGTERM, signal.SIGINT)
        previous = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, let requests end, and stop streams after `service.drain_s`."""
        stop_streams = asyncio.get_running_loop().call_later(
            self._service.settings.service.drain_s, self._service.streams.stop
        )
        await super().shutdown(sockets)
        stop_streams.cancel()
        self._service.streams.close()
        self._service.authenticator.close()


def serve(settings: Settings) -> None:
    """Serve until SIGTERM. Raises ConfigError, DatabaseError, ModelUnavailable before the port opens."""
    asyncio.run(_serve(settings))


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncIterator[Service]:
    """Open a service: load its models and serve its metrics. Raises as `serve`."""
    engine = Engine.open(settings)
    async with AsyncEngine(engine) as shared:
        await shared.run(engine.warm_up)
        service = create_service(shared)
        with serve_metrics(service.metrics, settings.service):
            yield service


async def _serve(settings: Settings) -> None:
    async with open_service(settings) as service:
        await Server(service, create_app(service)).serve()
