"""MCP over standard input and output, for one reader.

The configuration names the reader.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from mcp.server.stdio import stdio_server

from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.apps.mcp.server import create_server
from kosmos_rag.core.config import ServiceSettings, Settings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.core.names import validate_name
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.engine.api_keys import READ
from kosmos_rag.engine.engine import Engine

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_CHUNK_BYTES = 1 << 16

logger = logging.getLogger("kosmos_rag.apps.mcp")


def serve(settings: Settings) -> None:
    """Serve until standard input ends or a signal arrives.

    Raises ConfigError, RequestError, DatabaseError.
    """
    reader = settings.mcp
    identity = Identity(
        tenant=validate_name("tenant", reader.tenant),
        subject=reader.subject,
        principals=reader.principals,
        scopes=frozenset({READ}),
    )
    # No credentials are sent here: the keys of tokens are not fetched.
    default = ServiceSettings()
    no_authentication = {"tokens": default.tokens, "openid": default.openid, "development": default.development}
    service = settings.service.model_copy(update=no_authentication)
    asyncio.run(_serve(Engine.open(settings.model_copy(update={"service": service})), identity))


async def _serve(engine: Engine, identity: Identity) -> None:
    async with AsyncEngine(engine) as async_engine:
        # In the background: clients do not wait long for the handshake.
        warming = asyncio.create_task(_warm_up(async_engine, engine))
        with _close_on_signals():
            server = create_server(create_service(async_engine, console=False), lambda _: identity)
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
        warming.cancel()


@contextmanager
def _close_on_signals() -> Iterator[None]:
    """Close standard input at a signal: nothing else interrupts a read.

    Signals are ignored afterwards. A process that a signal kills would leave the embedded server running.
    """
    stdin = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    pipe = FileIO(writing, "wb")
    threading.Thread(target=_copy, args=(stdin, pipe), name="kosmos-rag-input", daemon=True).start()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, pipe.close)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


def _copy(stdin: int, pipe: FileIO) -> None:
    with suppress(OSError, ValueError), pipe:  # a signal may close the pipe
        while chunk := memoryview(os.read(stdin, _CHUNK_BYTES)):
            while chunk:
                chunk = chunk[pipe.write(chunk) :]


async def _warm_up(async_engine: AsyncEngine, engine: Engine) -> None:
    try:
        await async_engine.run(engine.warm_up)
    except KosmosError as error:
        logger.warning(
            "the models are not available, and questions will fail: %s", error, extra={"action": "models_missing"}
        )
