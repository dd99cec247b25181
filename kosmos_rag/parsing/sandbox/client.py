"""Parse a file in a confined child process.

Every outcome is a document or a ParseError.
"""

import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing.sandbox import fork_server
from kosmos_rag.parsing.sandbox.conversion import convert_legacy
from kosmos_rag.parsing.sandbox.fork_server import ForkServer, ForkServerLost
from kosmos_rag.parsing.sandbox.protocol import (
    OUT_OF_MEMORY,
    PNG,
    ParseRequest,
    decode_reply,
    receive_frame,
    send_request,
    wait_until,
)

if TYPE_CHECKING:  # the zygote imports this package, and has no use for settings
    from kosmos_rag.core.config import ParsingSettings


def start_parser() -> None:
    """Start the fork server in the background, so that the first file does not wait."""
    threading.Thread(target=_start_fork_server, name="kosmos-rag-start-parser", daemon=True).start()


def _start_fork_server() -> None:
    with suppress(ParseError):  # each file will report it
        fork_server.current()


def parse_confined(document: SourceDocument, limits: "ParsingSettings") -> ParsedDocument:
    """Parse a document in a child process with limits. Thread-safe.

    Raises:
        ParseError: those of `parse`; `crashed`, `timeout` or `memory` for a process that did not end well;
            `too_large` for more text or pages than the limits allow; `not_isolated` where isolation is required and
            not complete.
    """
    converted = convert_legacy(document, limits)
    return _read(_exchange_twice(_request(converted, limits), converted.data, limits))


def render_confined(data: bytes, page: int, limits: "ParsingSettings") -> bytes:
    """Render a page of a PDF in a child process with limits.

    Thread-safe. Returns a PNG. Raises ParseError as `parse_confined` does.

    Args:
        page: number of the page, from 1.
        limits: time and memory that rendering may take.
    """
    request = replace(_request(SourceDocument(source="page.pdf", data=b""), limits), page=page)
    frame = bytes(_exchange_twice(request, data, limits))
    if frame.startswith(PNG):
        return frame
    _read(bytearray(frame))  # raises the error that the child reports
    raise _invalid_reply()


def _exchange_twice(request: ParseRequest, data: bytes, limits: "ParsingSettings") -> bytearray:
    try:
        return _attempt(request, data, limits)
    except ForkServerLost:
        pass
    try:
        return _attempt(request, data, limits)
    except ForkServerLost as error:
        message = "the process that parses files ended twice over this file; check the file and the system's log"
        raise ParseError("crashed", message) from error


def _attempt(request: ParseRequest, data: bytes, limits: "ParsingSettings") -> bytearray:
    server = fork_server.current()
    if limits.require_isolation and not server.isolation.complete:
        raise ParseError("not_isolated", server.isolation.remedy())
    try:
        return _exchange(server, request, data, limits)
    except ForkServerLost:
        fork_server.discard(server)
        raise


def _exchange(server: ForkServer, request: ParseRequest, data: bytes, limits: "ParsingSettings") -> bytearray:
    parent_socket, child_socket = socket.socketpair()
    exit_socket, child_exit_socket = socket.socketpair()
    # However this block ends: closing `exit_socket` kills the child.
    with parent_socket, exit_socket:
        with child_socket, child_exit_socket:
            server.fork(child_socket, child_exit_socket)
        deadline = time.monotonic() + limits.timeout_s
        try:
            frame = _send_and_receive(parent_socket, request, data, deadline)
            if frame is None:
                raise _exit_error(_exit_code(exit_socket, deadline), limits)
        except TimeoutError as error:
            raise _timeout(f"{limits.timeout_s:g} s; raise ingestion.parsing.timeout_s") from error
    return frame


def _request(document: SourceDocument, limits: "ParsingSettings") -> ParseRequest:
    return ParseRequest(
        source=document.source,
        title=document.title,
        media_type=document.media_type,
        memory_bytes=limits.memory_mb * 2**20,
        cpu_s=limits.cpu_s,
        text_bytes=limits.text_mb * 2**20,
        pages=limits.pages,
        ocr=limits.ocr,
        hidden_cells=limits.hidden_cells,
        passwords=tuple(password.get_secret_value() for password in limits.passwords),
        skipped_rows=document.skipped_rows,
    )


def _send_and_receive(
    connection: socket.socket, request: ParseRequest, data: bytes, deadline: float
) -> bytearray | None:
    """Send a request and receive the reply.

    The result is None where the child ended before it had sent one.
    """
    try:
        wait_until(connection, deadline)
        send_request(connection, request, data)
        return receive_frame(connection, request.largest_reply, deadline)
    except (EOFError, ConnectionError):
        return None
    except ValueError as error:
        raise _invalid_reply() from error


def _exit_code(end: socket.socket, deadline: float) -> int:
    wait_until(end, deadline)
    code = end.recv(16)
    if not code:
        raise ForkServerLost
    return int(code)


def _exit_error(exit_code: int, limits: "ParsingSettings") -> ParseError:
    """Return the error for the exit code of a child.

    It is that of the exceeded limit, or a crash.
    """
    if exit_code == -signal.SIGXCPU:
        return _timeout(f"{limits.cpu_s} s of computing; raise ingestion.parsing.cpu_s")
    # Nobody but the kernel kills a child that we still wait for, and it does so because memory is short.
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


def _timeout(limit: str) -> ParseError:
    return ParseError("timeout", f"the file was not parsed within {limit} or split the file")


def _read(frame: bytearray) -> ParsedDocument:
    try:
        return decode_reply(frame)
    except ValueError as error:
        raise _invalid_reply() from error


def _invalid_reply() -> ParseError:
    return ParseError("crashed", "the parser sent an invalid reply, so the file may control it; do not trust the file")
