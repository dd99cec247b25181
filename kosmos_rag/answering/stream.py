"""An answer that comes by and by, and can be given up at any moment."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Self

from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import BoundedStream, TextStream
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources


class DeferredStream:
    """What a model writes: asked for with the first piece, given up by `close` from any thread."""

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
                raise ModelError("the answer was given up: ask again")
            if self._stream is None:
                self._stream = self._start()
        return next(self._stream)

    @property
    def cut(self) -> bool:
        """Whether the model says that it has ended before it was done."""
        return isinstance(self._stream, BoundedStream) and self._stream.truncated

    def close(self) -> None:
        """Give up the rest."""
        with self._lock:
            self._closed = True
        if self._stream is not None:
            # A generator that another thread waits for cannot be closed; it is not asked for the next piece.
            with suppress(ValueError):
                self._stream.close()


class AnswerStream:
    """The events of an answer: `AnswerSources` first, then `AnswerPiece`s as they come, `AnswerDone` last.

    Its passages have been read before it begins: it holds no connection to the database. `close`, from any thread,
    gives it up, and with it what the language model is asked; a thread that waits for an event then gets a ModelError.
    Iterating raises ModelError, ModelUnavailable, and DatabaseError where the end cannot be written to a log.
    """

    def __init__(
        self, sources: AnswerSources, events: Generator[AnswerEvent, None, None], pieces: DeferredStream
    ) -> None:
        self.sources = sources
        self._events = events
        self._pieces = pieces
        self._at_end: Callable[[Answer], None] | None = None
        self._timed: Callable[[float, str], None] | None = None
        self._began = time.perf_counter()
        self._waits = True

    def telling(self, timed: Callable[[float, str], None]) -> Self:
        """Tell of the seconds from now to the first piece, `first_token`, and to the end, `total`. Returns itself."""
        self._timed = timed
        self._began = time.perf_counter()
        return self

    def before_end(self, told: Callable[[Answer], None]) -> None:
        """Tell of the whole answer before its end is given out; where that fails, it is not given out."""
        self._at_end = told

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AnswerEvent:
        event = next(self._events)
        if isinstance(event, AnswerPiece | AnswerDone):
            self._time(event)
        if self._at_end is not None and isinstance(event, AnswerDone):
            self._at_end(event.answer)
        return event

    def _time(self, event: AnswerPiece | AnswerDone) -> None:
        took_s = time.perf_counter() - self._began
        done = isinstance(event, AnswerDone)
        if done:
            tracing.record_span("kosmos.answer", took_s, root=True)
        if self._timed is not None and (done or self._waits):
            self._timed(took_s, "total" if done else "first_token")
        self._waits = False

    def close(self) -> None:
        """Give it up; at the end it does no harm."""
        self._pieces.close()
        with suppress(ValueError):
            self._events.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self) -> Answer:
        """Wait for the end, and return the answer as a whole. Raises as iterating, ModelError after the end."""
        with self:
            for event in self:
                if isinstance(event, AnswerDone):
                    return event.answer
        raise ModelError("the answer was given up: ask again")
