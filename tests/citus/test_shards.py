"""The state of a search is read from the shard of its tenant, by statements that a session of the node keeps."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from benchmarks.citus_cluster import LocalCluster
from kosmos_rag import Engine, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.cluster import CitusCluster
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.provision import APP
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant

READER: dict[str, Any] = {"principals": [EVERYONE], "collection": None, "texts": ["margin leave"], "weights": [1.0]}
KEPT = "SELECT name FROM pg_prepared_statements WHERE name LIKE 'search_state_of_shard %'"


@contextmanager
def _connect(local: LocalCluster, cluster: DatabaseSettings, name: str, role: str) -> Iterator[psycopg.Connection]:
    """Connect to the node that has a tenant now."""
    with psycopg.connect(cluster.admin_url or "") as admin:
        placement = find_placement(admin, tenant(name).id)
    assert placement is not None
    node = next(node for node in local.workers if node.port == placement.port)
    with psycopg.connect(local.url(role, "kosmos", node), autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture
def session(local: LocalCluster, cluster: DatabaseSettings, engine: Engine, name: str) -> Iterator[psycopg.Connection]:
    """A session of the readers' role on the node of a tenant that has a document."""
    engine.tenant(name).ingest([SourceDocument(source="a", data=b"The margin of the quarter.")])
    with _connect(local, cluster, name, APP) as connection:
        yield connection


def _read_state(connection: psycopg.Connection, name: str) -> Any:
    [(state,)] = connection.execute(statement("search_state_of_reader"), {**READER, "tenant_id": tenant(name).id})
    return state


def _read_in_transaction(connection: psycopg.Connection, name: str) -> Any:
    """Read the state as a reader whose transaction has begun: it takes the reader to another node too."""
    [(state,)] = connection.execute(statement("search_state"), {**READER, "tenant_id": tenant(name).id}).fetchall()
    return state


def test_state__follows_its_tenant_to_another_shard_and_node_and_back(
    session: psycopg.Connection, engine: Engine, name: str, cluster: DatabaseSettings
) -> None:
    scope, nodes = engine.tenant(name), CitusCluster(cluster.admin_url or "")
    here = nodes.find_tenant(tenant(name)).node
    there = next(node.id for node in nodes.list_nodes() if node.id != here)
    states = [_read_state(session, name)]
    moves = (
        lambda: nodes.isolate_tenant(tenant(name), limit_s=120),
        lambda: nodes.move_tenant(tenant(name), there, limit_s=120),
        lambda: nodes.move_tenant(tenant(name), here, limit_s=120),
    )
    for number, move in enumerate(moves):
        move()
        scope.ingest([SourceDocument(source=f"b{number}", data=b"The leave of the staff.")], prune=False)
        with ConnectionPool.begin_read(session, tenant(name).id, [EVERYONE]):
            states.append(_read_in_transaction(session, name))
        with engine.database.app.transaction(tenant(name).id, [EVERYONE]) as coordinator:
            assert states[-1] == _read_in_transaction(coordinator, name)
    assert [state["overview"]["collections"][0]["chunks"] for state in states] == [1, 2, 3, 4]
    # Back on its node, it is read without a transaction again.
    assert _read_state(session, name) == states[-1]


def test_failed_state__has_no_words_of_the_question_for_the_log_of_the_node(
    session: psycopg.Connection, name: str
) -> None:
    """PostgreSQL adds the statement that failed to the error."""
    tenant_id = tenant(name).id
    with ConnectionPool.begin_read(session, tenant_id, [EVERYONE]):
        find_shard = "SELECT tableoid::oid::text FROM kosmos.tenants WHERE tenant_id = %s"
        [(shard,)] = session.execute(find_shard, [tenant_id]).fetchall()
    with pytest.raises(psycopg.DataError) as failure:
        session.execute(
            "SELECT kosmos.run_on_shard('search_state_of_shard', %s::oid, VARIADIC %s::text[])",
            [shard, [shard, str(tenant_id), None, "{illness}", "{many}"]],
        )
    assert "many" in (failure.value.diag.message_primary or "")
    assert "illness" not in str(failure.value)


def test_state__has_nothing_of_a_tenant_that_does_not_exist(session: psycopg.Connection, other_name: str) -> None:
    assert _read_state(session, other_name) == {"overview": None, "terms": [], "indexes": []}


def test_session__grows_by_no_question(session: psycopg.Connection, engine: Engine, name: str) -> None:
    """Citus keeps memory for each run of a plan that it keeps: 75 kB a question in version 14.0.1."""
    (hit,) = engine.tenant(name).search("margin").hits
    values = {**READER, "tenant_id": tenant(name).id, "chunk_ids": [hit.chunk_id]}
    sizes = []
    for _ in range(3):
        for _ in range(100):
            _read_state(session, name)
            session.execute(statement("passages_of_reader"), values).fetchall()
        status = Path(f"/proc/{session.info.backend_pid}/status").read_text()
        sizes.append(int(status.partition("RssAnon:")[2].split()[0]))
    assert sizes[2] - sizes[0] < 1000, sizes


def test_session__prepares_a_new_version_of_the_function(
    session: psycopg.Connection, local: LocalCluster, cluster: DatabaseSettings, name: str
) -> None:
    """A pooler keeps sessions over an upgrade."""
    _read_state(session, name)
    before = session.execute(KEPT).fetchall()
    with _connect(local, cluster, name, "postgres") as admin:
        admin.execute("SET citus.enable_ddl_propagation = off")
        for cost in (101, 100):
            admin.execute(f"ALTER FUNCTION kosmos.search_state_of_shard COST {cost}")
    _read_state(session, name)
    after = session.execute(KEPT).fetchall()
    assert (len(before), len(after)) == (1, 2)


def test_session__keeps_statements_of_64_shards(session: psycopg.Connection, name: str) -> None:
    for number in range(80):
        session.execute(f'PREPARE "search_state_of_shard {number} 1" AS SELECT {number}')
    for _ in range(2):
        assert _read_state(session, name)["overview"] is not None
    assert len(session.execute(KEPT).fetchall()) == 64
