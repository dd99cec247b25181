"""Turns at the engine: as many calls at once as it has connections, and no one waits for long."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import Overloaded, TimedOut
from kosmos_rag.engine.aio import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")


class Turns:
    """Runs calls of the library off the event loop, each with a connection to be had."""

    def __init__(self, engine: AsyncEngine, settings: Settings) -> None:
        self._engine = engine
        self._wait_s = settings.service.queue_timeout_s
        self._timeout_s = settings.service.timeout_s
        self._free = asyncio.Semaphore(settings.database.pool_size)
        self._limit = settings.database.pool_size
        self._taken = 0

    @property
    def taken(self) -> int:
        """How many are being worked on."""
        return self._taken

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call and return its value, or raise its error.

        Raises Overloaded after `service.queue_timeout_s` in the queue, TimedOut where the call takes longer than
        `service.timeout_s`. A call that nobody waits for any more keeps its turn to its end: its thread is taken.
        """
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(f"all {self._limit} turns were taken for {self._wait_s:g} seconds; try again") from None
        self._taken += 1
        task = asyncio.ensure_future(self._engine.run(call, *args, **kwargs))
        task.add_done_callback(self._give_back)
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                return await asyncio.shield(task)
        except TimeoutError:
            if limit.expired():
                raise TimedOut(f"it took longer than {self._timeout_s:g} seconds; ask for less") from None
            raise

    def _give_back(self, _: asyncio.Future[R]) -> None:
        self._taken -= 1
        self._free.release()
