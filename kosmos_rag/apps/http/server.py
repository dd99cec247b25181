"""Serves the HTTP service."""

import asyncio
from collections.abc import Callable

from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.server import Server, open_service
from kosmos_rag.core.config import Settings


def serve(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM. Raises ConfigError, DatabaseError, ModelUnavailable before the port opens.

    Args:
        settings: Of the process.
        on_ready: Called once the port is open.
    """
    asyncio.run(_serve(settings, on_ready))


async def _serve(settings: Settings, on_ready: Callable[[], None]) -> None:
    async with open_service(settings) as service:
        await Server(service, create_app(service), on_ready).serve()
