"""The asynchronous engine: the synchronous one in a pool of threads."""

import asyncio
import contextvars
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, AnswerEvent
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant

P = ParamSpec("P")
R = TypeVar("R")


class AsyncEngine:
    """Runs an engine's calls off the event loop.

    It runs as many at once as the engine has connections. A call whose task is cancelled is dropped if it waits for a
    thread; one that runs continues until it is done, and its result is dropped.

    async with AsyncEngine.open() as engine:
        acme = engine.tenant("acme")
        result = await acme.search("How is churn calculated?", k=5)
        async for event in acme.stream_answer("How is churn calculated?"):
            ...
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(
            max_workers=engine.settings.database.pool_size, thread_name_prefix="kosmos-rag"
        )
        self._closing: asyncio.Future[None] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, config: Settings | str | Path | None = None) -> AsyncIterator[Self]:
        """Open an engine off the event loop; close it at the end.

        Takes and raises what `Engine.open` does. `AsyncEngine(engine)` takes one that is open.
        """
        opener = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kosmos-rag-open")
        opening = opener.submit(Engine.open, config)
        opener.shutdown(wait=False)
        try:
            engine = await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_opened)  # a thread cannot be stopped: nobody gets its engine
            raise
        async with cls(engine) as opened:
            yield opened

    @property
    def settings(self) -> Settings:
        """The engine's settings."""
        return self._engine.settings

    @property
    def sync_engine(self) -> Engine:
        """The engine, whose calls block; `run` calls them off the event loop."""
        return self._engine

    def tenant(
        self,
        name: str,
        *,
        principals: Sequence[str] = (EVERYONE,),
        collection: str | None = None,
        subject: str | None = None,
        read_your_writes: bool = False,
    ) -> "AsyncTenant":
        """Return a tenant, or one of its collections, for a reader.

        Raises as `Engine.tenant`.

        Args:
            principals: What the reader holds: a document is visible with at least one principal of its ACL.
            collection: None for all collections.
            subject: Id or name of the reader for the audit log, as the caller authenticated it.
            read_your_writes: Whether the primary answers, and no replica of `database.replica_urls`.
        """
        scope = self._engine.tenant(
            name, principals=principals, collection=collection, subject=subject, read_your_writes=read_your_writes
        )
        return AsyncTenant(self, scope)

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call off the event loop.

        Returns its value or raises its error; raises RequestError after `close`.
        """
        if self._closing is not None:
            raise RequestError("the engine is closed; open another one")
        # In the caller's context: its log lines carry the id of the request.
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(call, *args, **kwargs)
        )

    async def close(self) -> None:
        """Wait for running calls, then close the engine.

        It is closed even if the caller is cancelled meanwhile.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().run_in_executor(None, self._close)
        await asyncio.shield(self._closing)

    def _close(self) -> None:
        self._threads.shutdown()
        self._engine.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _close_opened(opening: Future[Engine]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _coroutine(
    method: Callable[Concatenate[Tenant, P], R],
) -> Callable[Concatenate["AsyncTenant", P], Coroutine[Any, Any, R]]:
    """Return a method of `Tenant` as a method of `AsyncTenant`."""

    @wraps(method)
    async def call(self: "AsyncTenant", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.engine.run(method, self.sync_tenant, *args, **kwargs)

    return call


def _async_iterator(
    method: Callable[Concatenate[Tenant, P], AnswerStream],
) -> Callable[Concatenate["AsyncTenant", P], AsyncIterator[AnswerEvent]]:
    """Return a method that streams an answer as an asynchronous iterator."""

    @wraps(method)
    async def iterate(self: "AsyncTenant", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[AnswerEvent]:
        stream = await self.engine.run(method, self.sync_tenant, *args, **kwargs)
        # Not in the engine's threads: an answer may take a language model minutes, and holds no connection.
        with stream:
            while (event := await asyncio.to_thread(_next_event, stream)) is not None:
                yield event

    return iterate


def _next_event(stream: AnswerStream) -> AnswerEvent | None:
    return next(stream, None)


class AsyncTenant:
    """One tenant as one reader sees it, for an event loop.

    Its methods are those of `Tenant`, awaited. A stream of an answer is an asynchronous iterator; leaving or cancelling
    it cancels the answer. What else a tenant has (collections, audit log, jobs, indexes) is called by
    `await engine.run(tenant.sync_tenant.jobs.runs)`.
    """

    def __init__(self, engine: AsyncEngine, tenant: Tenant) -> None:
        self.engine = engine
        self.sync_tenant = tenant

    @property
    def name(self) -> str:
        """The tenant's name."""
        return self.sync_tenant.name

    @property
    def id(self) -> uuid.UUID:
        """The tenant's id, which follows from its name."""
        return self.sync_tenant.id

    ingest = _coroutine(Tenant.ingest)
    list_unreadable = _coroutine(Tenant.list_unreadable)
    sync_permissions = _coroutine(Tenant.sync_permissions)
    update_metadata = _coroutine(Tenant.update_metadata)
    delete = _coroutine(Tenant.delete)
    erase = _coroutine(Tenant.erase)
    erase_all = _coroutine(Tenant.erase_all)
    sources = _coroutine(Tenant.sources)
    documents = _coroutine(Tenant.documents)
    last_changes = _coroutine(Tenant.last_changes)
    department_totals = _coroutine(Tenant.department_totals)
    count_documents = _coroutine(Tenant.count_documents)
    document_texts = _coroutine(Tenant.document_texts)
    texts = _coroutine(Tenant.texts)
    read_lines = _coroutine(Tenant.read_lines)
    read_original = _coroutine(Tenant.read_original)
    outline = _coroutine(Tenant.outline)
    rectangles = _coroutine(Tenant.rectangles)
    render_page = _coroutine(Tenant.render_page)
    sections = _coroutine(Tenant.sections)
    search = _coroutine(Tenant.search)
    context = _coroutine(Tenant.context)
    answer = _coroutine(Tenant.answer)
    stream_answer = _async_iterator(Tenant.stream_answer)
    embed = _coroutine(Tenant.embed)
    embed_query = _coroutine(Tenant.embed_query)
    count_tokens = _coroutine(Tenant.count_tokens)
    build_prompt = _coroutine(Tenant.build_prompt)
    check_citations = _coroutine(Tenant.check_citations)
    check_quotes = _coroutine(Tenant.check_quotes)
    feedback = _coroutine(Tenant.feedback)
