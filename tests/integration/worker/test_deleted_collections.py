"""Jobs of a collection whose preset was deleted or changed: no document is published under weaker settings."""

import uuid
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import Job, JobState
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.worker.queue_calls import hasten
from tests.integration.worker.working import open_channel

SALARIES = SourceDocument(source="hr/salaries.md", data=b"# Salaries\n\nThe salary of the board is secret.\n")

pytestmark = pytest.mark.emptied_database


@pytest.fixture
def policies(engine: Engine) -> Tenant:
    """A collection that restricts its documents to their departments."""
    engine.tenant("acme").collections.create("policies", preset="corporate-enforced")
    return engine.tenant("acme", collection="policies")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kb" / "hr").mkdir(parents=True)
    (tmp_path / "kb" / "hr" / "salaries.md").write_bytes(SALARIES.data)
    return tmp_path / "kb"


@pytest.fixture
def queue(engine: Engine) -> Queue:
    return Queue.open(engine.database, engine.settings.worker)


@pytest.fixture
def run(engine: Engine, queue: Queue) -> Callable[[Sequence[Job]], None]:
    """Do claimed jobs, as a worker's process does, and wait for their publication."""
    _, channel = open_channel(queue)

    def run(jobs: Sequence[Job]) -> None:
        working = EngineJobRunner(engine)
        working.run(jobs, channel)
        working._documents.close()

    return run


def _claim(queue: Queue, *of: str) -> list[Job]:
    return queue.claim(64, kinds=of or kinds.KERNEL, worker="test")


def _codes(scope: Tenant) -> set[tuple[str, str, str | None]]:
    infos = [info for info in scope.jobs.find() if info.kind not in kinds.UPKEEP]
    return {(info.kind, str(info.state), info.code) for info in infos}


Run = Callable[[Sequence[Job]], None]


def test_deletion__cancels_the_mirror_and_what_it_put_into_the_queue(
    policies: Tenant, folder: Path, queue: Queue, run: Run, database: DatabaseSettings
) -> None:
    """Deleting a collection cancels its waiting jobs and recurring sources."""
    policies.jobs.enqueue(folder, every=timedelta(hours=8))
    run(_claim(queue, kinds.SYNC))
    assert _codes(policies) == {("sync", "scheduled", None), ("document", "queued", None)}
    policies.jobs.enqueue(SALARIES)
    assert policies.collections.delete("policies") == 0
    assert _codes(policies) == {("sync", "cancelled", "cancelled"), ("document", "cancelled", "cancelled")}
    hasten(database)
    run(_claim(queue))
    assert policies.sources() == []


def test_deletion__stops_a_pass_that_is_running(policies: Tenant, folder: Path, queue: Queue, run: Run) -> None:
    """A pass over a source that runs during the deletion enqueues nothing more."""
    policies.jobs.enqueue(folder)
    claimed = _claim(queue, kinds.SYNC)
    policies.collections.delete("policies")
    run(claimed)
    assert _codes(policies) == {("sync", "cancelled", "cancelled")}


def test_deletion__leaves_other_collections_and_the_maintenance(
    engine: Engine, policies: Tenant, folder: Path, queue: Queue, run: Run
) -> None:
    wiki = engine.tenant("acme", collection="wiki")
    wiki.jobs.enqueue(folder)
    policies.collections.delete("policies")
    assert {info.kind for info in policies.jobs.find(states=[JobState.SCHEDULED])} == set(kinds.UPKEEP)
    run(_claim(queue, kinds.SYNC))
    run(_claim(queue, kinds.DOCUMENT))
    assert [Path(source).name for source in wiki.sources()] == ["salaries.md"]


def test_retry__brings_no_deleted_collection_back(
    engine: Engine, folder: Path, queue: Queue, run: Run, database: DatabaseSettings
) -> None:
    """To retry all jobs brings back neither the mirror of a deleted collection nor a document that had failed."""
    wiki = engine.tenant("acme", collection="wiki")
    wiki.jobs.enqueue(folder, every=timedelta(hours=8))
    run(_claim(queue, kinds.SYNC))
    wiki.jobs.enqueue(SourceDocument(source="broken.pdf", data=b"%PDF-1.7 nothing more"))
    run(_claim(queue, kinds.DOCUMENT))
    assert ("document", "dead", "corrupt") in _codes(wiki)
    wiki.jobs.enqueue(SALARIES)
    assert wiki.collections.delete("wiki") == 1
    assert wiki.jobs.retry() == []
    hasten(database)
    run(_claim(queue))
    assert wiki.sources() == []
    assert {code for kind, _, code in _codes(wiki) if kind == "sync"} == {"cancelled"}


def _retry_cancelled(scope: Tenant) -> list[uuid.UUID]:
    return scope.jobs.retry([job.id for job in scope.jobs.find(states=[JobState.CANCELLED])])


@pytest.mark.parametrize("kind", [kinds.SYNC, kinds.DOCUMENT])
def test_retried_job__fails_once_its_collection_has_no_preset(
    kind: str, policies: Tenant, folder: Path, queue: Queue, run: Run
) -> None:
    """A job fails if its collection no longer has the preset of the time when it was enqueued."""
    policies.jobs.enqueue(folder if kind == kinds.SYNC else SALARIES)
    policies.collections.delete("policies")
    assert len(_retry_cancelled(policies)) == 1
    run(_claim(queue, kind))
    assert _codes(policies) == {(kind, "dead", "preset_missing")}
    assert policies.sources() == []


def test_retried_job__fails_once_its_collection_has_another_preset(policies: Tenant, queue: Queue, run: Run) -> None:
    """A job does not run under another preset that was created after a deletion."""
    policies.jobs.enqueue(SALARIES)
    policies.collections.delete("policies")
    policies.collections.create("policies", preset="corporate")
    _retry_cancelled(policies)
    run(_claim(queue, kinds.DOCUMENT))
    assert _codes(policies) == {("document", "scheduled", "preset_changed")}
    assert policies.sources() == []


def test_set_preset__takes_the_waiting_jobs_along(
    engine: Engine, policies: Tenant, folder: Path, queue: Queue, run: Run, database: DatabaseSettings
) -> None:
    """During `set-preset` the collection always has a preset, and waiting jobs use the new one."""
    policies.jobs.enqueue(folder, every=timedelta(hours=8))
    run(_claim(queue, kinds.SYNC))
    policies.jobs.enqueue(SourceDocument(source="general/rules.md", data=b"Travel is free."))
    assert policies.collections.set_preset("policies", preset="corporate").preset == "corporate"
    run(_claim(queue, kinds.DOCUMENT))
    hasten(database)
    run(_claim(queue, kinds.SYNC))
    run(_claim(queue, kinds.DOCUMENT))
    assert _codes(policies) == {("sync", "scheduled", None), ("document", "done", None)}
    assert len(engine.tenant("acme").documents()) == 2, "readable by everyone, as the new preset says"


class InterruptedEmbedder(HashingEmbedder):
    """Changes a collection while its documents are embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.change: Callable[[], object] = lambda: None

    def embed(self, texts: Sequence[str]) -> Vectors:
        change, self.change = self.change, lambda: None
        change()
        return super().embed(texts)


@pytest.mark.parametrize("action", ["delete", "set"])
def test_preset_that_changes_while_a_document_is_embedded__publishes_nothing(action: str, settings: Settings) -> None:
    """A document in progress is not published if its preset was deleted or changed in the meantime."""
    embedder = InterruptedEmbedder()
    with Engine(settings, embedder=embedder) as engine:
        collections = engine.tenant("acme").collections
        collections.create("policies", preset="corporate")
        policies = engine.tenant("acme", collection="policies")
        embedder.change = {
            "delete": lambda: collections.delete("policies"),
            "set": lambda: collections.set_preset("policies", preset="corporate-enforced"),
        }[action]
        report = policies.ingest(SALARIES)
        assert [failure.code for failure in report.failed] == ["preset_changed"]
        assert policies.sources() == []
        assert policies.ingest(SALARIES).new == 1


def test_deletion_while_a_document_of_a_job_is_embedded__publishes_nothing(settings: Settings, tmp_path: Path) -> None:
    embedder = InterruptedEmbedder()
    with Engine(settings, embedder=embedder) as engine:
        engine.tenant("acme").collections.create("policies", preset="corporate-enforced")
        policies = engine.tenant("acme", collection="policies")
        policies.jobs.enqueue(SALARIES)
        embedder.change = lambda: policies.collections.delete("policies")
        queue = Queue.open(engine.database, engine.settings.worker)
        working = EngineJobRunner(engine)
        working.run(_claim(queue, kinds.DOCUMENT), open_channel(queue)[1])
        working._documents.close()
        assert _codes(policies) == {("document", "cancelled", "cancelled")}
        assert policies.sources() == []
