"""Ask for a file to be parsed, and make of every end a document or a ParseError."""

import signal
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.ingestion.sandbox import pool as helper
from kosmos_rag.ingestion.sandbox.pool import Helper, HelperLost
from kosmos_rag.ingestion.sandbox.protocol import (
    OUT_OF_MEMORY,
    Request,
    decode_reply,
    receive_frame,
    send_request,
    wait_until,
)

if TYPE_CHECKING:  # the zygote imports this package, and has no use for settings
    from kosmos_rag.core.config import ParsingSettings

_MEGABYTE = 2**20


def start_parser() -> None:
    """Start the process that parses files now and not with the first of them, which would wait a second or two."""
    with suppress(ParseError):  # every file will say it
        helper.current()


def parse_confined(document: SourceDocument, limits: "ParsingSettings") -> ParsedDocument:
    """Parse a document in a process of its own, which the limits bind. Thread-safe.

    Raises:
        ParseError: those of `parse`; `crashed`, `timeout` or `memory` for a process that did not end well;
            `too_large` for more text or pages than the limits allow.
    """
    try:
        return _attempt(document, limits)
    except HelperLost:
        pass
    try:
        return _attempt(document, limits)
    except HelperLost as error:
        message = "the process that parses files ended twice over this file; check the file and the system's log"
        raise ParseError("crashed", message) from error


def _attempt(document: SourceDocument, limits: "ParsingSettings") -> ParsedDocument:
    zygote = helper.current()
    try:
        return _exchange(zygote, document, limits)
    except HelperLost:
        helper.discard(zygote)
        raise


def _exchange(zygote: Helper, document: SourceDocument, limits: "ParsingSettings") -> ParsedDocument:
    ours, theirs = socket.socketpair()
    end, their_end = socket.socketpair()
    # Whatever makes us leave: closing `end` has the child killed.
    with ours, end:
        with theirs, their_end:
            zygote.fork(theirs, their_end)
        deadline = time.monotonic() + limits.timeout_s
        try:
            frame = _ask(ours, _request(document, limits), document.data, deadline)
            if frame is None:
                raise _cause(_exit_code(end, deadline), limits)
        except TimeoutError as error:
            raise _late(f"{limits.timeout_s:g} s; raise ingestion.parsing.timeout_s") from error
    return _read(frame)


def _request(document: SourceDocument, limits: "ParsingSettings") -> Request:
    return Request(
        source=document.source,
        title=document.title,
        memory_bytes=limits.memory_mb * _MEGABYTE,
        cpu_s=limits.cpu_s,
        text_bytes=limits.text_mb * _MEGABYTE,
        pages=limits.pages,
        ocr=limits.ocr,
    )


def _ask(connection: socket.socket, request: Request, data: bytes, deadline: float) -> bytearray | None:
    """Send a request and receive the reply; None where the child ended before it had sent one."""
    try:
        wait_until(connection, deadline)
        send_request(connection, request, data)
        return receive_frame(connection, request.largest_reply, deadline)
    except (EOFError, ConnectionError):
        return None
    except ValueError as error:
        raise _senseless() from error


def _exit_code(end: socket.socket, deadline: float) -> int:
    wait_until(end, deadline)
    told = end.recv(16)
    if not told:
        raise HelperLost
    return int(told)


def _cause(exit_code: int, limits: "ParsingSettings") -> ParseError:
    """Say what ended a child: the limit it met, or its crash."""
    if exit_code == -signal.SIGXCPU:
        return _late(f"{limits.cpu_s} s of computing; raise ingestion.parsing.cpu_s")
    # Nobody but the kernel kills a child that we still wait for, and it does so for want of memory.
    if exit_code in (OUT_OF_MEMORY, -signal.SIGKILL):
        return ParseError(
            "memory",
            f"parsing the file takes more than {limits.memory_mb} MB, or than the machine has; "
            "split it, or raise ingestion.parsing.memory_mb",
        )
    how = f"was ended by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
    # Native code aborts where Python would say MemoryError.
    remedy = "check that the program the file comes from opens it, or raise ingestion.parsing.memory_mb"
    return ParseError("crashed", f"the parser {how}; {remedy}")


def _late(limit: str) -> ParseError:
    return ParseError("timeout", f"the file was not parsed within {limit} or split the file")


def _read(frame: bytearray) -> ParsedDocument:
    try:
        return decode_reply(frame)
    except ValueError as error:
        raise _senseless() from error


def _senseless() -> ParseError:
    return ParseError("crashed", "the parser's reply makes no sense, so the file has led it astray; do not trust it")
