"""Searches on a real replica: lag, what a caller has written, the audit log, and a server that is lost."""

import errno
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.core.telemetry.prometheus import PrometheusObserver
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.provision import APP, WORKER
from tests.integration.apps.http.serving import Signer, serving, with_tokens
from tests.integration.variants import changed, opened
from tests.standby import ReplicatedServer, replicated_server
from tests.threads import refused_threads


@pytest.fixture(scope="module")
def servers() -> Iterator[ReplicatedServer]:
    with replicated_server() as started:
        yield started


@pytest.fixture
def replicated(loaded_settings: Settings, servers: ReplicatedServer) -> Iterator[Settings]:
    """Settings with the replica, which runs and has all changes."""
    servers.replica.ensure_started()
    servers.run_on_replica("SELECT pg_wal_replay_resume()")
    servers.wait_for_replica()
    settings = loaded_settings.model_copy(update={"database": servers.settings})
    yield changed(settings, {"rag.retrieval.result_cache": 100, "database.replica_max_lag_s": 600.0})
    servers.cluster.coordinator.ensure_started()
    servers.replica.ensure_started()
    servers.run_on_replica("SELECT pg_wal_replay_resume()")


def _ports(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the port of the server of each statement from now on."""
    ports: list[int] = []
    execute = psycopg.Cursor.execute

    def record(self: psycopg.Cursor, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
        if "search_state" in str(query):
            ports.append(self.connection.info.port)
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    return ports


def _document(word: str) -> SourceDocument:
    return SourceDocument(source=word, data=f"The {word} of the quarter.".encode())


def test_search__is_read_from_the_replica_and_own_writes_where_the_caller_asks_for_them(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        ports = _ports(engine, monkeypatch)
        assert [hit.source for hit in scope.search("margin").hits] == ["margin"]
        assert set(ports) == {servers.replica.port}
        servers.run_on_replica("SELECT pg_wal_replay_pause()")
        scope.ingest([_document("revenue")], prune=False)
        assert [hit.source for hit in scope.search("revenue").hits][:1] != ["revenue"]
        ports.clear()
        tenant = engine.tenant(tenant_name, read_your_writes=True)
        for answered in (tenant.search("revenue").hits, tenant.context("revenue").passages):
            assert answered[0].text == "The revenue of the quarter."
        assert set(ports) == {servers.cluster.coordinator.port}


def test_service__reads_own_writes_where_the_request_asks_for_them(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str, tmp_path: Path
) -> None:
    signer = Signer(tmp_path)
    with Engine(with_tokens(replicated, signer), embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        with serving(engine, signer) as service, service.client(tenant=tenant_name) as client:

            def ask(**body: Any) -> list[str]:
                response = client.post("/v1/search", json={"question": "revenue", **body})
                return [hit["source"] for hit in response.raise_for_status().json()["hits"]]

            ask()
            servers.run_on_replica("SELECT pg_wal_replay_pause()")
            scope.ingest([_document("revenue")], prune=False)
            assert "revenue" not in ask()
            assert "revenue" in ask(read_your_writes=True)
            answer = client.post("/v1/answer", json={"question": "revenue", "read_your_writes": True})
            assert "revenue" in answer.raise_for_status().text


def test_replica__that_is_too_far_behind_is_not_read(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    settings = changed(replicated, {"database.replica_max_lag_s": 1.5})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        assert scope.search("margin").hits
        (replica,) = engine.database.replicas()
        observer = PrometheusObserver()
        engine.telemetry.attach(observer)
        assert (replica.lag_s or 0.0) < 1.5
        servers.run_on_replica("SELECT pg_wal_replay_pause()")
        deadline = time.monotonic() + 60
        number = 0
        while [hit.source for hit in scope.search("revenue").hits][:1] != ["revenue"]:
            assert time.monotonic() < deadline
            scope.ingest([_document("revenue"), _document(f"leave{number}")], prune=False)
            number += 1
            time.sleep(0.3)
        output = observer.registry.get_sample_value("kosmos_replica_lag_seconds", {"replica": replica.address})
        assert (output or 0.0) > 1.5
        (check,) = (check for check in diagnose(settings) if check.name == f"replica {replica.address}")
        assert not check.ok
        assert "searches leave it" in check.detail


def test_replica__that_is_behind_at_the_start_of_a_process_is_not_read(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).ingest([_document("margin")])
        servers.wait_for_replica()
        servers.run_on_replica("SELECT pg_wal_replay_pause()")
        engine.tenant(tenant_name).ingest([_document("revenue")], prune=False)
    # This process knows no position of the primary that the replica has reached.
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        assert [hit.source for hit in engine.tenant(tenant_name).search("revenue").hits][:1] == ["revenue"]
        (replica,) = engine.database.replicas()
        assert replica.lag_s is None
        servers.run_on_replica("SELECT pg_wal_replay_resume()")
        servers.wait_for_replica()
        (replica,) = engine.database.measure_replicas()
        assert replica.lag_s is not None


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_replica__is_not_read_while_its_measurement_fails_and_is_measured_again(
    replicated: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is none of the driver: the thread that measures continues all the same."""
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).search("margin")
        (replica,) = engine.database.replicas()
        execute = psycopg.Connection.execute

        def fail(self: psycopg.Connection, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
            if "pg_last_wal_replay_lsn" in str(query):
                raise OSError(errno.EMFILE, "Too many open files")
            return execute(self, query, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(psycopg.Connection, "execute", fail)
            _wait_until(lambda: replica.lag_s is None)
        _wait_until(lambda: replica.lag_s is not None)


def test_replica__is_measured_again_where_the_thread_that_does_it_could_not_start(
    replicated: Settings, tenant_name: str, servers: ReplicatedServer
) -> None:
    settings = changed(replicated, {"database.replica_max_lag_s": 0.5})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        with refused_threads("kosmos-rag-replicas"):
            engine.tenant(tenant_name).search("margin")
        (replica,) = engine.database.replicas()
        assert replica.lag_s is not None
        servers.run_on_replica("SELECT pg_wal_replay_pause()")
        engine.tenant(tenant_name).ingest(_document("margin"))
        engine.tenant(tenant_name).search("margin")
        _wait_until(lambda: (replica.lag_s or 0.0) > 0.5)


def test_search__goes_to_the_primary_while_the_replica_is_down(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        assert scope.search("margin").hits
        servers.replica.kill()
        for _ in range(10):
            began = time.monotonic()
            assert scope.search("margin").hits
            assert time.monotonic() - began < 3


def test_search__goes_on_while_the_primary_is_down(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        assert scope.search("margin").hits
        servers.cluster.coordinator.kill()
        time.sleep(2.5)  # it is measured meanwhile
        for number in range(5):
            assert scope.search(f"margin {number}").hits


def test_audit_log__is_written_by_the_primary(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(changed(replicated, {"rag.audit.enabled": True}), embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        servers.wait_for_replica()
        ports = _ports(engine, monkeypatch)
        result = scope.search("margin")
        assert set(ports) == {servers.replica.port}
        assert result.hits
        assert result.id in {record.id for record in scope.audit.find()}


def test_replica_as_the_only_server__says_what_to_do_where_it_must_write(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).ingest([_document("margin")])
    servers.wait_for_replica()
    writer = changed(replicated, {"database.worker_url": servers.replica_url(WORKER)})
    (check,) = [check for check in diagnose(writer) if check.name == "role that writes"]
    remedy = "the server takes no changes; name the primary in database.worker_url"
    assert (check.ok, check.detail.startswith(remedy)) == (False, True), check.detail
    alone = {"database.url": servers.replica_url(APP), "database.replica_urls": ()}
    with (
        opened(replicated, {**alone, "rag.audit.enabled": True}) as engine,
        pytest.raises(
            StatementFailed, match=r"name its primary in database\.url, and replicas in database\.replica_urls"
        ),
    ):
        engine.tenant(tenant_name).search("margin")


def test_replica__that_is_ahead_of_a_restored_primary_is_not_read(
    replicated: Settings, servers: ReplicatedServer, tenant_name: str
) -> None:
    """It has what a deletion, or another permission, is to have again in the state that was restored."""
    primary, folder = servers.cluster.coordinator, servers.cluster.coordinator.data.parent
    primary.stop()
    subprocess.run(["cp", "-a", primary.data, folder / "backup"], check=True)
    primary.start()
    with Engine(replicated, embedder=HashingEmbedder()) as engine:
        engine.tenant(tenant_name).ingest([_document("margin")])
    servers.wait_for_replica()
    primary.stop()
    primary.data.rename(folder / "former")
    (folder / "backup").rename(primary.data)
    try:
        primary.start()
        with Engine(replicated, embedder=HashingEmbedder()) as engine:
            assert engine.tenant(tenant_name).search("margin").hits == ()
            (replica,) = engine.database.replicas()
            assert (replica.is_refused, replica.lag_s) == (True, None)
            # The primary writes as much as was lost, and passes the position of the replica.
            with psycopg.connect(servers.cluster.url("postgres", "kosmos"), autocommit=True) as connection:
                connection.execute("SELECT pg_switch_wal()")
            engine.tenant(tenant_name).ingest([_document("revenue")])
            (replica,) = engine.database.measure_replicas()
            assert (replica.is_refused, replica.lag_s) == (True, None)
    finally:
        primary.stop()
        shutil.rmtree(primary.data)
        (folder / "former").rename(primary.data)


def test_server__that_is_no_replica_of_the_primary_is_not_read(
    replicated: Settings,
    servers: ReplicatedServer,
    shared_engine: Engine,
    tenant_name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another database with other documents: reading it would give the answers of another installation."""
    other = shared_engine.settings.database.url
    with opened(replicated, {"database.replica_urls": (other,)}) as engine:
        scope = engine.tenant(tenant_name)
        scope.ingest([_document("margin")])
        assert [hit.source for hit in scope.search("margin").hits] == ["margin"]
        (replica,) = engine.database.replicas()
        assert replica.lag_s is None
        assert engine.database._replicas is not None
        for _ in range(3):
            engine.database._replicas.measure()
        assert [getattr(record, "action", None) for record in caplog.records].count("replica_refused") == 1
