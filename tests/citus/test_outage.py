"""A worker node is killed under load: its tenants wait and say why, the others notice nothing."""

import logging
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

import psycopg
import pytest

from benchmarks.citus_cluster import LocalCluster, Node
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import DatabaseUnavailable, NodeUnavailable
from kosmos_rag.core.types import JobInfo, JobState
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.cluster import ClusterWatch
from kosmos_rag.worker.collectors import WorkerMetrics
from kosmos_rag.worker.supervisor import Supervisor
from tests.citus.load import SMALL_INDEXES, eventually, load, tenants_by_port
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.relay import relay
from tests.reliability.engine_work import create_runner


def _documents(count: int, word: str = "margin") -> list[SourceDocument]:
    return [SourceDocument(source=f"{word}{n}", data=f"The {word} of number{n}.".encode()) for n in range(count)]


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
    lost_tenant: str
    live_tenant: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def number(self) -> int:
        return next(node.id for node in self.watch.nodes if node.address == self.address)


@pytest.fixture(params=[False, True], ids=["through the coordinator", "on the nodes"])
def outage(local: LocalCluster, settings: Settings, signer: Signer, request: pytest.FixtureRequest) -> Iterator[Outage]:
    """Two tenants with documents, and a job each that no worker has taken."""
    limits = {"worker.processes": 1, "worker.poll_s": 0.2}
    settings = with_tokens(changed(settings, {**limits, "database.use_nodes": request.param, **SMALL_INDEXES}), signer)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        (port, lost_tenant), (_, live_tenant) = tenants_by_port(engine).items()
        node = next(node for node in local.workers if node.port == port)
        for name in (lost_tenant, live_tenant):
            engine.tenant(name).ingest(_documents(20))
            engine.tenant(name).jobs.enqueue(SourceDocument(source="late", data=b"The invoice waits."))
        watch = ClusterWatch(engine.database)
        watch.look()
        yield Outage(
            settings=settings, engine=engine, watch=watch, node=node, lost_tenant=lost_tenant, live_tenant=live_tenant
        )


def test_node__that_is_killed_stops_its_own_tenants_and_is_named(
    outage: Outage, signer: Signer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kosmos_rag.worker")
    _kill_underload(outage)
    _assert_is_named(outage, signer)
    _assert_builds_of_others_go_on(outage)
    outage.watch.look()
    assert f"node {outage.number} of the cluster ({outage.address}) is unavailable" in caplog.text
    _assert_jobs_wait(outage)
    outage.watch.look()
    assert f"node {outage.number} of the cluster ({outage.address}) is available again" in caplog.text
    assert outage.engine.tenant(outage.lost_tenant).search("invoice").hits[0].source == "late"


@pytest.mark.parametrize("outage", [True], ids=["on the nodes"], indirect=True)
def test_node__that_is_killed_takes_no_calls_from_other_tenants(outage: Outage) -> None:
    """Each of four callers asks a tenant of the lost node and one of another in turn, as threads of a service do."""
    healthy, failed = 0, list[Exception]()

    def call(caller: int, number: int) -> None:
        nonlocal healthy
        question = f"margin number{(caller + number) % 20}"
        assert outage.engine.tenant(outage.live_tenant).search(question).hits
        healthy += 1
        try:
            outage.engine.tenant(outage.lost_tenant).search(question)
        except NodeUnavailable as error:
            failed.append(error)

    with ExitStack() as callers:
        errors = [callers.enter_context(load(partial(call, caller)))[1] for caller in range(4)]
        eventually(lambda: healthy > 20)
        counts = []
        for lost_tenantost_node in (False, True):
            if lost_tenantost_node:
                outage.node.kill()
            before = healthy
            time.sleep(12)
            counts.append(healthy - before)
    assert errors == [[]] * 4
    assert counts[1] >= 0.9 * counts[0], counts
    assert failed
    assert not any("pool_size" in str(error) for error in failed)


@pytest.mark.parametrize("outage", [True], ids=["on the nodes"], indirect=True)
def test_coordinator__that_is_killed_stops_no_search_on_the_nodes(
    outage: Outage, local: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each node knows the place of every tenant, and answers where the coordinator does not."""
    engine = outage.engine
    unseen = f"tenant-{uuid.uuid4().hex[:12]}"
    engine.tenant(unseen).ingest(_documents(3))
    for name in (outage.live_tenant, outage.lost_tenant):
        assert engine.tenant(name).search("margin number7").hits
    with Engine(outage.settings, embedder=HashingEmbedder()) as other:
        assert other.tenant(outage.live_tenant).search("margin number7").hits
        local.coordinator.kill()
        monkeypatch.setattr("kosmos_rag.storage.node_pools._PLACEMENT_S", 0.0)  # every search looks up its node
        took = []
        for number in range(20):
            for name in (outage.live_tenant, outage.lost_tenant, unseen):
                began = time.monotonic()
                assert other.tenant(name).search(f"margin number{number}").hits
                took.append(time.monotonic() - began)
        assert max(took) < 3
        local.coordinator.start()
        eventually(lambda: bool(_ingest(other, outage.live_tenant)))


@pytest.mark.parametrize("outage", [True], ids=["on the nodes"], indirect=True)
def test_node__is_reached_by_the_port_of_its_pooler(outage: Outage, local: LocalCluster) -> None:
    """On this machine nodes differ by port, so the one pooler is that of one node."""
    with relay(local.url("kosmos_app", "kosmos", outage.node)) as pooler:
        settings = changed(outage.settings, {"database.node_port": pooler.port})
        with Engine(settings, embedder=HashingEmbedder()) as engine:
            assert engine.tenant(outage.lost_tenant).search("margin number7").hits
            assert pooler.accepted > 0


def _ingest(engine: Engine, name: str) -> bool:
    with suppress(DatabaseUnavailable):
        engine.tenant(name).ingest([SourceDocument(source="after", data=b"The leave after the outage.")])
        return bool(engine.tenant(name).search("leave outage").hits)
    return False


def _kill_underload(outage: Outage) -> None:
    tenant, lost_tenant = outage.engine.tenant(outage.live_tenant), outage.engine.tenant(outage.lost_tenant)

    def write(number: int) -> None:
        tenant.ingest([SourceDocument(source=f"w{number}", data=f"The leave of {number}.".encode())])

    with (
        load(lambda number: tenant.search(f"margin number{number % 20}")) as (queries, ask_errors),
        load(write) as (writes, write_errors),
        load(lambda number: lost_tenant.search(f"margin number{number % 20}")) as (_, lost_errors),
    ):
        eventually(lambda: len(queries) > 3 and len(writes) > 3)
        outage.node.kill()
        eventually(lambda: len(lost_errors) > 3)
        at_loss = len(queries), len(writes)
        eventually(lambda: len(queries) > at_loss[0] + 5 and len(writes) > at_loss[1] + 5)
    assert (ask_errors, write_errors) == ([], [])
    assert {type(error) for error in lost_errors} == {NodeUnavailable}
    assert f"node {outage.address} of the cluster" in str(lost_errors[-1])
    assert not any("database.url" in str(error) for error in lost_errors)


def _assert_is_named(outage: Outage, signer: Signer) -> None:
    number = outage.number
    diagnosis = diagnose(outage.settings)
    assert {"worker", "clock"} <= {check.name for check in diagnosis}
    checks = {check.name: check for check in diagnosis if check.name.startswith("node ")}
    assert {name: check.ok for name, check in checks.items()} == {
        f"node {node.id}": node.id != number for node in outage.watch.nodes
    }
    assert outage.address in checks[f"node {number}"].detail
    with serving(outage.engine, signer) as service:
        with service.client("") as client:
            ready = client.get("/readyz")
        assert (ready.status_code, ready.text) == (200, f"ok\nnode {number} of the cluster is unavailable\n")
        with service.client(tenant=outage.lost_tenant) as client:
            refused = client.post("/v1/search", json={"question": "margin"})
        assert (refused.status_code, refused.json()["title"]) == (503, NODE_LOST)
        assert str(outage.node.port) not in refused.text
        with service.client(tenant=outage.live_tenant) as client:
            answered = client.post("/v1/search", json={"question": "margin"})
        assert answered.json()["hits"]
    outage.watch.look()
    database = outage.engine.database
    metrics = WorkerMetrics(Queue.open(database, outage.settings.worker), database, outage.watch)
    assert metrics.registry.get_sample_value("kosmos_cluster_node_up", {"node": outage.address}) == 0


def _assert_builds_of_others_go_on(outage: Outage) -> None:
    live_tenant, lost_tenant = (
        outage.engine.tenant(outage.live_tenant).indexes,
        outage.engine.tenant(outage.lost_tenant).indexes,
    )
    live_tenant.build()
    (built,) = [info for info in live_tenant.status() if info.kind == "ivfflat"]
    assert (built.bytes > 0, built.due) == (True, None)
    with pytest.raises(NodeUnavailable):
        lost_tenant.build()


def _assert_jobs_wait(outage: Outage) -> None:
    """The worker does the jobs of the others; those of the lost tenants wait, and use up no attempt."""
    lost_tenant, live_tenant = (
        outage.engine.tenant(outage.lost_tenant).jobs,
        outage.engine.tenant(outage.live_tenant).jobs,
    )

    def late(jobs: TenantJobs) -> JobInfo:
        (job,) = (job for job in jobs.find() if job.kind == kinds.DOCUMENT)
        return job

    supervisor = Supervisor(outage.settings, kinds=[kinds.DOCUMENT], create_runner=create_runner)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        eventually(lambda: late(live_tenant).state is JobState.DONE)
        eventually(lambda: late(lost_tenant).state is JobState.SCHEDULED)
        waiting = late(lost_tenant)
        assert (waiting.attempt, waiting.code) == (0, "NodeUnavailable")
        assert outage.address in (waiting.error or "")
        outage.node.start()

        def is_done() -> bool:
            # Its time is a minute away. The worker itself finds within a second that the node is back.
            with psycopg.connect(outage.settings.database.admin_url or "") as connection:
                connection.execute(
                    "UPDATE kosmos.jobs SET run_at = now() WHERE id = %s AND state = 'scheduled'", [waiting.id]
                )
            return late(lost_tenant).state is JobState.DONE

        eventually(is_done)
    finally:
        supervisor.stop()
        thread.join()
