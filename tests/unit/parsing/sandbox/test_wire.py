"""Frames between processes, one of which may have been taken over by a file."""

import json
import socket
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Heading, Note, ParsedDocument
from kosmos_rag.parsing.sandbox.protocol import (
    Failure,
    ParseRequest,
    decode_reply,
    encode_reply,
    receive_frame,
    receive_request,
    send_frame,
    send_request,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
DOCUMENTS = st.builds(
    ParsedDocument,
    text=TEXT,
    media_type=st.just("text/plain"),
    title=st.none() | TEXT,
    headings=st.lists(st.builds(Heading, level=st.integers(1, 6), title=TEXT, start=st.integers(0, 99))).map(tuple),
    pages=st.lists(st.integers(0, 99)).map(tuple),
    notes=st.lists(st.builds(Note, code=TEXT, message=TEXT)).map(tuple),
)
GOOD: dict[str, Any] = {"text": "x", "media_type": "text/plain", "title": None, "headings": [], "pages": []}


@given(DOCUMENTS)
def test_reply__comes_back_as_it_was(document: ParsedDocument) -> None:
    assert decode_reply(encode_reply(document)) == document


def test_reply__failure_is_raised() -> None:
    with pytest.raises(ParseError, match="said so") as caught:
        decode_reply(encode_reply(Failure(code="corrupt", message="said so")))
    assert caught.value.code == "corrupt"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x80\x04K\x01.",
        b"null",
        b"[" * 100_000,
        json.dumps(GOOD | {"text": 5}).encode(),
        json.dumps(GOOD | {"text": "a\0b"}).encode(),
        json.dumps(GOOD | {"title": "a\0b"}).encode(),
        json.dumps(GOOD | {"text": "\ud800"}).encode(),
        json.dumps(GOOD | {"pages": ["x"]}).encode(),
        json.dumps(GOOD | {"headings": [{"level": 1, "title": "a\0", "start": 0}]}).encode(),
        json.dumps(GOOD | {"notes": [{"code": "x", "message": "a\0"}]}).encode(),
        json.dumps(GOOD | {"headings": [{"level": 1}]}).encode(),
        b'{"code": "corrupt"}',
        b"\xff\xfe",
    ],
)
def test_reply__that_makes_no_sense(frame: bytes) -> None:
    with pytest.raises(ValueError):
        decode_reply(frame)


def test_request__comes_as_it_was_sent() -> None:
    request = ParseRequest(
        source="a\ud800.txt", title=None, media_type=None, memory_bytes=1, cpu_s=2, text_bytes=3, pages=4, ocr=True,
        hidden_cells=False, passwords=("sesame", "\ud800"),
    )  # fmt: skip
    data = bytes(range(256)) * 10_000
    sending, receiving = socket.socketpair()
    with sending, receiving:
        sender = threading.Thread(target=send_request, args=(sending, request, data))
        sender.start()
        assert receive_request(receiving) == request
        assert receive_frame(receiving, len(data)) == data
        sender.join()


def test_frame__longer_than_allowed_is_not_read() -> None:
    sending, receiving = socket.socketpair()
    with sending, receiving:
        send_frame(sending, b"x" * 11)
        with pytest.raises(ValueError, match="11 bytes"):
            receive_frame(receiving, 10)


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\0\0\0\0\x05abc"])
def test_frame__that_breaks_off(data: bytes) -> None:
    sending, receiving = socket.socketpair()
    with sending, receiving:
        sending.sendall(data)
        sending.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            receive_frame(receiving, 10)


def test_frame__of_nothing_ends_with_its_length() -> None:
    """The other side has all of it then, and may have answered and closed: sending more would lose the answer."""
    sending, receiving = socket.socketpair()

    class Answered(socket.socket):
        def sendall(self, data: Any, flags: int = 0, /) -> None:
            super().sendall(data, flags)
            receiving.close()

    with Answered(fileno=sending.detach()) as connection:
        send_frame(connection, b"")


def test_frame__that_trickles_meets_the_deadline() -> None:
    sending, receiving = socket.socketpair()
    with sending, receiving:
        sending.sendall((1000).to_bytes(8, "big"))
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(0.05):
                sending.sendall(b"x")

        sender = threading.Thread(target=trickle)
        sender.start()
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            receive_frame(receiving, 1000, deadline=start + 0.5)
        stop.set()
        sender.join()
        assert time.monotonic() - start < 20
