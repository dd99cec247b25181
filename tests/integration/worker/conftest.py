"""What the tests of the queue share."""

import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue import queue as jobs
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.sync_runs import SyncRuns
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.worker.queue_calls import ACME, KIND, LEASE_S, Put
from tests.integration.worker.working import CountingEmbedder, Work, open_channel, receive_all


@pytest.fixture(autouse=True)
def woken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every taking look for what is due, so that a test need not wait; one test is about the pause itself."""
    monkeypatch.setattr(jobs, "REQUEUE_INTERVAL_S", 0.0)


@pytest.fixture
def opened(database: DatabaseSettings) -> Iterator[Database]:
    opened = Database(database)
    yield opened
    opened.close()


@pytest.fixture
def queue(opened: Database) -> Queue:
    return Queue(opened.worker, lease_s=LEASE_S, max_attempts=3, max_lost=3)


@pytest.fixture
def put(opened: Database) -> Put:
    def put(
        *keys: str, owner: TenantRef = ACME, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> list[uuid.UUID]:
        with opened.worker.untenanted() as connection:
            return JobWriter(connection, owner).enqueue(
                "default", KIND, {key: payload or {} for key in keys}, **options
            )

    return put


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def engine(settings: Settings, embedder: CountingEmbedder) -> Iterator[Engine]:
    with Engine(settings, embedder=embedder) as engine:
        yield engine


@pytest.fixture
def scope(engine: Engine) -> Tenant:
    return engine.tenant("acme")


@pytest.fixture
def work(engine: Engine) -> Iterator[Work]:
    """Do all that is in the queue, as a worker's process does."""
    queue = Queue.open(engine.database, engine.settings.worker)
    supervisor, channel = open_channel(queue)
    working = EngineJobRunner(engine)

    def run() -> None:
        while queue.count_unfinished([kinds.DOCUMENT, kinds.SYNC, kinds.PERMISSIONS]):
            jobs = queue.claim(64, kinds=kinds.KERNEL, worker="test")
            working.run(jobs, channel)
            if not jobs:
                time.sleep(0.05)  # the next job begins later
            receive_all(supervisor)
        SyncRuns(engine.database.worker).finish_completed()

    yield run
    working.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    folder.mkdir()
    for number in range(12):
        (folder / f"page-{number}.md").write_text(f"# Page {number}\n\nWhat page {number} says about churn{number}.\n")
    return folder
