"""A tenant with a subscriber on this machine, and a worker that delivers."""

import time
from collections.abc import Callable, Iterator, Mapping

import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import queue as queue_module
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.webhooks.job_kinds import DELIVER
from kosmos_rag.webhooks.jobs import WebhookMaintenance
from kosmos_rag.webhooks.store import SubscriberStore
from kosmos_rag.wings import load_wing_jobs
from kosmos_rag.worker.channel import SupervisorChannel
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.apps.http.conftest import running, shared_service, signer
from tests.integration.variants import changed
from tests.integration.webhooks.receiver import Receiver, receiving
from tests.integration.worker.working import open_channel

__all__ = ["running", "shared_service", "signer"]
WEBHOOKS = {
    "webhooks.allowed_hosts": ("127.0.0.1",), "webhooks.allow_private": True, "webhooks.poll_s": 0.001,
    "webhooks.timeout_s": 5.0, "webhooks.signing_key": SecretStr("k" * 32),
}  # fmt: skip
Deliver = Callable[[], None]
Maintain = Callable[[], dict[str, float]]


def with_webhooks(settings: Settings, **overrides: object) -> Settings:
    """Return settings by which events are delivered to this machine."""
    added = {f"webhooks.{name}": value for name, value in overrides.items()}
    return changed(settings, WEBHOOKS | added)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    with Engine(with_webhooks(settings, max_attempts=3), embedder=HashingEmbedder()) as engine:
        yield engine


@pytest.fixture
def acme(engine: Engine) -> Tenant:
    return engine.tenant("acme")


@pytest.fixture
def store(acme: Tenant) -> SubscriberStore:
    return SubscriberStore(acme)


@pytest.fixture
def write(acme: Tenant) -> Callable[..., None]:
    """Publish documents, one event each."""

    def write(*sources: str, text: str = "words") -> None:
        acme.ingest([SourceDocument(source=source, data=f"About {text} of {source}.".encode()) for source in sources])

    return write


@pytest.fixture
def deliver(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deliver]:
    """Run the deliveries of a worker once."""
    monkeypatch.setattr(queue_module, "REQUEUE_INTERVAL_S", 0.0)
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    runner = EngineJobRunner(engine, load_wing_jobs())

    def deliver(kind: str = DELIVER) -> None:
        deadline = time.monotonic() + 2
        while not (jobs := queue.claim(64, kinds=[kind], worker="test")) and time.monotonic() < deadline:
            time.sleep(0.01)
        runner.run(jobs, channel)

    yield deliver
    runner._documents.close()


@pytest.fixture
def maintain(engine: Engine, deliver: Deliver, monkeypatch: pytest.MonkeyPatch) -> Maintain:
    """Run the part of maintenance that is about subscribers, and return the gauges."""
    gauges: dict[str, float] = {}

    def report(_: object, __: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        assert hold_s > 0
        gauges.update({metric.name: value for metric, value in values.items()})

    monkeypatch.setattr(SupervisorChannel, "report_gauges", report)

    def maintain() -> dict[str, float]:
        gauges.clear()
        WebhookMaintenance(engine).run("acme", object.__new__(SupervisorChannel))
        return dict(gauges)

    return maintain
