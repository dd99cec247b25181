"""The coordinator dies between the commit of a document on its node and that of its job."""

import threading
import time
from contextlib import suppress

import psycopg
import pytest

from benchmarks.citus_cluster import LocalCluster
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.types import JobState, Outcome
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.tenants import tenant
from kosmos_rag.worker.supervisor import Supervisor
from tests.citus.load import eventually
from tests.integration.variants import changed
from tests.reliability.engine_work import create_runner

_COMMITS_SLOWLY = ("commit_delay = 100000", "commit_siblings = 0")
"""A commit waits 100 ms before it is on disk: that is when the coordinator is killed."""


@pytest.mark.parametrize("use_nodes", [False, True], ids=["through the coordinator", "on the nodes"])
@pytest.mark.parametrize("crashes", [3, pytest.param(50, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_crash__between_the_two_commits_repeats_the_job_and_has_its_effect_once(
    local: LocalCluster, settings: Settings, name: str, crashes: int, use_nodes: bool
) -> None:
    limits = {"worker.processes": 1, "worker.poll_s": 0.2, "worker.lease_s": 2.0}
    settings = changed(settings, {**limits, "database.use_nodes": use_nodes})
    admin = settings.database.admin_url or ""
    with psycopg.connect(admin, autocommit=True) as connection:
        placement = find_placement(connection, tenant(name).id)
        assert placement is not None
        for setting in _COMMITS_SLOWLY:
            connection.execute(f"ALTER SYSTEM SET {setting}")
        connection.execute("SELECT pg_reload_conf()")
    node = next(node for node in local.workers if node.port == placement.port)
    between = 0
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(name)
        scope.ingest([SourceDocument(source="first", data=b"The tenant exists.")])
        supervisor = Supervisor(settings, kinds=[kinds.DOCUMENT], create_runner=create_runner)
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        try:
            with psycopg.connect(local.url("postgres", "kosmos", node), autocommit=True) as shard:
                for number in range(crashes):
                    between += _crash(local, scope, shard, number)
        finally:
            supervisor.stop()
            thread.join()
            with psycopg.connect(admin, autocommit=True) as connection:
                for setting in _COMMITS_SLOWLY:
                    connection.execute(f"ALTER SYSTEM RESET {setting.split()[0]}")
                connection.execute("SELECT pg_reload_conf()")
    assert between >= crashes // 2, f"{between} of {crashes} crashes were between the two commits"


def _crash(local: LocalCluster, scope: Tenant, shard: psycopg.Connection, number: int) -> bool:
    """Crash while a document is published. Returns whether it was between the commits."""
    source = f"d{number}"
    job = scope.jobs.enqueue(SourceDocument(source=source, data=f"The margin of number{number}.".encode()))
    owner, deadline = tenant(scope.name).id, time.monotonic() + 30
    look = "SELECT count(*) FROM kosmos.documents WHERE tenant_id = %s AND source = %s"
    while shard.execute(look, [owner, source]).fetchone() != (1,):
        assert time.monotonic() < deadline
    local.coordinator.kill()
    local.coordinator.start()

    def state() -> JobState | None:
        with suppress(DatabaseError):
            return scope.jobs.find(ids=[job])[0].state
        return None

    eventually(lambda: state() is JobState.DONE)
    (document,) = [document for document in scope.documents(limit=1000) if document.source == source]
    assert (document.version, scope.search(f"number{number}").hits[0].source) == (1, source)
    # The job that is repeated finds that its upload was deleted with the publication of its document.
    return scope.jobs.find(ids=[job])[0].outcome == Outcome.GONE
