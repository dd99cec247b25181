"""BodyLimits, in and out: nobody is waited for without end."""

import asyncio
import json

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kosmos_rag import Settings
from kosmos_rag.apps.http.toolkit import body_limits as bodies
from kosmos_rag.apps.http.toolkit.body_limits import BodyLimits

SCOPE: Scope = {"type": "http", "method": "POST", "path": "/api/chat", "headers": []}


async def _whole_body() -> Message:
    return {"type": "http.request", "body": b"{}", "more_body": False}


def test_answer__of_a_client_that_reads_no_more_is_given_up() -> None:
    ended = []

    async def writes(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"piece", "more_body": True})
        finally:
            ended.append(True)

    messages: list[Message] = []

    async def full(message: Message) -> None:
        """Take some pieces, as buffers do, and then no more."""
        messages.append(message)
        if len(messages) > 3:
            await asyncio.Event().wait()

    settings = Settings.load(overrides={"service.body_wait_s": 0.05})
    asyncio.run(asyncio.wait_for(BodyLimits(writes, settings)(SCOPE, _whole_body, full), 5))
    assert (len(messages), ended) == (4, [True])


def test_answer__that_fails_is_told_to_whoever_logs_it() -> None:
    async def fails(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    async def ignore(message: Message) -> None:
        pass

    with pytest.raises(ZeroDivisionError):
        asyncio.run(BodyLimits(fails, Settings.load())(SCOPE, _whole_body, ignore))


def _sent_with(app: ASGIApp, headers: list[tuple[bytes, bytes]], pieces: list[Message]) -> list[Message]:
    messages: list[Message] = []

    async def receive() -> Message:
        if pieces:
            return pieces.pop(0)
        return await asyncio.Event().wait()  # type: ignore[return-value]  # never comes

    async def send(message: Message) -> None:
        messages.append(message)

    asyncio.run(
        BodyLimits(app, Settings.load(overrides={"service.max_body_kb": 1}))(
            {**SCOPE, "headers": headers}, receive, send
        )
    )
    return messages


async def _refuses(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer without a look at the body."""
    await send({"type": "http.response.start", "status": 401, "headers": []})
    await send({"type": "http.response.body", "body": b"no"})


def test_answer__that_comes_before_the_body_is_given_time_to_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_LINGER_S", 0.05)
    piece = {"type": "http.request", "body": b"x" * 10, "more_body": True}
    pieces: list[Message] = [dict(piece) for _ in range(3)]
    messages = _sent_with(_refuses, [(b"transfer-encoding", b"chunked")], pieces)
    assert [(message.get("body"), message.get("more_body", False)) for message in messages[1:]] == [
        (b"no", True),
        (b"", False),
    ]
    assert pieces == []


def test_answer__to_no_body_is_sent_at_once() -> None:
    assert [message.get("more_body", False) for message in _sent_with(_refuses, [], [])] == [False, False]


def test_late_body__is_told_with_the_status_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_LINGER_S", 0.01)

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    late = Settings.load(overrides={"service.body_wait_s": 0.05})
    messages: list[Message] = []

    async def never() -> Message:
        return await asyncio.Event().wait()  # type: ignore[return-value]  # never comes

    async def send(message: Message) -> None:
        messages.append(message)

    asyncio.run(BodyLimits(reads, late)({**SCOPE, "headers": [(b"content-length", b"9")]}, never, send))
    assert messages[0]["status"] == json.loads(messages[1]["body"])["status"] == 408
