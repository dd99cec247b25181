"""Indexes on the tenant's node alone, and the retention of the audit log."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.audit.partitions import PartitionRotation
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import tenant
from tests.citus.load import SMALL_INDEXES
from tests.integration.variants import changed, opened


@pytest.fixture
def admin(cluster: DatabaseSettings) -> Iterator[psycopg.Connection]:
    """The administrator's connection to the coordinator."""
    with psycopg.connect(cluster.admin_url or "", autocommit=True) as connection:
        yield connection


@pytest.fixture
def indexed(settings: Settings, name: str) -> Iterator[Tenant]:
    """A tenant with a vector index."""
    with opened(settings, SMALL_INDEXES) as engine:
        scope = engine.tenant(name)
        scope.ingest(SourceDocument(source=f"d{n}", data=f"The margin of number{n}.".encode()) for n in range(40))
        scope.indexes.build()
        yield scope


def _indexes_by_node(admin: psycopg.Connection, tenant_id: object) -> list[int]:
    """Vector indexes of a tenant on each worker."""
    command = f"SELECT count(*) FROM pg_indexes WHERE schemaname = 'kosmos' AND indexdef LIKE '%{tenant_id}%'"
    rows = admin.execute("SELECT result FROM run_command_on_workers(%s)", [command]).fetchall()
    return sorted(int(result) for (result,) in rows)


def test_vector_index__is_on_the_shard_of_its_tenant_alone(
    indexed: Tenant, name: str, admin: psycopg.Connection
) -> None:
    tenant_id = tenant(name).id
    assert _indexes_by_node(admin, tenant_id) == [0, 1]
    (built,) = [info for info in indexed.indexes.status() if info.kind == "ivfflat"]
    assert built.bytes > 0
    assert built.due is None
    indexed.indexes.rebuild()
    assert _indexes_by_node(admin, tenant_id) == [0, 1]
    assert indexed.search("number7").hits[0].source == "d7"
    # What a killed build leaves is seen on the shard, and goes with the next maintenance.
    row = admin.execute(
        "SELECT get_shard_id_for_distribution_column('kosmos.embeddings', %s::uuid)", [tenant_id]
    ).fetchone()
    assert row is not None
    left = (
        f"CREATE INDEX vec_left_{row[0]} ON kosmos.embeddings_{row[0]} (chunk_id) WHERE tenant_id = '{tenant_id}'::uuid"
    )
    node = admin.execute("SELECT nodename, nodeport FROM citus_shards WHERE shardid = %s", [row[0]]).fetchone()
    assert node is not None
    record = admin.execute(
        "SELECT success, result FROM master_run_on_worker(ARRAY[%s::text], ARRAY[%s::int], ARRAY[%s], false)",
        [*node, left],
    ).fetchone()
    assert record == (True, "CREATE INDEX")
    assert _indexes_by_node(admin, tenant_id) == [0, 2]
    indexed.indexes.build()
    assert _indexes_by_node(admin, tenant_id) == [0, 1]


def test_retention__deletes_expired_records_of_the_default_partition(
    settings: Settings, cluster: DatabaseSettings, name: str
) -> None:
    audited = changed(settings, {"rag.audit.enabled": True})
    with Engine(audited, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant(name)
        scope.ingest(SourceDocument(source="a", data=b"The margin of a quarter."))
        assert scope.search("margin").hits
    database = Database(cluster)
    try:
        rotation = PartitionRotation(database, keep_months=1)
        assert any("made" in step for step in rotation.rotate(tenant(name), now=datetime.now(UTC)) or ["made before"])
        later = datetime.now(UTC) + timedelta(days=70)
        assert any("deleted" in step for step in rotation.rotate(tenant(name), now=later))
        with database.worker.transaction(tenant(name).id, [EVERYONE]) as connection:
            for table in ("audit_events", "audit_passages"):
                rows = connection.execute(
                    f"SELECT count(*) FROM kosmos.{table} WHERE tenant_id = %s", [tenant(name).id]
                ).fetchone()
                assert rows == (0,), table
    finally:
        database.close()
