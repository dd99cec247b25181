"""Tenants are moved and isolated while they are asked and written to."""

from typing import Any

import psycopg
import pytest

from kosmos_rag import Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import IndexLocked, RequestError, StatementFailed
from kosmos_rag.retrieval import pipeline
from kosmos_rag.retrieval.hydrate import hydrate
from kosmos_rag.storage.cluster import CitusCluster
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.citus.load import SMALL_INDEXES, eventually, load, tenants_by_port
from tests.integration.variants import opened


def test_tenant__is_moved_while_it_and_others_are_asked_and_written_to(
    settings: Settings, cluster: DatabaseSettings
) -> None:
    admin = cluster.admin_url or ""
    with opened(settings, SMALL_INDEXES) as engine:
        moved, other = tenants_by_port(engine).values()
        for name in (moved, other):
            engine.tenant(name).ingest(
                SourceDocument(source=f"d{n}", data=f"The margin of number{n}.".encode()) for n in range(40)
            )
        engine.tenant(moved).indexes.build()
        source = CitusCluster(admin).find_tenant(tenant(moved)).node
        target = CitusCluster(admin).find_tenant(tenant(other)).node
        publications = dict.fromkeys((moved, other), 0)

        def write(name: str, number: int) -> None:
            engine.tenant(name).ingest([SourceDocument(source=f"w{number}", data=f"The leave of w{number}.".encode())])
            publications[name] += 1

        def ask(name: str, number: int) -> None:
            assert engine.tenant(name).search(f"number{number % 40}").hits[0].source == f"d{number % 40}"

        with (
            load(lambda number: ask(moved, number)) as (queries, ask_errors),
            load(lambda number: write(moved, number)) as (waits, write_errors),
            load(lambda number: ask(other, number)) as (other_asked, other_ask_errors),
            load(lambda number: write(other, number)) as (other_waits, other_write_errors),
        ):
            eventually(lambda: min(len(queries), len(waits), len(other_asked), len(other_waits)) > 2)
            result = CitusCluster(admin).move_tenant(tenant(moved), target, limit_s=60)
            counts = len(queries), len(waits)
            eventually(lambda: len(queries) > counts[0] + 3 and len(waits) > counts[1] + 3)
        assert (other_ask_errors, other_write_errors, ask_errors, write_errors) == ([], [], [], [])
        # Its writes wait for the move, and not longer.
        assert max(waits) < result.seconds + 10
        assert (result.source, result.target) == (source, target)
        assert CitusCluster(admin).find_tenant(tenant(moved)).node == target
        assert len(engine.tenant(moved).documents(limit=1000)) == 40 + publications[moved]
        # Its vector index came with it.
        (index,) = [info for info in engine.tenant(moved).indexes.status() if info.kind == "ivfflat"]
        assert index.bytes > 0
        engine.tenant(moved).indexes.build()
        assert engine.tenant(moved).search("number7").hits[0].source == "d7"


def test_tenant__is_isolated_with_its_index_and_rows(settings: Settings, cluster: DatabaseSettings, name: str) -> None:
    admin = cluster.admin_url or ""
    with opened(settings, SMALL_INDEXES) as engine:
        scope = engine.tenant(name)
        scope.ingest(SourceDocument(source=f"d{n}", data=f"The margin of number{n}.".encode()) for n in range(40))
        scope.indexes.build()
        before = CitusCluster(admin).find_tenant(tenant(name))
        assert not before.isolated
        result = CitusCluster(admin).isolate_tenant(tenant(name), limit_s=120)
        after = CitusCluster(admin).find_tenant(tenant(name))
        assert (after.isolated, after.node, after.shard) == (True, before.node, result.shard)
        assert len(scope.documents()) == 40
        (index,) = [info for info in scope.indexes.status() if info.kind == "ivfflat"]
        assert index.bytes > 0
        assert scope.search("number7").hits[0].source == "d7"
        with pytest.raises(RequestError, match="to itself already"):
            CitusCluster(admin).isolate_tenant(tenant(name), limit_s=60)


@pytest.mark.parametrize("use_nodes", [False, True], ids=["through the coordinator", "on the nodes"])
def test_search__whose_tenant_moves_meanwhile_is_made_again(
    settings: Settings, cluster: DatabaseSettings, name: str, use_nodes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its candidates are of one node and its passages of another one, where a candidate has been deleted."""
    admin = cluster.admin_url or ""
    with opened(settings, {"database.use_nodes": use_nodes}) as engine:
        scope = engine.tenant(name)
        scope.ingest([SourceDocument(source=source, data=b"The margin of the quarter.") for source in ("a", "b")])
        calls = list[int]()

        def move_first(*args: Any, **kwargs: Any) -> Any:
            calls.append(len(calls))
            if len(calls) == 1:
                here = CitusCluster(admin).find_tenant(tenant(name)).node
                there = next(node.id for node in CitusCluster(admin).list_nodes() if node.id != here)
                CitusCluster(admin).move_tenant(tenant(name), there, limit_s=120)
                scope.delete(["a"])
            return hydrate(*args, **kwargs)

        monkeypatch.setattr(pipeline, "hydrate", move_first)
        assert [hit.source for hit in scope.search("margin").hits] == ["b"]
        assert len(calls) == 2


def test_move__says_why_it_does_not_begin(cluster: DatabaseSettings, name: str) -> None:
    admin = cluster.admin_url or ""
    nodes = CitusCluster(admin).list_nodes()
    assert all(node.available and node.shards and node.bytes for node in nodes)
    here = CitusCluster(admin).find_tenant(tenant(name)).node
    with pytest.raises(RequestError, match="cluster status"):
        CitusCluster(admin).move_tenant(tenant(name), 999, limit_s=5)
    with pytest.raises(RequestError, match=f"on node {here} already"):
        CitusCluster(admin).move_tenant(tenant(name), here, limit_s=5)
    there = next(node.id for node in nodes if node.id != here)
    with psycopg.connect(admin) as busy:
        busy.execute(statement("try_maintenance_lock"), {"tenant_id": tenant(name).id})
        with pytest.raises(IndexLocked):
            CitusCluster(admin).move_tenant(tenant(name), there, limit_s=5)
    # A transaction that writes holds the move up: it is given up, and the tenant stays.
    with psycopg.connect(admin) as writing:
        writing.execute("DELETE FROM kosmos.uploads WHERE tenant_id = %s", [tenant(name).id])
        with pytest.raises(StatementFailed, match="given up after 1 s"):
            CitusCluster(admin).move_tenant(tenant(name), there, limit_s=1)
    assert CitusCluster(admin).find_tenant(tenant(name)).node == here
