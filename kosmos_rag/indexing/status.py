"""Status of a tenant's indexes: size, measurements and due maintenance."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString

import psycopg

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.core.types import IndexInfo
from kosmos_rag.indexing.ann import PhysicalIndex, physical_indexes
from kosmos_rag.indexing.catalog import HNSW, IVFFLAT, READY, SEGMENT, IndexRecord, list_indexes
from kosmos_rag.indexing.segments import mergeable
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

MIN_LIVE_SHARE = 0.7
"""Share of live chunks below which a segment is fragmented and packed again."""
_MAX_GROWTH, _MIN_SHRINKAGE = 2.0, 0.5
"""A vector index is rebuilt when its rows change by more than these factors."""
_KEEP_SHARE = 0.5
"""An existing vector index is kept down to this share of `indexes.vector_min_chunks`."""
HNSW_WRITES, _MANY_WRITES = 0.01, 0.05
"""Share of a tenant's chunks that are published a day: up to the first hnsw is built, above the second it is replaced.
With hnsw a chunk takes about ten times as long to store."""


def filter_segments(indexes: Sequence[IndexRecord], collection: str) -> list[IndexRecord]:
    """Return the segments of a collection by sequence number."""
    return [index for index in indexes if index.kind == SEGMENT and index.collection == collection]


def segments_end(segments: Sequence[IndexRecord]) -> int:
    """Return the first sequence number after the segments."""
    end = segments[-1].last_sequence if segments else 1
    assert end is not None, "a segment has a last sequence number"
    return end


def list_collections(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[str]:
    """Return the collections of a tenant."""
    rows = connection.execute(statement("collections_of_tenant"), {"tenant_id": tenant_id}).fetchall()
    return [collection for collection, _ in rows]


def count_unsegmented(connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str) -> int:
    """Count the chunks of a collection that are in no segment."""
    return _count(connection, statement("count_unsegmented_chunks"), {"tenant_id": tenant_id, "collection": collection})


def count_vectors(connection: psycopg.Connection, scope: Mapping[str, Any]) -> int:
    """Count the vectors of a space; `scope` binds `tenant_id` and `space_id`."""
    return _count(connection, statement("vectors_of_space"), scope)


def count_live_chunks(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: IndexRecord) -> int:
    """Count the chunks of a segment that have not been deleted."""
    bounds = {name: getattr(segment, name) for name in ("collection", "first_sequence", "last_sequence")}
    return _count(connection, statement("live_chunks"), {"tenant_id": tenant_id, **bounds})


def live_share(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: IndexRecord) -> float:
    """Return the share of a segment's chunks that have not been deleted."""
    return count_live_chunks(connection, tenant_id, segment) / segment.rows if segment.rows else 1.0


def needs_vector_index(rows: int, settings: IndexSettings, *, indexed: bool) -> bool:
    """Return whether to build or keep a vector index.

    Args:
        rows: Number of vectors.
        settings: `indexes`.
        indexed: Whether an index exists: it is kept down to half of the threshold.
    """
    return settings.vector != "none" and rows >= settings.vector_min_chunks * (_KEEP_SHARE if indexed else 1)


def count_published(connection: psycopg.Connection, tenant_id: uuid.UUID) -> int:
    """Count all chunks ever published into a tenant.

    Deleted ones included.
    """
    rows = connection.execute(statement("collections_of_tenant"), {"tenant_id": tenant_id}).fetchall()
    return sum(next_sequence - 1 for _, next_sequence in rows)


def rebuild_reason(index: IndexRecord, rows: int, published: int, settings: IndexSettings) -> str | None:
    """Return why a vector index is due for a rebuild.

    The result is None if it is not.

    Args:
        rows: Number of vectors now.
        published: `count_published` now.
        settings: `indexes`.
    """
    if settings.vector not in {"auto", index.kind}:
        return f"indexes.vector is {settings.vector}"
    if index.settings["precision"] != settings.precision:
        return f"indexes.precision is {settings.precision}"
    if not needs_vector_index(rows, settings, indexed=True):
        return f"{rows:,} rows are too few, indexes.vector_min_chunks is {settings.vector_min_chunks:,}"
    if rows > _MAX_GROWTH * index.rows:
        return f"grown from {index.rows:,} to {rows:,} rows"
    if rows < _MIN_SHRINKAGE * index.rows:
        return f"shrunk from {index.rows:,} to {rows:,} rows"
    if (since := published - index.health.get("published", published)) > index.rows:
        return f"{since:,} chunks published since"
    share = daily_writes(index, published)
    if settings.vector != "auto" or share is None:
        return None
    p50_ms = index.health.get("p50_ms", 0.0)
    if index.kind == HNSW and share > _MANY_WRITES:
        return f"{share:.0%} of the chunks are published a day, which {HNSW} makes slow"
    if (
        index.kind == IVFFLAT
        and share <= HNSW_WRITES
        and p50_ms > settings.target_ms
        and "rejected" not in index.health
    ):
        return (
            f"{p50_ms} ms, indexes.target_ms is {settings.target_ms:g}, and few chunks are published: {HNSW} is tried"
        )
    return None


def daily_writes(index: IndexRecord, published: int) -> float | None:
    """Return the share of its rows that were published a day, since an index was built.

    The result is None within its first day.

    Args:
        published: `count_published` now.
    """
    days = (datetime.now(UTC) - index.created_at) / timedelta(days=1)
    since = published - index.health.get("published", published)
    return since / index.rows / days if days >= 1 and index.rows else None


def index_status(connection: psycopg.Connection, tenant: TenantRef, settings: IndexSettings) -> list[IndexInfo]:
    """Return the indexes of a tenant, and the rows without index.

    Those rows are scanned.
    """
    indexes = list_indexes(connection, tenant.id)
    status: list[IndexInfo] = []
    for collection in list_collections(connection, tenant.id):
        status += _lexical_status(connection, tenant.id, collection, filter_segments(indexes, collection), settings)
    values = {"tenant_id": tenant.id}
    live_space = connection.execute(statement("space_of_tenant"), values).fetchone()
    if live_space is not None:
        vector_indexes = [index for index in indexes if index.kind != SEGMENT]
        status += _vector_status(connection, tenant.id, live_space[0], vector_indexes, settings)
    return status


def _lexical_status(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collection: str,
    segments: Sequence[IndexRecord],
    settings: IndexSettings,
) -> list[IndexInfo]:
    due_for_merge = {segment.id for segment in mergeable(segments)}
    status = []
    for segment in segments:
        live = count_live_chunks(connection, tenant_id, segment)
        due: str | None = "smaller than twice the next segment" if segment.id in due_for_merge else None
        if segment.rows and live < MIN_LIVE_SHARE * segment.rows:
            due = f"{segment.rows - live:,} of {segment.rows:,} chunks are deleted"
        size = _count(connection, statement("segment_bytes"), {"tenant_id": tenant_id, "id": segment.id})
        status.append(_info(segment, rows_now=live, size=size, due=due))
    unsegmented = count_unsegmented(connection, tenant_id, collection)
    is_due = unsegmented >= settings.unsegmented_chunks
    threshold = f"indexes.unsegmented_chunks is {settings.unsegmented_chunks:,}"
    status.append(_scan_info("unsegmented", unsegmented, collection=collection, due=threshold if is_due else None))
    return status


def _vector_status(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    live_space_id: uuid.UUID,
    indexes: Sequence[IndexRecord],
    settings: IndexSettings,
) -> list[IndexInfo]:
    values = {"tenant_id": tenant_id}
    rows = count_vectors(connection, {**values, "space_id": live_space_id})
    published = count_published(connection, tenant_id)
    physical = physical_indexes(connection, tenant_id)
    live = [index for index in indexes if index.space_id == live_space_id]
    status = []
    for index in live:
        due = _vector_due(index, rows, published, physical.get(index.relation), settings)
        status.append(_info(index, rows_now=rows, size=_size(physical.get(index.relation)), due=due))
    for index in (index for index in indexes if index not in live):
        # `reembed` builds the index of a space that is not live, and drops it with its space.
        due = None if index.state == READY else "left by an interrupted run"
        rows_of_space = count_vectors(connection, {**values, "space_id": index.space_id})
        status.append(_info(index, rows_now=rows_of_space, size=_size(physical.get(index.relation)), due=due))
    if not any(index.state == READY for index in live):
        is_due = needs_vector_index(rows, settings, indexed=False)
        threshold = f"indexes.vector_min_chunks is {settings.vector_min_chunks:,}"
        status.append(_scan_info("none", rows, collection=None, due=threshold if is_due else None))
    return status


def _vector_due(
    index: IndexRecord, rows: int, published: int, physical: PhysicalIndex | None, settings: IndexSettings
) -> str | None:
    if physical is None:
        return "it is not in the catalog of the server"
    if not physical.valid:
        return "its build did not finish"
    if index.state != READY:
        return "left by an interrupted run"
    return rebuild_reason(index, rows, published, settings)


def _size(physical: PhysicalIndex | None) -> int:
    return physical.bytes if physical else 0


def _scan_info(kind: str, rows: int, *, collection: str | None, due: str | None) -> IndexInfo:
    return IndexInfo(
        kind=kind,
        state="exact",
        collection=collection,
        rows=rows,
        rows_now=rows,
        bytes=0,
        settings={},
        health={},
        checked_at=None,
        due=due,
    )


def _info(index: IndexRecord, *, rows_now: int, size: int, due: str | None) -> IndexInfo:
    return IndexInfo(
        kind=index.kind,
        state=index.state,
        collection=index.collection,
        rows=index.rows,
        rows_now=rows_now,
        bytes=size,
        settings=index.settings,
        health=index.health,
        checked_at=index.checked_at,
        due=due,
    )


def _count(connection: psycopg.Connection, query: LiteralString, values: Mapping[str, Any]) -> int:
    row = connection.execute(query, values).fetchone()
    return int(row[0]) if row else 0
