"""Runs an HTTP server.

It loads the models, then opens the port, and drains requests on SIGTERM.
"""

import asyncio
import gc
import math
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from kosmos_rag.apps.http.toolkit.connections import LimitedConfig, log_accept_errors
from kosmos_rag.apps.http.toolkit.service import Service, create_service
from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.health import ALIVE_S, Probes, ReadyState, serve_health
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.engine.engine import Engine

_GRACE_S = 5
_READY_TIMEOUT_S = 6.0
_KEEP_ALIVE_S = 75
"""Longer than the usual 60 seconds of load balancers: a request on a connection that closes here would fail there."""


class Server(uvicorn.Server):
    """Serves one application; `should_exit` ends it."""

    def __init__(self, service: Service, app: ASGIApp, on_ready: Callable[[], None] = lambda: None) -> None:
        settings = service.settings.service
        self._on_ready = on_ready
        self._service = service
        self._health = ExitStack()
        self._ticked_at = time.monotonic()
        super().__init__(
            LimitedConfig(
                app,
                settings,
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
        """Stop at SIGTERM and SIGINT with exit status 0.

        uvicorn would raise the signal again.
        """
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the health port, then the port of the service. Raises ConfigError."""
        loop, settings = asyncio.get_running_loop(), self._service.settings.service
        log_accept_errors(loop)
        if settings.health_port is not None:
            probes = Probes(
                is_alive=lambda: time.monotonic() - self._ticked_at < ALIVE_S,
                ready_state=lambda: self._ready_state(loop),
                registry=self._service.metrics.registry,
            )
            health = serve_health(probes, settings.host, settings.health_port, key="service.health_port")
            self._health.enter_context(health)
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    def _ready_state(self, loop: asyncio.AbstractEventLoop) -> ReadyState:
        check = asyncio.run_coroutine_threadsafe(self._service.readiness.state(), loop)
        try:
            return check.result(_READY_TIMEOUT_S)
        except TimeoutError:
            return ReadyState(ready=False)

    async def on_tick(self, counter: int) -> bool:
        """Record that the event loop runs.

        Otherwise the liveness probe fails.
        """
        self._ticked_at = time.monotonic()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the port, let requests end, and stop streams after `service.drain_s`."""
        stop_streams = asyncio.get_running_loop().call_later(
            self._service.settings.service.drain_s, self._service.streams.stop
        )
        await super().shutdown(sockets)
        stop_streams.cancel()
        self._service.streams.close()
        self._service.uploads.close()
        self._service.authenticator.close()
        if self._service.directory is not None:
            self._service.directory.close()
        await asyncio.to_thread(self._health.close)


@asynccontextmanager
async def open_service(
    settings: Settings, create: Callable[[AsyncEngine], Service] = create_service
) -> AsyncIterator[Service]:
    """Open a service and load its models. Raises ConfigError, DatabaseError, ModelUnavailable.

    Args:
        create: makes the service of the open engine.
    """
    engine = Engine.open(settings)
    async with AsyncEngine(engine) as shared:
        await shared.run(engine.warm_up)
        # Imports and models are 150,000 objects. A full garbage collection looks at each of them, and all requests wait
        # for it, 0.1 to 0.2 s.
        gc.freeze()
        yield create(shared)
