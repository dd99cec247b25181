"""Serves the HTTP service."""

import asyncio

from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.server import Server, open_service
from kosmos_rag.core.config import Settings


def serve(settings: Settings) -> None:
    """Serve until SIGTERM. Raises ConfigError, DatabaseError, ModelUnavailable before the port opens."""
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    async with open_service(settings) as service:
        await Server(service, create_app(service)).serve()
