"""A worker node is killed under load: its tenants wait and say why, the others notice nothing."""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import pytest

from benchmarks.citus_cluster import LocalCluster, Node
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.doctor import diagnose
from kosmos_rag.apps.worker.cluster import ClusterWatch
from kosmos_rag.apps.worker.metrics import WorkerMetrics
from kosmos_rag.apps.worker.supervisor import Supervisor
from kosmos_rag.core.errors import NodeUnavailable
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.tenants import tenant
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.reliability.engine_work import create_runner


def _documents(count: int, word: str = "margin") -> list[SourceDocument]:
    return [SourceDocument(source=f"{word}{n}", data=f"The {word} of number{n}.".encode()) for n in range(count)]


def _tenant_by_node(engine: Engine, local: LocalCluster) -> dict[Node, str]:
    """A new tenant on each worker."""
    found: dict[Node, str] = {}
    with engine.parts.database.worker.untenanted() as connection:
        while len(found) < len(local.workers):
            name = f"tenant-{uuid.uuid4().hex[:12]}"
            placement = find_placement(connection, tenant(name).id)
            assert placement is not None
            found.setdefault(next(node for node in local.workers if node.port == placement.port), name)
    return found


@contextmanager
def _load(call: Callable[[int], object]) -> Iterator[tuple[list[float], list[Exception]]]:
    """Call again and again from a thread; what it took, and what it raised."""
    ended, seconds, errors = threading.Event(), list[float](), list[Exception]()

    def run() -> None:
        number = 0
        while not ended.is_set():
            began = time.monotonic()
            try:
                call(number := number + 1)
                seconds.append(time.monotonic() - began)
            except Exception as error:  # noqa: BLE001 — the test looks at them
                errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seconds, errors
    finally:
        ended.set()
        thread.join()


def _eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.fixture
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return Signer(tmp_path_factory.mktemp("keys"))


NODE_LOST = "The database server of this tenant is unavailable"


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A node, a tenant on it, and a tenant on another one."""

    settings: Settings
    engine: Engine
    watch: ClusterWatch
    node: Node
    lost: str
    kept: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def number(self) -> int:
        return next(node.id for node in self.watch.nodes if node.address == self.address)


@pytest.fixture
def outage(local: LocalCluster, settings: Settings, signer: Signer) -> Iterator[Outage]:
    """Two tenants with documents, and a job each that no worker has taken."""
    limits = settings.worker.model_copy(update={"processes": 1, "poll_s": 0.2})
    settings = with_tokens(settings.model_copy(update={"worker": limits}), signer)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        (node, lost), (_, kept) = _tenant_by_node(engine, local).items()
        for name in (lost, kept):
            engine.tenant(name).ingest(_documents(20))
            engine.tenant(name).jobs.enqueue(SourceDocument(source="late", data=b"The invoice waits."))
        watch = ClusterWatch(engine.parts.database)
        watch.look()
        yield Outage(settings=settings, engine=engine, watch=watch, node=node, lost=lost, kept=kept)


def test_node__that_is_killed_stops_its_own_tenants_and_is_named(
    outage: Outage, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kosmos_rag.apps.worker")
    _kill_under_load(outage)
    _assert_is_named(outage, signer)
    outage.watch.look()
    assert f"node {outage.number} of the cluster ({outage.address}) is unavailable" in caplog.text
    _assert_jobs_wait(outage)
    outage.watch.look()
    assert f"node {outage.number} of the cluster ({outage.address}) is available again" in caplog.text
    assert outage.engine.tenant(outage.lost).search("invoice").hits[0].source == "late"


def _kill_under_load(outage: Outage) -> None:
    kept, lost = outage.engine.tenant(outage.kept), outage.engine.tenant(outage.lost)

    def write(number: int) -> None:
        kept.ingest([SourceDocument(source=f"w{number}", data=f"The leave of {number}.".encode())])

    with (
        _load(lambda number: kept.search(f"margin number{number % 20}")) as (asked, ask_errors),
        _load(write) as (written, write_errors),
        _load(lambda number: lost.search(f"margin number{number % 20}")) as (_, lost_errors),
    ):
        _eventually(lambda: len(asked) > 3 and len(written) > 3)
        outage.node.kill()
        _eventually(lambda: len(lost_errors) > 3)
        at_loss = len(asked), len(written)
        _eventually(lambda: len(asked) > at_loss[0] + 5 and len(written) > at_loss[1] + 5)
    assert (ask_errors, write_errors) == ([], [])
    assert {type(error) for error in lost_errors} == {NodeUnavailable}
    assert f"node {outage.address} of the cluster" in str(lost_errors[-1])
    assert not any("database.url" in str(error) for error in lost_errors)


def _assert_is_named(outage: Outage, signer: Signer) -> None:
    number = outage.number
    checks = {check.name: check for check in diagnose(outage.settings) if check.name.startswith("node ")}
    assert {name: check.ok for name, check in checks.items()} == {
        f"node {node.id}": node.id != number for node in outage.watch.nodes
    }
    assert outage.address in checks[f"node {number}"].detail
    with serving(outage.engine, signer) as service:
        with service.client("") as client:
            ready = client.get("/readyz")
        assert (ready.status_code, ready.text) == (200, f"ok\nnode {number} of the cluster is unavailable\n")
        with service.client(tenant=outage.lost) as client:
            refused = client.post("/v1/search", json={"question": "margin"})
        assert (refused.status_code, refused.json()["title"]) == (503, NODE_LOST)
        assert str(outage.node.port) not in refused.text
        with service.client(tenant=outage.kept) as client:
            answered = client.post("/v1/search", json={"question": "margin"})
        assert answered.json()["hits"]
    outage.watch.look()
    database = outage.engine.parts.database
    metrics = WorkerMetrics(Queue.open(database, outage.settings.worker), database, outage.watch)
    assert metrics.registry.get_sample_value("kosmos_cluster_node_up", {"node": outage.address}) == 0


def _assert_jobs_wait(outage: Outage) -> None:
    """The worker does the jobs of the others; those of the lost tenants wait, and use up no attempt."""
    lost, kept = outage.engine.tenant(outage.lost).jobs, outage.engine.tenant(outage.kept).jobs

    def late(jobs: TenantJobs) -> JobInfo:
        (job,) = (job for job in jobs.find() if job.kind == kinds.DOCUMENT)
        return job

    supervisor = Supervisor(outage.settings, kinds=[kinds.DOCUMENT], create_runner=create_runner)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        _eventually(lambda: late(kept).state is JobState.DONE)
        _eventually(lambda: late(lost).state is JobState.SCHEDULED)
        waiting = late(lost)
        assert (waiting.attempt, waiting.code) == (0, "NodeUnavailable")
        assert outage.address in (waiting.error or "")
        outage.node.start()
        with psycopg.connect(outage.settings.database.admin_url or "") as connection:
            connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE id = %s", [waiting.id])
        _eventually(lambda: late(lost).state is JobState.DONE)
    finally:
        supervisor.stop()
        thread.join()
