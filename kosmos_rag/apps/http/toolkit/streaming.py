"""Answers as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

A stream has a thread of its own and no database connection. It ends when the client disconnects or the service stops.
"""

import asyncio
import contextvars
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kosmos_rag.apps.errors import Overloaded
from kosmos_rag.apps.http.toolkit.errors import problem_document, public_detail, to_problem
from kosmos_rag.apps.problem_details import Problem
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources
from kosmos_rag.core.types.serialize import to_dict
from kosmos_rag.engine.answers import AnswerStream

MEDIA_TYPE = "text/event-stream"
_STOPPING = "the service is stopping; ask again"

logger = logging.getLogger("kosmos_rag.apps.http")

ERROR_STATUS = "kosmos_rag.error_status"
"""Key in a request's scope for the HTTP status of the error that ended its stream; the request counts with it."""

R = TypeVar("R")
Item = AnswerEvent | Exception | None
"""Passed from the thread of a stream to the event loop; None marks the end."""
EncodeItem = Callable[[AnswerEvent | Exception], Sequence[bytes]]
"""Encodes a part of an answer, or the error that ended it."""


class Streams:
    """Limits concurrent streams to `service.max_streams`, and ends them when the service stops.

    One tenant may have all of them. A stream may last for minutes, so a tenant below its share gets more; see
    `has_room`.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._limit = settings.max_streams
        self._heartbeat_s = settings.heartbeat_s
        self._threads = ThreadPoolExecutor(max_workers=2 * settings.max_streams, thread_name_prefix="kosmos-rag-stream")
        self._open: set[AnswerEventStream] = set()
        self._reserved: Counter[str] = Counter()
        self._stopped = False

    @property
    def in_flight(self) -> int:
        """Number of reserved streams, including those whose search still runs."""
        return self._reserved.total()

    def reserve(self, tenant: str) -> None:
        """Reserve one stream.

        Raises Overloaded at the limit, or while the service stops.
        """
        if self._stopped:
            raise Overloaded(_STOPPING)
        if not has_room(self._reserved, tenant, self._limit):
            raise Overloaded(f"{self.in_flight} of {self._limit} answers are being streamed already; try again")
        self._reserved[tenant] += 1

    def release(self, tenant: str) -> None:
        """Release a reserved stream."""
        self._reserved[tenant] -= 1
        self._reserved = +self._reserved  # without tenants that have none

    def stop(self) -> None:
        """End every stream with an error event, and refuse new ones."""
        self._stopped = True
        for events in self._open:
            events.fail(Overloaded(_STOPPING))

    def close(self) -> None:
        """Shut down the threads without waiting for them."""
        self._threads.shutdown(wait=False)

    def start(self, stream: AnswerStream, tenant: str) -> "AnswerEventStream":
        """Read an answer in a thread and return its events.

        The reservation is released when the thread ends.
        """
        events = AnswerEventStream(stream, heartbeat_s=self._heartbeat_s)
        self._open.add(events)
        if self._stopped:
            events.fail(Overloaded(_STOPPING))

        def release(_: asyncio.Future[None]) -> None:
            self._open.discard(events)
            self.release(tenant)

        # In the caller's context, as `AsyncEngine.run` does: log lines of the thread carry the request's ids.
        context = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._threads, context.run, _read_answer, stream, events.put).add_done_callback(release)
        return events


def has_room(reserved: Counter[str], tenant: str, limit: int) -> bool:
    """Whether a tenant may reserve one more of `limit` places.

    Places are used for long. Beyond the limit only a tenant below its share of the limit may, so that tenants that came
    first shut out no other; all have fewer than twice the limit.
    """
    total, tenants = reserved.total(), len({*reserved, tenant})
    return total < limit or (reserved[tenant] < limit // tenants and total < 2 * limit)


class AnswerEventStream:
    """The events of one answer as bytes.

    A comment is sent as heartbeat while there is no event.
    """

    def __init__(self, stream: AnswerStream, *, heartbeat_s: float) -> None:
        self._stream = stream
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._failure: Exception | None = None
        self.status: int | None = None
        """HTTP status of the error that ended the events; the response itself has started with 200."""

    def put(self, item: Item) -> None:
        """Add an item. Thread-safe."""
        with suppress(RuntimeError):  # the event loop is closed, and there is no reader
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    def fail(self, error: Exception) -> None:
        """Make an error the next event and the last one.

        Items that were not sent yet are dropped.
        """
        self._failure = error
        self._items.put_nowait(error)

    def close(self) -> None:
        """Cancel the answer and its request to a language model.

        After the end it does nothing.
        """
        self._stream.close()

    async def encode(self, encode_item: EncodeItem) -> AsyncIterator[bytes]:
        """Yield the encoded events; an error is the last one."""
        while (item := await self._next()) is not None:
            if isinstance(item, bytes):
                yield item
                continue
            if isinstance(item, Exception):
                self.status = to_problem(item).status
            for event in encode_item(item):
                yield event
            if isinstance(item, Exception):
                return

    async def answer(self, receive: Receive) -> Answer | None:
        """Wait for the complete answer; None where the client disconnects first.

        Raises what the answer raises.
        """
        return await _cancel_on_disconnect(self._complete(), receive, self)

    async def _complete(self) -> Answer:
        while True:
            item = await self._items.get()
            if self._failure is not None:
                raise self._failure
            if isinstance(item, AnswerDone):
                return item.answer
            if isinstance(item, Exception):
                raise item

    async def _next(self) -> Item | bytes:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                item = await self._items.get()
                return self._failure or item
        except TimeoutError:
            return b": still here\n\n"


def _read_answer(stream: AnswerStream, put_item: Callable[[Item], None]) -> None:
    try:
        for event in stream:
            put_item(event)
        put_item(None)
    except Exception as error:  # noqa: BLE001 — passed on to the reader, which logs or returns it
        put_item(error)


def report_early_end(error: Exception) -> Problem:
    """Return the problem of an answer that ended early; log server errors."""
    problem = to_problem(error)
    if problem.status >= 500:
        logger.warning(
            "an answer ended early: %s", problem.name,
            exc_info=error if problem.name == "internal" else None,
            extra={"action": "answer_ended_early", "texts": {"error": str(error)}},
        )  # fmt: skip
    return problem


def _encode_item(item: AnswerEvent | Exception, *, warning: str | None, explain: bool) -> list[bytes]:
    if isinstance(item, Exception):
        problem = report_early_end(item)
        return [format_event("error", problem_document(problem, public_detail(item, problem)))]
    if isinstance(item, AnswerSources):
        sources = to_dict(item, explain=explain)
        return [format_event("sources", sources | {"warnings": sources["warnings"] + ([warning] if warning else [])})]
    if isinstance(item, AnswerPiece):
        return [format_event("token", {"text": item.text})]
    answer = to_dict(item.answer, explain=explain)
    del answer["context"]  # the first event has it
    cited = {name: answer.pop(name) for name in ("sentences", "report")}
    return [format_event("citations", cited), format_event("done", answer)]


def format_event(name: str, data: Mapping[str, Any]) -> bytes:
    """Encode an event.

    Texts of documents and models may have characters without an encoding, which become `?`.
    """
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


class EventStreamResponse(Response):
    """Sends events until they end or the client disconnects."""

    def __init__(
        self,
        events: AnswerEventStream,
        *,
        warning: str | None = None,
        explain: bool = False,
        encode_item: EncodeItem | None = None,
    ) -> None:
        """Prepare the response.

        Args:
            warning: Added to the warnings of the sources.
            explain: Include scores and plans; see `to_dict`.
            encode_item: Encodes the events of another interface, instead of all these.
        """
        # x-accel-buffering: proxies must not buffer the stream.
        super().__init__(media_type=MEDIA_TYPE, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._encode_item = encode_item or partial(_encode_item, warning=warning, explain=explain)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        await _cancel_on_disconnect(self._send(send), receive, self._events)
        if self._events.status is not None:
            scope[ERROR_STATUS] = self._events.status

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._events.encode(self._encode_item):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _cancel_on_disconnect(work: Coroutine[Any, Any, R], receive: Receive, events: AnswerEventStream) -> R | None:
    """Run work for a client and return its result.

    When the client disconnects, cancel the work and the answer, and return None.
    """
    working = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        events.close()
        working.cancel()
        disconnected.cancel()
        await asyncio.gather(working, disconnected, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
