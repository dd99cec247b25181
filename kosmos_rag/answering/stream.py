"""Stream an answer as events; any thread can cancel it."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Self

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import BoundedStream, TextStream
from kosmos_rag.core.telemetry import genai, tracing, usage
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources


class DeferredStream:
    """A text stream that starts on first read.

    Any thread can close it.
    """

    def __init__(self, start: Callable[[], TextStream]) -> None:
        self._start = start
        self._lock = threading.Lock()
        self._stream: TextStream | None = None
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        with self._lock:
            if self._closed:
                raise ModelError("the answer was cancelled: ask again")
            if self._stream is None:
                self._stream = self._start()
        return next(self._stream)

    @property
    def truncated(self) -> bool:
        """Whether the model stopped at its token limit."""
        return isinstance(self._stream, BoundedStream) and self._stream.truncated

    def close(self) -> None:
        """Cancel the rest of the stream."""
        with self._lock:
            self._closed = True
        if self._stream is not None:
            # A generator that another thread is running cannot be closed; it gets no further call.
            with suppress(ValueError):
                self._stream.close()


class AnswerStream:
    """Events of an answer: `AnswerSources`, then `AnswerPiece`s, last `AnswerDone`.

    The passages are read before the stream starts, so it holds no database connection. `close` cancels it from any
    thread, with the request to the language model; a thread that waits for an event gets a ModelError. Iteration raises
    ModelError, ModelUnavailable, and DatabaseError if the audit log cannot be written.
    """

    def __init__(
        self, sources: AnswerSources, events: Generator[AnswerEvent, None, None], pieces: DeferredStream
    ) -> None:
        self.sources = sources
        self._events = events
        self._pieces = pieces
        self._on_complete: Callable[[Answer], None] | None = None
        self._on_timing: Callable[[float, str], None] | None = None
        self._on_begin: Callable[[], None] | None = None
        self._account = usage.current_account()
        self._started_at = time.perf_counter()
        self._awaits_first_token = True

    def on_timing(self, callback: Callable[[float, str], None]) -> Self:
        """Set a callback for answer latency in seconds. Returns self.

        Called with the time to the first piece (`first_token`) and to the end (`total`).
        """
        self._on_timing = callback
        self._started_at = time.perf_counter()
        return self

    def on_begin(self, callback: Callable[[], None]) -> Self:
        """Set a callback for the first event after the sources. Returns self.

        What it uses is charged to the account of the stream. It is not called where the model fails before that event.
        """
        self._on_begin = callback
        return self

    def on_complete(self, callback: Callable[[Answer], None]) -> None:
        """Set a callback that gets the whole answer before the last event.

        If it raises, that event is withheld.
        """
        self._on_complete = callback

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnswerEvent:
        with usage.charge_to(self._account):
            event = next(self._events)
            begins = self._awaits_first_token and isinstance(event, AnswerPiece | AnswerDone)
            if isinstance(event, AnswerPiece | AnswerDone):
                self._time(event)
            if self._on_complete is not None and isinstance(event, AnswerDone):
                self._on_complete(event.answer)
            if self._on_begin is not None and begins:
                self._on_begin()
        return event

    def _time(self, event: AnswerPiece | AnswerDone) -> None:
        took_s = time.perf_counter() - self._started_at
        is_done = isinstance(event, AnswerDone)
        if is_done:
            tracing.record_span("kosmos.answer", took_s, root=True, attributes=genai.CHAIN_SPAN)
        if self._on_timing is not None and (is_done or self._awaits_first_token):
            self._on_timing(took_s, "total" if is_done else "first_token")
        self._awaits_first_token = False

    def close(self) -> None:
        """Cancel the answer; harmless after its end."""
        self._pieces.close()
        with suppress(ValueError):
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self) -> Answer:
        """Read to the end and return the answer.

        Raises as iteration does, ModelError after the end.
        """
        with self:
            for event in self:
                if isinstance(event, AnswerDone):
                    return event.answer
        raise ModelError("the answer was cancelled: ask again")
