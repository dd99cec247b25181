"""Answers as server-sent events: a thread for each, no connection to the database, and an end when the client goes."""

import asyncio
import contextvars
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kosmos_rag.answering.stream import AnswerStream
from kosmos_rag.apps.http.errors import document, problem_of, told
from kosmos_rag.apps.http.schemas import AnswerView, SourcesView
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import Overloaded
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources

MEDIA_TYPE = "text/event-stream"
_STOPPING = "the service is stopping; ask again"

logger = logging.getLogger("kosmos_rag.apps.http")

ENDED_WITH = "kosmos_rag.ended_with"
"""Where a request's scope has the status of the error that its stream ended with: it is counted by that."""

R = TypeVar("R")
Item = AnswerEvent | Exception | None
"""What a thread hands over; None is its end."""
Ending = Callable[[Answer], bytes]
"""Makes one more event of the whole answer."""


class Streams:
    """Room for so many streams at once; what is on its way can be told to end."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._limit = settings.streams
        self._heartbeat_s = settings.heartbeat_s
        self._threads = ThreadPoolExecutor(max_workers=settings.streams, thread_name_prefix="kosmos-rag-stream")
        self._open: set[Flow] = set()
        self._reserved = 0
        self._ended = False

    @property
    def taken(self) -> int:
        """How many there are, those too whose evidence is still being looked for."""
        return self._reserved

    def reserve(self) -> None:
        """Take room for one. Raises Overloaded."""
        if self._ended:
            raise Overloaded(_STOPPING)
        if self._reserved >= self._limit:
            raise Overloaded(f"{self._limit} answers are being streamed already; try again")
        self._reserved += 1

    def give_back(self) -> None:
        """Free the room of one."""
        self._reserved -= 1

    def end(self) -> None:
        """Tell every stream to end with an error event, those too that have not begun: the service stops."""
        self._ended = True
        for flow in self._open:
            flow.end(Overloaded(_STOPPING))

    def close(self) -> None:
        """Let the threads go."""
        self._threads.shutdown(wait=False)

    def start(self, stream: AnswerStream) -> "Flow":
        """Let a thread wait for the events of an answer. The room that was reserved is freed when it has ended."""
        flow = Flow(stream, heartbeat_s=self._heartbeat_s)
        self._open.add(flow)
        if self._ended:
            flow.end(Overloaded(_STOPPING))

        def ended(_: asyncio.Future[None]) -> None:
            self._open.discard(flow)
            self.give_back()

        # In the caller's context, as `AsyncEngine.run` does: what the thread logs is told apart by the request.
        within = contextvars.copy_context()
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._threads, within.run, _pump, stream, flow.put).add_done_callback(ended)
        return flow


class Flow:
    """The events of one answer as bytes, and a comment where nothing comes for a while."""

    def __init__(self, stream: AnswerStream, *, heartbeat_s: float) -> None:
        self._stream = stream
        self._heartbeat_s = heartbeat_s
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._last: Exception | None = None
        self.status: int | None = None
        """That of the error which the events ended with: the response had begun with 200."""

    def put(self, item: Item) -> None:
        """Hand over what came. Safe from any thread."""
        with suppress(RuntimeError):  # the loop has ended, and nobody listens
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)

    def end(self, error: Exception) -> None:
        """Make an error the next event, before all that has come and was not sent yet."""
        self._last = error
        self._items.put_nowait(error)

    def close(self) -> None:
        """Give the answer up, and what a language model is asked; at the end it does no harm."""
        self._stream.close()

    async def events(self, *, note: str | None = None, ending: Ending | None = None) -> AsyncIterator[bytes]:
        """Yield the events as they are sent; an error is the last one. A note goes with the sources.

        What `ending` makes of the whole answer follows it.
        """
        while (item := await self._next()) is not None:
            if isinstance(item, bytes):
                yield item
                continue
            if isinstance(item, Exception):
                self.status = problem_of(item).status
            for event in _events_of(item, note):
                yield event
            if ending is not None and isinstance(item, AnswerDone):
                yield ending(item.answer)
            if isinstance(item, Exception):
                return

    async def answer(self, receive: Receive) -> Answer | None:
        """Wait for the whole answer; None where the client goes first. Raises what the answer raises."""
        return await _unless_gone(self._whole(), receive, self)

    async def _whole(self) -> Answer:
        while True:
            item = await self._items.get()
            if self._last is not None:
                raise self._last
            if isinstance(item, AnswerDone):
                return item.answer
            if isinstance(item, Exception):
                raise item

    async def _next(self) -> Item | bytes:
        try:
            async with asyncio.timeout(self._heartbeat_s):
                item = await self._items.get()
                return self._last or item
        except TimeoutError:
            return b": still here\n\n"


def _pump(stream: AnswerStream, put: Callable[[Item], None]) -> None:
    try:
        for event in stream:
            put(event)
        put(None)
    except Exception as error:  # noqa: BLE001 — handed over, and told or logged there
        put(error)


def _events_of(item: AnswerEvent | Exception, note: str | None) -> list[bytes]:
    if isinstance(item, Exception):
        problem = problem_of(item)
        if problem.status >= 500:
            logger.warning(
                "an answer ended early: %s", problem.name,
                exc_info=item if problem.name == "internal" else None,
                extra={"action": "answer_ended_early", "texts": {"error": str(item)}},
            )  # fmt: skip
        return [event_of("error", document(problem, told(item, problem)))]
    if isinstance(item, AnswerSources):
        view = SourcesView.of(item)
        return [
            event_of("sources", view.model_dump(mode="json") | {"warnings": view.warnings + ([note] if note else [])})
        ]
    if isinstance(item, AnswerPiece):
        return [event_of("token", {"text": item.text})]
    whole = AnswerView.of(item.answer).model_dump(mode="json")
    cited = {name: whole.pop(name) for name in ("sentences", "problems", "report")}
    return [event_of("citations", cited), event_of("done", {name: whole[name] for name in whole if name != "sources"})]


def event_of(name: str, data: Mapping[str, Any]) -> bytes:
    """Return an event as it is sent. Texts of senders and models may hold what has no encoding."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode(errors="replace")


class EventStream(Response):
    """The response that sends events until they end or the client goes, whichever is first."""

    def __init__(self, flow: Flow, *, note: str | None = None, ending: Ending | None = None) -> None:
        # Proxies must not collect what is meant to flow.
        super().__init__(media_type=MEDIA_TYPE, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._flow = flow
        self._note = note
        self._ending = ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        await _unless_gone(self._send(send), receive, self._flow)
        if self._flow.status is not None:
            scope[ENDED_WITH] = self._flow.status

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for event in self._flow.events(note=self._note, ending=self._ending):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _unless_gone(work: Coroutine[Any, Any, R], receive: Receive, flow: Flow) -> R | None:
    """Do work for a client, and give its answer up the moment the client goes: then there is no result."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        flow.close()
        working.cancel()
        gone.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
