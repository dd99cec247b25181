"""Decodes the server-sent events of an answer from chunks of any size."""

import json
from collections.abc import Iterator
from typing import Any

from kosmos_rag.apps.client.transport import parse_problem
from kosmos_rag.apps.errors import ServiceUnreachable
from kosmos_rag.core.types import Answer, AnswerDone, AnswerEvent, AnswerPiece, AnswerSources


class EventDecoder:
    """Decodes one stream."""

    def __init__(self) -> None:
        self._buffer = b""
        self._payload: dict[str, Any] = {}
        self._ended = False

    def feed(self, data: bytes) -> Iterator[AnswerEvent]:
        """Yield the events that end in `data`.

        Raises the error of an error event, or ServiceUnreachable.
        """
        # An event ends with an empty line. str.splitlines would also split at U+2028 and U+0085, which a text may hold.
        *blocks, self._buffer = (self._buffer + data).split(b"\n\n")
        for block in blocks:
            lines = [line.partition(b": ") for line in block.split(b"\n") if not line.startswith(b":")]
            if lines:  # a block of comments is a heartbeat
                yield from self._decode({name: value for name, _, value in lines})

    def _decode(self, fields: dict[bytes, bytes]) -> Iterator[AnswerEvent]:
        try:
            name, payload = fields[b"event"], json.loads(fields[b"data"])
            if name == b"error":
                raise parse_problem(payload)
            if name == b"token":
                yield AnswerPiece(text=payload["text"])
                return
            self._payload |= payload
            if name == b"sources":
                yield AnswerSources.from_dict(payload)
            elif name == b"done":
                self._ended = True
                yield AnswerDone(answer=Answer.from_dict(self._payload))
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceUnreachable(
                f"an event of the answer cannot be parsed ({type(error).__name__}: {error}); "
                "is it a kosmos-rag of this version?"
            ) from error

    def finish(self) -> None:
        """Raise ServiceUnreachable where the stream ended before its answer was complete."""
        if not self._ended:
            raise ServiceUnreachable("the answer ended early; send the question again")
