"""Over standard input and output, for one reader: whoever starts the process says who that is."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO

from kosmos_rag.apps.auth.api_keys import READ
from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.app import create_service
from kosmos_rag.apps.mcp.server import Server
from kosmos_rag.core.config import Settings, TokenSettings
from kosmos_rag.core.config.service import DevelopmentSettings
from kosmos_rag.core.errors import KosmosError
from kosmos_rag.engine.aio import AsyncEngine
from kosmos_rag.engine.engine import Engine
from kosmos_rag.storage.tenants import validate_name

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_PIECE = 1 << 16

logger = logging.getLogger("kosmos_rag.apps.mcp")


def serve(settings: Settings) -> None:
    """Serve until standard input ends, by itself or by a signal. Raises ConfigError, RequestError, DatabaseError."""
    given = settings.mcp
    identity = Identity(
        tenant=validate_name("tenant", given.tenant),
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
        with _ended_by_signals():
            await Server(create_service(shared), lambda _: identity).run_stdio_async()
        warming.cancel()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have a signal end standard input, whose reading nothing else can interrupt; afterwards signals are ignored.

    A process that a signal ends midway would leave the embedded server behind.
    """
    given = os.dup(0)
    reading, writing = os.pipe()
    os.dup2(reading, 0)
    os.close(reading)
    pipe = FileIO(writing, "wb")
    threading.Thread(target=_copy, args=(given, pipe), name="kosmos-rag-input", daemon=True).start()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, pipe.close)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


def _copy(given: int, pipe: FileIO) -> None:
    with suppress(OSError, ValueError), pipe:  # a signal closes the pipe meanwhile
        while piece := memoryview(os.read(given, _PIECE)):
            while piece:
                piece = piece[pipe.write(piece) :]


async def _warm_up(shared: AsyncEngine, engine: Engine) -> None:
    try:
        await shared.run(engine.warm_up)
    except KosmosError as error:
        logger.warning(
            "the models are not there, and questions will fail: %s", error, extra={"action": "models_missing"}
        )
