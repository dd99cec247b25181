"""Nodes come and go while tenants are read and written: an empty node, and a clone of one that has tenants."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from benchmarks.citus_cluster import LocalCluster, citus_cluster, clone_node
from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.cluster import CitusCluster
from kosmos_rag.storage.provision import APP, OWNER, WORKER
from kosmos_rag.storage.setup import distribute_tables, set_up
from kosmos_rag.storage.tenants import tenant
from tests.citus.load import eventually, load
from tests.conftest import PASSWORD

SHARDS = 4
"""Of each table: a shard takes seconds to move."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster of this module's own, with few shards."""

    servers: LocalCluster
    settings: Settings
    """Searches and publications use the nodes."""

    @property
    def admin(self) -> str:
        """The administrator's address of the coordinator."""
        return self.servers.url("postgres", "kosmos")

    def run(self, statement: str, *values: object) -> object:
        """Run a statement on the coordinator as its administrator, and return its value."""
        with psycopg.connect(self.admin, autocommit=True) as connection:
            (value,) = connection.execute(statement.encode(), values).fetchone() or (None,)
            return value

    def names(self, count: int, port: int) -> list[str]:
        """New tenants of a node."""
        number = next(node.id for node in CitusCluster(self.admin).list_nodes() if node.address == f"127.0.0.1:{port}")
        result: list[str] = []
        while len(result) < count:
            name = f"tenant-{uuid.uuid4().hex[:12]}"
            if CitusCluster(self.admin).find_tenant(tenant(name)).node == number:
                result.append(name)
        return result


@pytest.fixture
def small_cluster(loaded_settings: Settings) -> Iterator[Cluster]:
    if not (folder := os.environ.get("KOSMOS_TEST_CITUS_BIN")):
        pytest.skip("nodes are added only where KOSMOS_TEST_CITUS_BIN starts them")
    passwords = dict.fromkeys(("postgres", OWNER, APP, WORKER), PASSWORD)
    with citus_cluster(Path(folder), passwords=passwords) as servers:
        servers.create_database("kosmos")
        database = servers.settings("kosmos")
        set_up(database)
        with psycopg.connect(servers.url("postgres", "kosmos"), autocommit=True) as connection:
            for role in (APP, WORKER):
                connection.execute(
                    sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(PASSWORD))
                )
        distribute_tables(database, shards=SHARDS)
        with pytest.raises(RequestError, match="in 4 shards"):
            distribute_tables(database, shards=8)
        assert distribute_tables(database, shards=SHARDS) == distribute_tables(database) == []
        settings = loaded_settings.model_copy(update={"database": database.model_copy(update={"use_nodes": True})})
        yield Cluster(servers=servers, settings=settings)


@contextmanager
def _busy(engine: Engine, names: Sequence[str], writer: Engine | None = None) -> Iterator[None]:
    """Ask and write to tenants. No call fails, and no document is lost."""
    prefix, writer = uuid.uuid4().hex[:4], writer or engine
    for name in names:
        engine.tenant(name).ingest([SourceDocument(source="first", data=b"The margin of the quarter.")])
    before = {name: len(engine.tenant(name).documents(limit=100_000)) for name in names}

    def ask(name: str, _: int) -> None:
        assert engine.tenant(name).search("margin").hits[0].source == "first"

    def write(name: str, number: int) -> None:
        writer.tenant(name).ingest(
            [SourceDocument(source=f"w-{prefix}-{number}", data=f"The leave of {number}.".encode())]
        )

    with ExitStack() as stack:
        queries = [stack.enter_context(load(partial(ask, name))) for name in names]
        writes = [stack.enter_context(load(partial(write, name))) for name in names]
        calls = [*queries, *writes]
        eventually(lambda: all(len(seconds) > 2 for seconds, _ in calls))
        yield
        counts = [len(seconds) for seconds, _ in calls]
        eventually(
            lambda: all(
                len(seconds) > count + 2 or errors for (seconds, errors), count in zip(calls, counts, strict=True)
            )
        )
    for _, errors in calls:
        for error in errors:
            raise error
    for name, (seconds, _) in zip(names, writes, strict=True):
        assert len(engine.tenant(name).documents(limit=100_000)) == before[name] + len(seconds)


@pytest.mark.timeout(600)
def test_empty_node__is_added_filled_and_removed(small_cluster: Cluster) -> None:
    with Engine(small_cluster.settings, embedder=HashingEmbedder()) as engine:
        names = [name for node in small_cluster.servers.workers for name in small_cluster.names(2, node.port)]
        with small_cluster.servers.new_node("kosmos") as added:
            with _busy(engine, names):
                small_cluster.run("SELECT citus_add_node('127.0.0.1', %s)", added.port)
                small_cluster.run("SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes')")
            nodes = CitusCluster(small_cluster.admin).list_nodes()
            assert sorted(node.shards for node in nodes) == [1, 1, 2]
            with _busy(engine, names):
                small_cluster.run("SELECT citus_drain_node('127.0.0.1', %s, 'block_writes')", added.port)
                small_cluster.run("SELECT citus_remove_node('127.0.0.1', %s)", added.port)
        assert sum(node.shards for node in CitusCluster(small_cluster.admin).list_nodes()) == SHARDS


def _promote(cluster: Cluster, number: object) -> None:
    """Repeat the promotion where the server has ended it because of a deadlock with a writer."""
    for left in (2, 1, 0):
        try:
            cluster.run("SELECT citus_promote_clone_and_rebalance(%s)", number)
            return
        except psycopg.errors.DeadlockDetected:
            if not left:
                raise


@pytest.mark.timeout(600)
def test_clone__takes_half_of_the_tenants_of_its_node(small_cluster: Cluster) -> None:
    """A clone is a replica: the shards are on it before it becomes a node, so writes wait for its promotion alone.

    Citus blocks those through the coordinator: documents that are published on the nodes meanwhile would be lost.
    """
    source = small_cluster.servers.workers[0]
    database = small_cluster.settings.database.model_copy(update={"use_nodes": False})
    with (
        Engine(small_cluster.settings, embedder=HashingEmbedder()) as engine,
        Engine(small_cluster.settings.model_copy(update={"database": database}), embedder=HashingEmbedder()) as writer,
    ):
        names = small_cluster.names(6, source.port)
        with clone_node(small_cluster.servers, source) as clone:
            with _busy(engine, names, writer):
                number = small_cluster.run(
                    "SELECT citus_add_clone_node('127.0.0.1', %s, '127.0.0.1', %s)", clone.port, source.port
                )
                _promote(small_cluster, number)
            shards = {node.address: node.shards for node in CitusCluster(small_cluster.admin).list_nodes()}
            assert shards[f"127.0.0.1:{clone.port}"] == shards[f"127.0.0.1:{source.port}"] == 1
            for name in names:
                assert engine.tenant(name).search("margin").hits
