"""Messages between the processes, as frames of JSON, never pickle.

A frame is a length and that many bytes.
"""

import json
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import METADATA_FIELDS, ParsedDocument, SourceDocument
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.limits import OutputLimits

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORK = b"F"
"""Asks the zygote for a child; two sockets travel with it: the child's, and the one for the child's end."""
OUT_OF_MEMORY = 3
"""Exit code of a child that could not get the memory it asked for."""

_LENGTH = struct.Struct("!Q")
PNG = b"\x89PNG\r\n\x1a\n"
"""The first bytes of a picture of a page."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParseRequest:
    """Parameters of one file for a child. The bytes follow separately."""

    source: str
    title: str | None
    media_type: str | None
    memory_bytes: int
    cpu_s: int
    text_bytes: int
    pages: int
    ocr: bool
    hidden_cells: bool
    passwords: tuple[str, ...] = ()
    skipped_rows: tuple[int, int] | None = None
    page: int = 0
    """Page of a PDF to render; 0 to parse the file."""

    @property
    def output(self) -> OutputLimits:
        """Limits of the parsed document."""
        return OutputLimits(text_bytes=self.text_bytes, pages=self.pages)

    @property
    def largest_reply(self) -> int:
        """Return the maximum bytes of a reply.

        At worst JSON writes two for one.
        """
        return bounds.MAX_PICTURE_BYTES if self.page else 2 * self.text_bytes + bounds.MAX_REPLY_BYTES_BESIDE_TEXT


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a file could not be parsed: the fields of a ParseError."""

    code: str
    message: str


def send_request(connection: socket.socket, request: ParseRequest, data: bytes) -> None:
    """Send a request and the file's bytes."""
    send_frame(connection, json.dumps(asdict(request)).encode())
    send_frame(connection, data)


def receive_request(connection: socket.socket) -> ParseRequest:
    """Receive what `send_request` sends first.

    The bytes of the file are the next frame.
    """
    fields = json.loads(receive_frame(connection, bounds.MAX_REQUEST_BYTES))
    skipped = fields["skipped_rows"] and tuple(fields["skipped_rows"])
    return ParseRequest(**{**fields, "passwords": tuple(fields["passwords"]), "skipped_rows": skipped})


def build_document(request: ParseRequest, data: bytes) -> SourceDocument:
    """Rebuild the document of a request for the parser."""
    return SourceDocument(
        source=request.source,
        title=request.title,
        media_type=request.media_type,
        data=data,
        skipped_rows=request.skipped_rows,
    )


def encode_reply(reply: ParsedDocument | Failure) -> bytes:
    """Write a reply as JSON."""
    return json.dumps(asdict(reply), ensure_ascii=False, separators=(",", ":")).encode()


def decode_reply(frame: bytes | bytearray) -> ParsedDocument:
    """Read a reply.

    The child is not trusted: its reply is validated against the types.

    Raises:
        ParseError: the one that the child reports.
        ValueError: the frame is no reply.
    """
    reply = _reply_type().validate_json(frame)
    if isinstance(reply, Failure):
        raise ParseError(reply.code, reply.message)
    if any("\0" in text for text in _texts(reply)):
        raise ValueError("the text has NUL characters")
    if not reply.metadata.keys() <= METADATA_FIELDS:
        raise ValueError("the metadata have fields that no file may set")
    return reply


def _texts(reply: ParsedDocument) -> Iterator[str]:
    yield from (reply.text, reply.title or "", *(heading.title for heading in reply.headings))
    yield from (text for note in reply.notes for text in (note.code, note.message))
    yield from (text for table in reply.tables for text in table.context)
    yield from (text for span in reply.places for text in span if isinstance(text, str))
    for value in reply.metadata.values():
        yield from [value] if isinstance(value, str) else value


@cache
def _reply_type() -> "TypeAdapter[ParsedDocument | Failure]":
    # Here, for the zygote has no use for it.
    from pydantic import TypeAdapter

    return TypeAdapter(ParsedDocument | Failure)


def send_frame(connection: socket.socket, payload: bytes) -> None:
    """Send a length and that many bytes."""
    connection.sendall(_LENGTH.pack(len(payload)))
    if payload:  # the other side may have answered an empty frame already, and closed
        connection.sendall(payload)


def receive_frame(connection: socket.socket, largest: int, deadline: float | None = None) -> bytearray:
    """Receive what `send_frame` sent, until `deadline` on the monotonic clock.

    Raises:
        EOFError: the other side closed before its end.
        TimeoutError: the deadline came before the end, however the bytes trickled.
        ValueError: the frame has more than `largest` bytes; none of them was read.
    """
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size, deadline))
    if length > largest:
        raise ValueError(f"a frame of {length} bytes, at most {largest} are read")
    return _receive(connection, length, deadline)


def wait_until(connection: socket.socket, deadline: float) -> None:
    """Let the next call on the socket last until the deadline.

    Raises TimeoutError where that is past.
    """
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    connection.settimeout(remaining)


def _receive(connection: socket.socket, length: int, deadline: float | None) -> bytearray:
    payload = bytearray(length)
    missing = memoryview(payload)
    while missing:
        if deadline is not None:
            wait_until(connection, deadline)
        count = connection.recv_into(missing)
        if not count:
            raise EOFError(f"{len(missing)} bytes are missing")
        missing = missing[count:]
    return payload
