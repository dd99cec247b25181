"""Work that waits for a network, in one thread for all of it, so that any of it can be given up at any moment.

The timeouts of a blocking HTTP client bound each step and not their sum, and nothing can end its waiting from outside.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

from kosmos_rag.core.errors import ModelError

Write = Callable[[str], None]
Work = Callable[[Write], Coroutine[Any, Any, bool]]
"""Writes pieces as they come, and tells whether more would have come but for their number."""

_END = object()
_GIVEN_UP = "the answer of the language model was given up: ask again"


class Background:
    """An event loop in a thread of its own, started with the first work. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, work: Work) -> "Pieces":
        """Start work and return what it will write. Raises ModelError where this was closed."""
        with self._lock:
            if self._closed:
                raise ModelError("the language model is closed: open another engine")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                # A daemon, so that a hanging server does not keep the process from ending.
                self._thread = threading.Thread(target=self._loop.run_forever, name="kosmos-rag-chat", daemon=True)
                self._thread.start()
            queue: SimpleQueue[object] = SimpleQueue()
            return Pieces(queue, asyncio.run_coroutine_threadsafe(work(queue.put), self._loop))

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Give up all work, do a last thing, and end the thread. Again, it does nothing."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_ended(last), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Pieces:
    """What work in the background writes, piece by piece; `close` gives the work up, from any thread."""

    def __init__(self, queue: SimpleQueue[object], work: "Future[bool]") -> None:
        self._queue = queue
        self._work = work
        work.add_done_callback(lambda done: queue.put(_end_of(done)))

    def __iter__(self) -> "Pieces":
        return self

    def __next__(self) -> str:
        item = self._queue.get()
        if isinstance(item, str):
            return item
        self._queue.put(item)  # whoever asks again gets the same
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    @property
    def cut(self) -> bool:
        """Whether it has come to its end because it may not be longer."""
        work = self._work
        return work.done() and not work.cancelled() and work.exception() is None and work.result()

    def close(self) -> None:
        """Give up the rest."""
        self._work.cancel()

    def __del__(self) -> None:
        self.close()


def _end_of(work: "Future[bool]") -> object:
    return ModelError(_GIVEN_UP) if work.cancelled() else work.exception() or _END


async def _ended(last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await last()
