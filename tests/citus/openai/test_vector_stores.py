"""Vector stores: their jobs are on the coordinator, and everything else on the node of the tenant."""

from collections.abc import Iterator

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.openai.files import TenantFiles
from kosmos_rag.openai.records import FileCounts, FileStatus
from kosmos_rag.openai.vector_stores import TenantVectorStores
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.handlers import EngineJobRunner
from tests.integration.variants import changed
from tests.integration.worker.working import open_channel, receive_all


@pytest.fixture(params=[False, True], ids=["through the coordinator", "on the nodes"])
def placed(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine on the cluster that asks the coordinator, or the node of the tenant."""
    with Engine(changed(settings, {"database.use_nodes": request.param}), embedder=HashingEmbedder()) as engine:
        yield engine


def _run_jobs(settings: Settings, name: str) -> None:
    """Do what is in the queue for a tenant, as a worker's process does."""
    runner = EngineJobRunner(Engine(settings, embedder=HashingEmbedder()))
    queue = Queue.open(runner.database, settings.worker)
    supervisor, channel = open_channel(queue)
    jobs = queue.claim(64, kinds=kinds.KERNEL, worker="test")
    runner.run([job for job in jobs if job.tenant == name], channel)
    runner.close()
    receive_all(supervisor)


def test_attached_file__is_in_progress_until_its_job_is_done(placed: Engine, name: str) -> None:
    tenant = placed.tenant(name)
    files, stores = TenantFiles(tenant), TenantVectorStores(tenant)
    text = b"Staff have 30 days of leave."
    upload = tenant.uploads.open()
    upload.write(text)
    file_id = files.create(upload.finish().id, "leave.md", size=len(text), purpose="assistants", readers=[EVERYONE]).id
    store = stores.create("handbook", description=None, metadata={}).collection
    batch = stores.create_batch(store, {file_id: {"year": 2024}})
    assert batch.counts == FileCounts(in_progress=1)
    assert [info.status for info in stores.files(store)] == [FileStatus.IN_PROGRESS]

    _run_jobs(placed.settings, name)
    assert stores.get(store).counts == FileCounts(completed=1)
    assert stores.file(store, file_id).status is FileStatus.COMPLETED

    stores.attach(store, {file_id: {"year": 2025}})
    assert stores.get(store).counts == FileCounts(in_progress=1)
    stores.detach(store, file_id)
    assert stores.files(store) == []
    stores.delete(store)
    files.delete(file_id)
    assert files.find() == []
