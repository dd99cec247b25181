"""The asynchronous engine: the synchronous one in a pool of threads."""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from kosmos_rag.core.config import Settings
from kosmos_rag.engine.components import EngineComponents
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant

P = ParamSpec("P")
R = TypeVar("R")


class AsyncEngine:
    """Runs an engine's calls off the event loop.

    It runs as many at once as the engine has connections.

    async with AsyncEngine.open() as engine:
        acme = engine.tenant("acme")
        result = await engine.run(acme.search, "How is churn calculated?", k=5)
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(
            max_workers=engine.settings.database.pool_size, thread_name_prefix="kosmos-rag"
        )

    @classmethod
    def open(cls, config: Settings | str | Path | None = None) -> Self:
        """Open an engine; see `Engine.open`."""
        return cls(Engine.open(config))

    @property
    def settings(self) -> Settings:
        """The engine's settings."""
        return self._engine.settings

    @property
    def parts(self) -> EngineComponents:
        """The components of the engine, for processes of this package."""
        return self._engine.parts

    def tenant(self, name: str, **options: Any) -> Tenant:
        """Return a tenant's scope, whose methods are to be called through `run`."""
        return self._engine.tenant(name, **options)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method of the scope off the event loop.

        Returns its value or raises its error.
        """
        # In the caller's context: its log lines carry the id of the request.
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(call, *args, **kwargs)
        )

    async def close(self) -> None:
        """Wait for running calls, then close the engine."""
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
