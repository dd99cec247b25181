"""A client that goes while a language model writes: the model is let go."""

import asyncio

import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.serving import Signer, with_tokens
from tests.integration.apps.http.test_streams import trickles
from tests.integration.apps.mcp.conftest import fill
from tests.integration.apps.mcp.running import Running, serving
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import ChatServer, running

pytestmark = pytest.mark.emptied_database


async def _ask(server: Running, mode: str) -> None:
    async with server.client(mode=mode) as client:
        await client.call_tool("answer", {"question": "How many days of paid annual leave do employees get?"})


async def _ask_and_go(server: Running, chat: ChatServer, mode: str) -> None:
    asking = asyncio.create_task(_ask(server, mode))
    async with asyncio.timeout(20):
        while not chat.requests:
            await asyncio.sleep(0.02)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_model__is_let_go_when_the_client_is_gone(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as chat:
        chat.replies = [trickles]
        model = LanguageModelSettings(protocol="openai", url=chat.url("/v1"), api_key=SecretStr("sk-hidden"))
        usual = {"language_model": model, "rag.answer.mode": "generative", "rag.answer.threshold": 0.0}
        with Engine(with_tokens(changed(settings, usual), signer), embedder=HashingEmbedder()) as engine:
            fill(engine)
            with serving(engine, signer) as server:
                asyncio.run(_ask_and_go(server, chat, mode))
                assert chat.given_up.wait(5)
