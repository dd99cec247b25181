"""The synchronous and the asynchronous client; both have the same calls."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

import httpx

from kosmos_rag.apps.client import calls
from kosmos_rag.apps.client.events import EventDecoder
from kosmos_rag.apps.client.transport import Call, Request, retry_steps, translate_errors
from kosmos_rag.apps.client.wings import load_client_calls
from kosmos_rag.core.types import AnswerEvent

P = ParamSpec("P")
T = TypeVar("T")


class _Method(Generic[P, T]):
    """Descriptor of a call.

    It is a method of `Client`, and a coroutine method of `AsyncClient`.
    """

    def __init__(self, define: Callable[P, Call[T]]) -> None:
        self._define = define
        self.__doc__ = define.__doc__

    @overload
    def __get__(self, client: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type[Any]) -> Callable[P, Awaitable[T]]: ...

    def __get__(self, client: "Client | AsyncClient | None", owner: type[Any]) -> Any:
        if client is None:
            return self

        @wraps(self._define)
        def method(*args: P.args, **kwargs: P.kwargs) -> T | Awaitable[T]:
            return client.run(self._define(*args, **kwargs))

        return method


class _Stream(Generic[P]):
    """Descriptor of a streamed call: an iterator of events."""

    def __init__(self, define: Callable[P, Request]) -> None:
        self._define = define
        self.__doc__ = define.__doc__

    @overload
    def __get__(self, client: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type[Any]) -> Callable[P, Iterator[AnswerEvent]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type[Any]) -> Callable[P, AsyncIterator[AnswerEvent]]: ...

    def __get__(self, client: "Client | AsyncClient | None", owner: type[Any]) -> Any:
        if client is None:
            return self

        @wraps(self._define)
        def method(*args: P.args, **kwargs: P.kwargs) -> Iterator[AnswerEvent] | AsyncIterator[AnswerEvent]:
            return client.stream(self._define(*args, **kwargs))

        return method


class _Calls:
    """The calls of both clients."""

    search = _Method(calls.search)
    context = _Method(calls.context)
    answer = _Method(calls.answer)
    stream_answer = _Stream(calls.stream_answer)
    upload = _Method(calls.upload)
    documents = _Method(calls.documents)
    document = _Method(calls.document)
    rectangles = _Method(calls.rectangles)
    update_metadata = _Method(calls.update_metadata)
    delete_document = _Method(calls.delete_document)
    jobs = _Method(calls.jobs)
    job = _Method(calls.job)
    cancel_job = _Method(calls.cancel_job)
    retry_job = _Method(calls.retry_job)
    events = _Method(calls.events)
    document_access = _Method(calls.document_access)
    reader_access = _Method(calls.reader_access)
    collections = _Method(calls.collections)
    collection = _Method(calls.collection)
    create_collection = _Method(calls.create_collection)
    set_preset = _Method(calls.set_preset)
    delete_collection = _Method(calls.delete_collection)
    feedback = _Method(calls.feedback)
    stats = _Method(calls.stats)
    reload = _Method(calls.reload)

    def __getattr__(self, name: str) -> Any:
        """Return a method that a wing adds, such as `ground_schema`. Raises AttributeError."""
        define = load_client_calls().get(name)
        if define is None:
            raise AttributeError(f"{type(self).__name__} has no call {name!r}")
        method: Any = _Method(define).__get__(self, type(self))  # type: ignore[call-overload]
        return method


def _options(url: str, credentials: str | None, timeout_s: float) -> dict[str, Any]:
    headers = {} if credentials is None else {"authorization": f"Bearer {credentials}"}
    return {"base_url": url, "headers": headers, "timeout": timeout_s}


class Client(_Calls):
    """A client of the service. Thread-safe.

    Close it, or use it as a context manager.

    with Client("https://kosmos.example", "kosmos.acme.…") as client:
        print(client.answer("How many days of leave do I have?").text)

    Every call raises the error of the problem that the service returns, a KosmosError, and ServiceUnreachable where no
    service responds. A 429 or 503 with Retry-After is retried.
    """

    def __init__(self, url: str, credentials: str | None = None, *, timeout_s: float = 60.0, retries: int = 3) -> None:
        """Create a client.

        Args:
            url: address of the service.
            credentials: an API key or a token.
            timeout_s: limit of each wait on the socket, not of a whole response.
            retries: how often to retry a 429 or 503.
        """
        self._http = httpx.Client(**_options(url, credentials, timeout_s))
        self._retries = retries

    def run(self, call: Call[T]) -> T:
        """Send a call of `calls.py` and return its parsed response."""
        return call.parse(self._send(call, stream=False))

    def stream(self, request: Request) -> Iterator[AnswerEvent]:
        """Send a request and yield the events of its answer.

        Closing the iterator cancels the answer.
        """
        response = self._send(request, stream=True)
        decoder = EventDecoder()
        try:
            with translate_errors(self._http.base_url):
                for data in response.iter_bytes():
                    yield from decoder.feed(data)
        finally:
            response.close()
        decoder.finish()

    def _send(self, request: Request, *, stream: bool) -> httpx.Response:
        steps = retry_steps(request.build(self._http), retries=self._retries)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._perform(step, stream=stream))
        except StopIteration as end:
            response: httpx.Response = end.value
            return response

    def _perform(self, step: httpx.Request | float, *, stream: bool) -> httpx.Response | None:
        if isinstance(step, float):
            time.sleep(step)
            return None
        with translate_errors(self._http.base_url):
            response = self._http.send(step, stream=stream)
            if not response.is_success:
                response.read()
            return response

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Calls):
    """The client for an event loop.

    Every call is awaited; iterate `stream_answer` with `async for`.

    async with AsyncClient("https://kosmos.example", "kosmos.acme.…") as client:
        print((await client.answer("How many days of leave do I have?")).text)
    """

    def __init__(self, url: str, credentials: str | None = None, *, timeout_s: float = 60.0, retries: int = 3) -> None:
        """Create a client; the parameters are those of `Client`."""
        self._http = httpx.AsyncClient(**_options(url, credentials, timeout_s))
        self._retries = retries

    async def run(self, call: Call[T]) -> T:
        """Send a call of `calls.py` and return its parsed response."""
        return call.parse(await self._send(call, stream=False))

    async def stream(self, request: Request) -> AsyncIterator[AnswerEvent]:
        """Send a request and yield the events of its answer.

        Closing the iterator cancels the answer.
        """
        response = await self._send(request, stream=True)
        decoder = EventDecoder()
        try:
            with translate_errors(self._http.base_url):
                async for data in response.aiter_bytes():
                    for event in decoder.feed(data):
                        yield event
        finally:
            await response.aclose()
        decoder.finish()

    async def _send(self, request: Request, *, stream: bool) -> httpx.Response:
        steps = retry_steps(request.build(self._http), retries=self._retries)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._perform(step, stream=stream))
        except StopIteration as end:
            response: httpx.Response = end.value
            return response

    async def _perform(self, step: httpx.Request | float, *, stream: bool) -> httpx.Response | None:
        if isinstance(step, float):
            await asyncio.sleep(step)
            return None
        with translate_errors(self._http.base_url):
            response = await self._http.send(step, stream=stream)
            if not response.is_success:
                await response.aread()
            return response

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
