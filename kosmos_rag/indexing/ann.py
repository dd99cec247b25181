"""Vector indexes of pgvector, one partial index for each tenant and space.

They are built and dropped concurrently, and tuned.
"""

import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.core.errors import IndexLocked
from kosmos_rag.indexing.catalog import IVFFLAT, IndexRecord
from kosmos_rag.indexing.recall import (
    DEPTH,
    Recall,
    exact_search,
    index_search,
    measure_recall,
    smallest_sufficient_setting,
    time_queries,
)
from kosmos_rag.indexing.transactions import ensure_lock_release
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.migrate import SCHEMA
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.sql import statement

_LOG = logging.getLogger(__name__)

_OVERSAMPLING = 10
"""Candidates by bits for each hit: they are scored again by their vectors, since one bit a dimension is coarse."""
_ROWS_PER_LIST = 1_000
_SQRT_LISTS_FROM_ROWS = 1_000_000
MAX_EF_SEARCH = 1_000
_MAX_LISTS = 32_768
"""Limits of pgvector."""
_HNSW_OPTIONS = {"m": 16, "ef_construction": 128}
_TABLE_LOCK = uuid.UUID(int=0)
"""Id of no tenant: its maintenance lock is the lock of the table of vectors."""
_LOCK_POLL_S = 0.1
_LOCK_PATIENCE_S = 30.0
"""Seconds to wait for the index build of another tenant. One of hours would hold the process and the job that wait."""
_LOCALLY = sql.SQL("SET citus.enable_ddl_propagation = off")
"""For statements on the coordinator's own catalogue."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VectorScope:
    """The vectors of an index: those of one tenant in one space."""

    tenant_id: uuid.UUID
    space_id: uuid.UUID
    dimensions: int

    @property
    def values(self) -> dict[str, Any]:
        """Values that the statements bind."""
        return {"tenant_id": self.tenant_id, "space_id": self.space_id}


@contextmanager
def admin_connection(conninfo: str) -> Iterator[psycopg.Connection]:
    """Connect as kosmos_owner in autocommit mode.

    With the lock of the table of vectors. Raises IndexLocked where another process holds it for long, DatabaseError.

    CREATE INDEX CONCURRENTLY cannot run in a transaction. Two of them on one table would wait for each other, a
    deadlock, and so would one that waits for a lock within a statement: therefore the lock is polled.
    """
    with connect_administrator(conninfo, autocommit=True) as connection:
        connection.execute(statement("set_owner_role_for_session"))
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        # Otherwise the server continues building for a client that is gone, and the next maintenance waits for it.
        connection.execute(sql.SQL("SET client_connection_check_interval = '2s'"))
        values = {"tenant_id": _TABLE_LOCK}
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while connection.execute(statement("try_maintenance_lock"), values).fetchone() != (True,):
            if time.monotonic() >= deadline:
                raise IndexLocked("a vector index of another tenant is being built or dropped; try again later")
            time.sleep(_LOCK_POLL_S)
        with ensure_lock_release(connection, _TABLE_LOCK):
            yield connection


def plan_settings(kind: str, rows: int, settings: IndexSettings) -> dict[str, Any]:
    """Return the build settings of an index.

    The number of lists as pgvector's documentation advises.

    Args:
        kind: `ivfflat` or `hnsw`.
        rows: Number of vectors.
        settings: `indexes`.
    """
    planned: dict[str, Any] = {"precision": settings.precision}
    if settings.precision == "bit":
        planned["oversampling"] = _OVERSAMPLING
    if kind == IVFFLAT:
        lists = rows // _ROWS_PER_LIST if rows <= _SQRT_LISTS_FROM_ROWS else math.isqrt(rows)
        return planned | {"lists": min(_MAX_LISTS, max(1, lists))}
    return planned | _HNSW_OPTIONS


def create_index(
    connection: psycopg.Connection, scope: VectorScope, index: IndexRecord, settings: IndexSettings
) -> None:
    """Build an index concurrently.

    A crash can leave an invalid index: `drop_index` removes it.

    Args:
        connection: From `admin_connection`.
        index: Kind and build settings.
        settings: Memory and workers of the build.
    """
    placement = find_placement(connection, scope.tenant_id)
    if placement is None:
        _set_build_limits(connection, settings)
        connection.execute(_create_statement(scope, index))
        return
    # Through Citus it would be built on all shards, and one node that is down would stop the builds of all tenants.
    placement.run(connection, _create_statement(scope, index, suffix=placement.suffix).as_string(connection))
    # Citus makes the indexes of the coordinator's table again on a shard that it moves.
    connection.execute(_LOCALLY)
    connection.execute(_create_statement(scope, index))


def _set_build_limits(connection: psycopg.Connection, settings: IndexSettings) -> None:
    memory_kb = 1024 * settings.build_memory_mb
    connection.execute(sql.SQL("SET maintenance_work_mem = {}").format(sql.Literal(memory_kb)))
    connection.execute(sql.SQL("SET max_parallel_maintenance_workers = {}").format(sql.Literal(settings.build_workers)))


def _create_statement(scope: VectorScope, index: IndexRecord, *, suffix: str = "") -> sql.Composed:
    expression, operators = _index_expression(scope.dimensions, index.settings["precision"])
    options = {key: value for key, value in index.settings.items() if key in {"lists", "m", "ef_construction"}}
    return sql.SQL(
        "CREATE INDEX CONCURRENTLY {name} ON {table} USING {method} (({expression}) {operators}) "
        "WITH ({options}) WHERE tenant_id = {tenant} AND space_id = {space} AND chunk_id <> {itself}"
    ).format(
        name=sql.Identifier(index.relation + suffix),
        table=sql.Identifier(SCHEMA, "embeddings" + suffix),
        method=sql.Identifier(index.kind),
        expression=expression,
        operators=sql.Identifier(operators),
        options=sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(key), sql.Literal(value)) for key, value in options.items()
        ),
        tenant=sql.Literal(scope.tenant_id),
        space=sql.Literal(scope.space_id),
        itself=sql.Literal(index.id),
    )


def drop_index(connection: psycopg.Connection, tenant_id: uuid.UUID, relation: str) -> None:
    """Drop an index concurrently, valid or not.

    Do nothing if it does not exist.
    """
    placement = find_placement(connection, tenant_id)
    if placement is not None:
        placement.run(connection, _drop_statement(relation + placement.suffix).as_string(connection))
        connection.execute(_LOCALLY)
    connection.execute(_drop_statement(relation))


def _drop_statement(relation: str) -> sql.Composed:
    return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(SCHEMA, relation))


@dataclass(frozen=True, kw_only=True, slots=True)
class PhysicalIndex:
    """An index in the catalogue of a server or node."""

    relation: str
    valid: bool
    bytes: int


def physical_indexes(connection: psycopg.Connection, tenant_id: uuid.UUID) -> dict[str, PhysicalIndex]:
    """Return the vector indexes of a tenant by name.

    From the catalogue of the server that holds the vectors.

    Args:
        connection: A connection in a transaction of the tenant.
    """
    placement = find_placement(connection, tenant_id)
    values = {"tenant_id": tenant_id, "suffix": "" if placement is None else placement.suffix}
    if placement is None:
        rows = connection.execute(statement("physical_indexes"), values).fetchall()
        return {row[0]: PhysicalIndex(relation=row[0], valid=row[1], bytes=row[2]) for row in rows}
    records = placement.fetch(connection, statement("physical_indexes"), values)
    return {row["relation"]: PhysicalIndex(**row) for row in records}


def _index_expression(dimensions: int, precision: str) -> tuple[sql.Composed, str]:
    if precision == "bit":
        text = sql.SQL("binary_quantize(embedding::halfvec({n}))::bit({n})")
        return text.format(n=sql.Literal(dimensions)), "bit_hamming_ops"
    return sql.SQL("embedding::halfvec({n})").format(n=sql.Literal(dimensions)), "halfvec_ip_ops"


def tune_index(
    connection: psycopg.Connection,
    scope: VectorScope,
    index: IndexRecord,
    *,
    queries: Sequence[NDArray[np.float32]],
    target: float,
) -> IndexRecord:
    """Return the index with the smallest setting that reaches the target.

    The recall target, by its search setting; else the largest setting.

    Args:
        connection: A connection in a transaction of the tenant.
        queries: Query vectors, each of shape (dimensions,).
        target: `indexes.recall_target`.
    """
    truth, exact_p50_ms = time_queries(exact_search(connection, scope.values), queries)
    search = index_search(
        connection,
        {**scope.values, "index_id": index.id},
        dimensions=scope.dimensions,
        oversampling=index.settings.get("oversampling"),
    )

    def measure(setting: int) -> Recall:
        is_ivfflat = index.kind == IVFFLAT
        values = {"probes": setting if is_ivfflat else 1, "ef_search": MAX_EF_SEARCH if is_ivfflat else setting}
        connection.execute(statement("set_vector_search"), values)
        return measure_recall(search, setting, queries, truth)

    connection.execute(statement("disable_sort"))
    connection.execute(statement("disable_jit"))
    recall = smallest_sufficient_setting(target, _candidate_settings(index), measure)
    connection.execute(statement("enable_sort"))
    name, _ = search_setting(index)
    readers = connection.execute(statement("vectors_by_acl"), scope.values).fetchall()
    health = {
        "recall_at_10": round(recall.recall_at_10, 4),
        "recall_at_100": round(recall.recall_at_100, 4),
        "recall_target": target,
        "p50_ms": round(recall.p50_ms, 2),
        "exact_p50_ms": round(exact_p50_ms, 2),
        "queries": len(queries),
        "readers": dict(readers),
    }
    _LOG.info(
        "tuned %s: %s %d, recall@10 %.3f", index.relation, name, recall.setting, recall.recall_at_10,
        extra={"action": "index_tuned"},
    )  # fmt: skip
    return replace(
        index, settings={**index.settings, name: recall.setting}, health=health, checked_at=datetime.now(UTC)
    )


def search_setting(index: IndexRecord) -> tuple[str, int]:
    """Return name and maximum of the search setting of an index."""
    return ("probes", index.settings["lists"]) if index.kind == IVFFLAT else ("ef_search", MAX_EF_SEARCH)


def _candidate_settings(index: IndexRecord) -> list[int]:
    """Return the search settings to measure, ascending.

    Each is about a fifth larger than the one before.
    """
    low, high = 1 if index.kind == IVFFLAT else DEPTH, search_setting(index)[1]
    settings = [low]
    while settings[-1] < high:
        settings.append(min(high, max(settings[-1] + 1, round(settings[-1] * 1.2))))
    return settings
