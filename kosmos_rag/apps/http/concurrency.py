"""Limits the calls of the library that run at once."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import Overloaded, TimedOut
from kosmos_rag.engine.aio import AsyncEngine

P = ParamSpec("P")
R = TypeVar("R")


class ConcurrencyLimiter:
    """Runs calls of the library in threads, at most `database.pool_size` at once: each needs a connection.

    Callers wait at most `service.queue_timeout_s` to start and `service.timeout_s` for the result.
    """

    def __init__(self, engine: AsyncEngine, settings: Settings) -> None:
        self._engine = engine
        self._queue_timeout_s = settings.service.queue_timeout_s
        self._timeout_s = settings.service.timeout_s
        self._free = asyncio.Semaphore(settings.database.pool_size)
        self._limit = settings.database.pool_size
        self._in_flight = 0

    @property
    def in_flight(self) -> int:
        """Number of calls that run."""
        return self._in_flight

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call and return its value, or raise its error.

        A call whose caller has disconnected keeps its slot until it ends: a thread cannot be stopped.

        Raises:
            Overloaded: no slot was free within `service.queue_timeout_s`.
            TimedOut: the call took longer than `service.timeout_s`.
        """
        try:
            async with asyncio.timeout(self._queue_timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise Overloaded(
                f"the service is at capacity: {self._limit} calls in flight for {self._queue_timeout_s:g} seconds; "
                "try again"
            ) from None
        self._in_flight += 1
        task = asyncio.ensure_future(self._engine.run(call, *args, **kwargs))
        task.add_done_callback(self._release)
        try:
            async with asyncio.timeout(self._timeout_s) as deadline:
                return await asyncio.shield(task)
        except TimeoutError:
            if deadline.expired():
                raise TimedOut(f"the call took longer than {self._timeout_s:g} seconds; request less") from None
            raise

    def _release(self, _: asyncio.Future[R]) -> None:
        self._in_flight -= 1
        self._free.release()
