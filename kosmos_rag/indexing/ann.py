"""Vector indexes: one a tenant and space, partial, built beside its use and dropped the same way."""

import logging
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray
from psycopg import sql

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.indexing import recall as tuning
from kosmos_rag.indexing.catalog import Entry
from kosmos_rag.storage.errors import translated
from kosmos_rag.storage.sql import statement

_LOG = logging.getLogger(__name__)

_OVERSAMPLING = 10
"""Candidates by bits for each hit that is wanted: what one bit a dimension confuses, their vectors put right."""
_ROWS_PER_LIST = 1_000
_MANY_ROWS = 1_000_000
_MAX_EF_SEARCH = 1_000
_MAX_LISTS = 32_768
"""Bounds of pgvector."""
_HNSW = {"m": 16, "ef_construction": 128}
_WHOLE_TABLE = uuid.UUID(int=0)
"""The lock of this tenant, which nobody is, stands for the table of vectors."""
_TURN_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """What an index is built over."""

    tenant_id: uuid.UUID
    space_id: uuid.UUID
    dimensions: int

    @property
    def scope(self) -> dict[str, Any]:
        """Values that the statements bind."""
        return {"tenant_id": self.tenant_id, "space_id": self.space_id}


@contextmanager
def administrator(conninfo: str) -> Iterator[psycopg.Connection]:
    """Connect as kosmos_owner, outside transactions: an index built beside its use cannot be built within one.

    Administrators take turns: of two such statements on one table each would wait for the other, a deadlock. So would
    one that waits for a lock within a statement; this one asks again and again.
    """
    with translated(), psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(statement("set_owner_role_for_session"))
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        # Or the server would build on for a process that is gone, and the next maintenance wait for it.
        connection.execute(sql.SQL("SET client_connection_check_interval = '2s'"))
        turn = {"tenant_id": _WHOLE_TABLE}
        while connection.execute(statement("try_maintenance_lock"), turn).fetchone() != (True,):
            time.sleep(_TURN_S)
        with releasing_maintenance_lock(connection, _WHOLE_TABLE):
            yield connection


@contextmanager
def releasing_maintenance_lock(session: psycopg.Connection, tenant_id: uuid.UUID) -> Iterator[None]:
    """Release a held maintenance lock at the end, also after an error."""
    try:
        yield
    finally:
        # The server releases the locks of a closed session only when it notices the end: the next maintenance, at once
        # after this one, would be refused. A session that is lost has no lock to release.
        with suppress(psycopg.OperationalError):
            session.execute(statement("release_maintenance_lock"), {"tenant_id": tenant_id})


def planned_settings(kind: str, rows: int, settings: IndexSettings) -> dict[str, Any]:
    """Return how an index over so many rows is built; lists as pgvector's documentation advises."""
    planned: dict[str, Any] = {"precision": settings.precision}
    if settings.precision == "bit":
        planned["oversampling"] = _OVERSAMPLING
    if kind == "ivfflat":
        lists = rows // _ROWS_PER_LIST if rows <= _MANY_ROWS else math.isqrt(rows)
        return planned | {"lists": min(_MAX_LISTS, max(1, lists))}
    return planned | _HNSW


def create(connection: psycopg.Connection, space: Space, entry: Entry, settings: IndexSettings) -> None:
    """Build an index beside its use. It may be left invalid behind by a crash: `drop` takes it away."""
    expression, operators = _expression(space.dimensions, entry.settings["precision"])
    options = {key: value for key, value in entry.settings.items() if key in {"lists", "m", "ef_construction"}}
    kilobytes = 1024 * settings.build_memory_mb
    connection.execute(sql.SQL("SET maintenance_work_mem = {}").format(sql.Literal(kilobytes)))
    connection.execute(sql.SQL("SET max_parallel_maintenance_workers = {}").format(sql.Literal(settings.build_workers)))
    connection.execute(
        sql.SQL(
            "CREATE INDEX CONCURRENTLY {name} ON kosmos.embeddings USING {method} (({expression}) {operators}) "
            "WITH ({options}) WHERE tenant_id = {tenant} AND space_id = {space} AND chunk_id <> {itself}"
        ).format(
            name=sql.Identifier(entry.relation),
            method=sql.Identifier(entry.kind),
            expression=expression,
            operators=sql.Identifier(operators),
            options=sql.SQL(", ").join(
                sql.SQL("{} = {}").format(sql.Identifier(key), sql.Literal(value)) for key, value in options.items()
            ),
            tenant=sql.Literal(space.tenant_id),
            space=sql.Literal(space.space_id),
            itself=sql.Literal(entry.id),
        )
    )


def drop(connection: psycopg.Connection, relation: str) -> None:
    """Drop an index beside its use, whole or half built; nothing where it is not there."""
    connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS kosmos.{}").format(sql.Identifier(relation)))


def _expression(dimensions: int, precision: str) -> tuple[sql.Composed, str]:
    if precision == "bit":
        text = sql.SQL("binary_quantize(embedding::halfvec({n}))::bit({n})")
        return text.format(n=sql.Literal(dimensions)), "bit_hamming_ops"
    return sql.SQL("embedding::halfvec({n})").format(n=sql.Literal(dimensions)), "halfvec_ip_ops"


def tuned(
    connection: psycopg.Connection,
    space: Space,
    entry: Entry,
    *,
    queries: Sequence[NDArray[np.float32]],
    target: float,
) -> Entry:
    """Return the index with the search setting that meets the recall target, measured in the caller's transaction."""
    truth, exact_p50_ms = tuning.timed(tuning.exact(connection, space.scope), queries)
    search = tuning.by_index(
        connection,
        {**space.scope, "index_id": entry.id},
        dimensions=space.dimensions,
        oversampling=entry.settings.get("oversampling"),
    )

    def measured(setting: int) -> tuning.Measured:
        ivfflat = entry.kind == "ivfflat"
        values = {"probes": setting if ivfflat else 1, "ef_search": _MAX_EF_SEARCH if ivfflat else setting}
        connection.execute(statement("set_vector_search"), values)
        return tuning.measure(search, setting, queries, truth)

    result = tuning.smallest_that_meets(target, _search_settings(entry), measured)
    name, _ = search_setting(entry)
    readers = connection.execute(statement("vectors_by_acl"), space.scope).fetchall()
    health = {
        "recall_at_10": round(result.recall_at_10, 4),
        "recall_at_100": round(result.recall_at_100, 4),
        "recall_target": target,
        "p50_ms": round(result.p50_ms, 2),
        "exact_p50_ms": round(exact_p50_ms, 2),
        "queries": len(queries),
        "readers": dict(readers),
    }
    _LOG.info(
        "tuned %s: %s %d, recall@10 %.3f", entry.relation, name, result.setting, result.recall_at_10,
        extra={"action": "index_tuned"},
    )  # fmt: skip
    return replace(
        entry, settings={**entry.settings, name: result.setting}, health=health, checked_at=datetime.now(UTC)
    )


def search_setting(entry: Entry) -> tuple[str, int]:
    """Return the name of what says how far an index is searched, and how far it can be."""
    return ("probes", entry.settings["lists"]) if entry.kind == "ivfflat" else ("ef_search", _MAX_EF_SEARCH)


def _search_settings(entry: Entry) -> list[int]:
    """Return the settings worth measuring, rising by about a fifth."""
    low, high = 1 if entry.kind == "ivfflat" else tuning.DEPTH, search_setting(entry)[1]
    settings = [low]
    while settings[-1] < high:
        settings.append(min(high, max(settings[-1] + 1, round(settings[-1] * 1.2))))
    return settings
