"""A service that the official SDK talks to, with a language model that writes scripted replies, and a worker."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings, LanguageModelSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.openai.speaking import Speaking
from tests.integration.variants import changed
from tests.integration.worker.working import open_channel, receive_all
from tests.unit.models.llm.chat_server import ChatServer
from tests.unit.models.llm.chat_server import running as running_model


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("signer"))


@pytest.fixture(scope="module")
def chat() -> Iterator[ChatServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        with running_model() as started:
            yield started


@pytest.fixture(scope="module")
def served(
    loaded_settings: Settings, shared_database: DatabaseSettings, signer: Signer, chat: ChatServer
) -> Iterator[Running]:
    """A service over the database of this process, whose answers a model writes."""
    usual = {
        "database": shared_database,
        "language_model": LanguageModelSettings(
            protocol="openai", url=chat.url("/v1"), model="writer", api_key=SecretStr("sk-hidden")
        ),
        "rag.answer.mode": "generative",
        "rag.answer.threshold": 0.0,
    }
    limitless = {"rates.tenant_per_minute": 0, "rates.subject_per_minute": 0}
    mine = with_tokens(changed(loaded_settings, usual), signer, **limitless)
    with Engine(mine, embedder=HashingEmbedder()) as engine, serving(engine, signer) as started:
        yield started


@pytest.fixture
def speaking(served: Running, tenant_name: str, runner: EngineJobRunner) -> Iterator[Speaking]:
    """Clients of the service for one tenant, and a worker."""
    engine = served.service.engine
    queue = Queue.open(engine.sync_engine.database, engine.settings.worker)
    supervisor, channel = open_channel(queue)

    def work() -> None:
        runner.run(queue.claim(64, kinds=kinds.KERNEL, worker="test"), channel)
        receive_all(supervisor)

    with Speaking(served, tenant_name, work) as started:
        yield started


@pytest.fixture(scope="module")
def runner(served: Running) -> Iterator[EngineJobRunner]:
    working = EngineJobRunner(served.service.engine.sync_engine)
    yield working
    working.close()
