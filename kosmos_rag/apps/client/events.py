"""The events of an answer (server-sent events), read from bytes as they come, in pieces of any size."""

import json
from collections.abc import Iterator
from typing import Any

from kosmos_rag.apps.client import decoding
from kosmos_rag.apps.client.transport import error_of_problem
from kosmos_rag.core.errors import ServiceUnreachable
from kosmos_rag.core.types import AnswerDone, AnswerEvent, AnswerPiece


class EventReader:
    """Reads one stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._told: dict[str, Any] = {}
        self._done = False

    def read(self, piece: bytes) -> Iterator[AnswerEvent]:
        """Yield the events that a piece of the stream ends. Raises the error that the service tells of."""
        # An event ends with an empty line. Lines are cut by hand: others also cut at separators that a text may hold.
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        for block in blocks:
            lines = [line.partition(b": ") for line in block.split(b"\n") if not line.startswith(b":")]
            if lines:  # else a comment, that breaks a silence
                yield from self._event({name: value for name, _, value in lines})

    def _event(self, fields: dict[bytes, bytes]) -> Iterator[AnswerEvent]:
        try:
            name, told = fields[b"event"], json.loads(fields[b"data"])
            if name == b"error":
                raise error_of_problem(told)
            if name == b"token":
                yield AnswerPiece(text=told["text"])
                return
            self._told |= told
            if name == b"sources":
                yield decoding.sources(told)
            elif name == b"done":
                self._done = True
                yield AnswerDone(answer=decoding.answer(self._told))
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceUnreachable(
                f"an event of the answer cannot be understood ({type(error).__name__}: {error}); "
                "is it a kosmos-rag of this version?"
            ) from error

    def end(self) -> None:
        """Raise ServiceUnreachable where the stream has ended before its answer."""
        if not self._done:
            raise ServiceUnreachable("the answer broke off before its end; ask again")
