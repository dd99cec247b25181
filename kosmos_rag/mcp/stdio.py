"""Over standard input and output, for one reader: whoever starts the process says who that is."""

import asyncio
import logging
import signal

from kosmos_rag.async_engine import AsyncEngine
from kosmos_rag.config import Settings, TokenSettings
from kosmos_rag.config.service import DevelopmentSettings
from kosmos_rag.engine import Engine
from kosmos_rag.errors import KosmosError
from kosmos_rag.mcp.server import Server
from kosmos_rag.service.app import create_service
from kosmos_rag.service.identity import Identity
from kosmos_rag.service.keys import READ
from kosmos_rag.storage.tenancy import well_formed

logger = logging.getLogger("kosmos_rag.mcp")


def serve(settings: Settings) -> None:
    """Serve until standard input ends. Raises ConfigError, RequestError, DatabaseError: nothing is served then."""
    given = settings.mcp
    identity = Identity(
        tenant=well_formed("tenant", given.tenant),
        subject=given.subject,
        principals=given.principals,
        scopes=frozenset({READ}),
    )
    # Nobody sends credentials here: keys of tokens are not fetched.
    access = {"tokens": TokenSettings(), "development": DevelopmentSettings()}
    service = settings.service.model_copy(update=access)
    asyncio.run(_serve(Engine.open(settings.model_copy(update={"service": service})), identity))


async def _serve(engine: Engine, identity: Identity) -> None:
    async with AsyncEngine(engine) as shared:
        # Beside the greeting, which clients do not wait long for.
        warming = asyncio.create_task(_warm_up(shared, engine))
        await Server(create_service(shared), lambda _: identity).run_stdio_async()
        # It ends already: a client that does not wait would leave the embedded server behind.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        warming.cancel()


async def _warm_up(shared: AsyncEngine, engine: Engine) -> None:
    try:
        await shared.run(engine.warm_up)
    except KosmosError as error:
        logger.warning("the models are not there, and questions will fail: %s", error)
