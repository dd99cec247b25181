"""The event loop of requests to model servers."""

import pytest

from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.models.http.background import BackgroundLoop
from tests.threads import refused_threads


async def _answer() -> str:
    return "yes"


def test_loop__whose_thread_cannot_start_refuses_the_request_and_starts_with_the_next() -> None:
    loop = BackgroundLoop()
    with refused_threads("kosmos-rag-models"), pytest.raises(ModelUnavailable, match="can't start new thread; raise"):
        loop.run(_answer())
    assert loop.run(_answer()) == "yes"

    async def clean_up() -> None:
        pass

    loop.close(clean_up)
