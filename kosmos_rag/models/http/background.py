"""Requests and text streams on one event loop in the background.

The timeouts of a blocking HTTP client bound each read and not their sum, and no other thread can end its wait. A task
of an event loop has a total deadline and can be cancelled at any moment.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from queue import SimpleQueue
from typing import Any, TypeVar

from kosmos_rag.core.errors import ModelError, ModelUnavailable

Write = Callable[[str], None]
Producer = Callable[[Write], Coroutine[Any, Any, bool]]
"""Writes the pieces of a text as they come. Returns whether the text was truncated."""

T = TypeVar("T")
_END = object()
_CANCELLED = "the answer of the model was cancelled: ask again"


class BackgroundLoop:
    """An event loop in a background thread. Thread-safe.

    It starts with the first request.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def start(self, producer: Producer) -> "BackgroundStream":
        """Start a producer and return its text. Raises ModelError after `close`."""
        queue: SimpleQueue[object] = SimpleQueue()
        return BackgroundStream(queue, self._submit(producer(queue.put)))

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Wait for a task and return its result. Raises ModelError after `close`."""
        future = self._submit(task)
        try:
            return future.result()
        except CancelledError:
            raise ModelError(_CANCELLED) from None
        finally:
            future.cancel()  # where the waiting thread was interrupted

    def _submit(self, task: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._lock:
            if self._closed:
                task.close()
                raise ModelError("the model is closed: open another engine")
            if self._loop is None:
                loop = asyncio.new_event_loop()
                # A daemon: a server that hangs must not keep the process from ending.
                thread = threading.Thread(target=loop.run_forever, name="kosmos-rag-models", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    task.close()
                    loop.close()
                    raise ModelUnavailable(f"no model can be asked: {error}; raise the limit of threads") from error
                # A loop that never runs would keep its callers waiting.
                self._loop, self._thread = loop, thread
            return asyncio.run_coroutine_threadsafe(task, self._loop)

    def close(self, cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel all requests, run `cleanup` on the loop, and end the thread.

        A second call does nothing.
        """
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(cleanup), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class BackgroundStream:
    """The pieces of a text as its producer writes them.

    `close` cancels the producer, from any thread.
    """

    def __init__(self, queue: SimpleQueue[object], task: "Future[bool]") -> None:
        self._queue = queue
        self._task = task
        task.add_done_callback(lambda task_done: queue.put(_get_end_marker(task_done)))

    def __iter__(self) -> "BackgroundStream":
        return self

    def __next__(self) -> str:
        item = self._queue.get()
        if isinstance(item, str):
            return item
        self._queue.put(item)  # the end stays: every later call gets it too
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    @property
    def truncated(self) -> bool:
        """Whether the text has ended because of its maximum length."""
        task = self._task
        return task.done() and not task.cancelled() and task.exception() is None and task.result()

    def on_end(self, callback: Callable[["Future[bool]"], None]) -> None:
        """Call back when the producer has ended, failed or been cancelled.

        From the producer's thread.
        """
        self._task.add_done_callback(callback)

    def close(self) -> None:
        """Cancel the rest."""
        self._task.cancel()

    def __del__(self) -> None:
        self.close()


def _get_end_marker(task: "Future[bool]") -> object:
    return ModelError(_CANCELLED) if task.cancelled() else task.exception() or _END


async def _cancel_all(cleanup: Callable[[], Coroutine[Any, Any, None]]) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await cleanup()
