"""A server whose replies a test gives, for the clients of models."""

from collections.abc import Iterator

import pytest

from kosmos_rag.models.http import retry
from tests.unit.models.llm.chat_server import ChatServer, running


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(retry, "_FIRST_DELAY_S", 0.001)
    with running() as opened:
        yield opened
