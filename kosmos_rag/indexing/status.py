"""What indexes a tenant has, how they are, and what is due: looked up, never changed."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.core.types import IndexInfo
from kosmos_rag.indexing import catalog as catalogue
from kosmos_rag.indexing.catalog import READY, SEGMENT, Entry
from kosmos_rag.indexing.segments import mergeable
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

LIVE_SHARE = 0.7
"""A segment is packed again when less of it than this is still there."""
_GROWN, _SHRUNK = 2.0, 0.5
"""A vector index is made again for this many times the rows that it was built on."""


def segments_of(entries: Sequence[Entry], collection: str) -> list[Entry]:
    """Return the segments of a collection, in the order of their serials."""
    return [entry for entry in entries if entry.kind == SEGMENT and entry.collection == collection]


def covered(segments: Sequence[Entry]) -> int:
    """Return the serial up to which these segments hold the corpus."""
    last = segments[-1].last_sequence if segments else 1
    assert last is not None, "a segment has a last serial"
    return last


def rows_of(connection: psycopg.Connection, scope: Mapping[str, Any]) -> int:
    """Return how many vectors a space of a tenant has."""
    return _number(connection, statement("vectors_of_space"), scope)


def live_chunks(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: Entry) -> int:
    """Return how many chunks of a segment are still there."""
    bounds = {name: getattr(segment, name) for name in ("collection", "first_sequence", "last_sequence")}
    return _number(connection, statement("live_chunks"), {"tenant_id": tenant_id, **bounds})


def live_share(connection: psycopg.Connection, tenant_id: uuid.UUID, segment: Entry) -> float:
    """Return the share of a segment that is still there."""
    return live_chunks(connection, tenant_id, segment) / segment.rows if segment.rows else 1.0


def is_large(rows: int, settings: IndexSettings, *, indexed: bool) -> bool:
    """Return whether so many vectors are to have an index: the one that is there is kept down to half the number."""
    return settings.vector != "none" and rows >= settings.vector_min_chunks * (0.5 if indexed else 1)


def published_of(connection: psycopg.Connection, tenant_id: uuid.UUID) -> int:
    """Return how many chunks have been published into a tenant so far, whether they are still there or not."""
    rows = connection.execute(statement("collections_of_tenant"), {"tenant_id": tenant_id}).fetchall()
    return sum(next_sequence - 1 for _, next_sequence in rows)


def why_due(entry: Entry, rows: int, published: int, settings: IndexSettings) -> str | None:
    """Return why a vector index should be built again; None where it need not."""
    if settings.vector not in {"auto", entry.kind}:
        return f"indexes.vector is {settings.vector}"
    if entry.settings["precision"] != settings.precision:
        return f"indexes.precision is {settings.precision}"
    if not is_large(rows, settings, indexed=True):
        return f"{rows:,} rows are too few, indexes.vector_min_chunks is {settings.vector_min_chunks:,}"
    if rows > _GROWN * entry.rows:
        return f"grown from {entry.rows:,} to {rows:,} rows"
    if rows < _SHRUNK * entry.rows:
        return f"shrunk from {entry.rows:,} to {rows:,} rows"
    if (since := published - entry.health.get("published", published)) > entry.rows:
        return f"{since:,} chunks published since"
    return None


def inspect(connection: psycopg.Connection, tenant: TenantRef, settings: IndexSettings) -> list[IndexInfo]:
    """Return the indexes of a tenant, and what is scanned for want of one."""
    entries = catalogue.entries(connection, tenant.id)
    values = {"tenant_id": tenant.id}
    corpora = connection.execute(statement("collections_of_tenant"), values).fetchall()
    found: list[IndexInfo] = []
    for collection, _ in corpora:
        found += _lexical(connection, tenant.id, collection, segments_of(entries, collection), settings)
    space = connection.execute(statement("space_of_tenant"), values).fetchone()
    if space is not None:
        rows = rows_of(connection, {**values, "space_id": space[0]})
        vectors = [entry for entry in entries if entry.kind != SEGMENT]
        physical = {row[0]: row for row in connection.execute(statement("physical_indexes"), values).fetchall()}
        live = [entry for entry in vectors if entry.space_id == space[0]]
        published = published_of(connection, tenant.id)
        found += [_vector(entry, rows, published, physical.get(entry.relation), settings) for entry in live]
        for entry in (entry for entry in vectors if entry not in live):
            beside = rows_of(connection, {**values, "space_id": entry.space_id})
            found.append(_of_other_space(entry, beside, physical.get(entry.relation)))
        if not any(entry.state == READY for entry in live):
            found.append(_scanned(rows, settings))
    return found


def _lexical(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collection: str,
    segments: Sequence[Entry],
    settings: IndexSettings,
) -> list[IndexInfo]:
    merging = {entry.id for entry in mergeable(segments)}
    found = []
    for segment in segments:
        live = live_chunks(connection, tenant_id, segment)
        due: str | None = "small beside the next" if segment.id in merging else None
        if segment.rows and live < LIVE_SHARE * segment.rows:
            due = f"{segment.rows - live:,} of {segment.rows:,} chunks are gone"
        size = _number(connection, statement("segment_bytes"), {"tenant_id": tenant_id, "id": segment.id})
        found.append(_info(segment, rows_now=live, size=size, due=due))
    tail = _number(
        connection, statement("count_unsegmented_chunks"), {"tenant_id": tenant_id, "collection": collection}
    )
    grown = tail >= settings.lexical_tail_chunks
    found.append(
        IndexInfo(
            kind="tail",
            state="exact",
            collection=collection,
            rows=tail,
            rows_now=tail,
            bytes=0,
            settings={},
            health={},
            checked_at=None,
            due=f"indexes.lexical_tail_chunks is {settings.lexical_tail_chunks:,}" if grown else None,
        )
    )
    return found


def _vector(
    entry: Entry, rows: int, published: int, physical: tuple[Any, ...] | None, settings: IndexSettings
) -> IndexInfo:
    if physical is None or not physical[1]:
        due: str | None = "it is not in the server's catalogue" if physical is None else "it was not built to the end"
    elif entry.state != READY:
        due = "left by an interrupted run"
    else:
        due = why_due(entry, rows, published, settings)
    return _info(entry, rows_now=rows, size=physical[2] if physical else 0, due=due)


def _of_other_space(entry: Entry, rows: int, physical: tuple[Any, ...] | None) -> IndexInfo:
    """Describe an index over a space that is not live: `embed` builds it, and drops it with its space."""
    due = None if entry.state == READY else "left by an interrupted run"
    return _info(entry, rows_now=rows, size=physical[2] if physical else 0, due=due)


def _scanned(rows: int, settings: IndexSettings) -> IndexInfo:
    wanted = is_large(rows, settings, indexed=False)
    return IndexInfo(
        kind="none",
        state="exact",
        collection=None,
        rows=rows,
        rows_now=rows,
        bytes=0,
        settings={},
        health={},
        checked_at=None,
        due=f"indexes.vector_min_chunks is {settings.vector_min_chunks:,}" if wanted else None,
    )


def _info(entry: Entry, *, rows_now: int, size: int, due: str | None) -> IndexInfo:
    return IndexInfo(
        kind=entry.kind,
        state=entry.state,
        collection=entry.collection,
        rows=entry.rows,
        rows_now=rows_now,
        bytes=size,
        settings=entry.settings,
        health=entry.health,
        checked_at=entry.checked_at,
        due=due,
    )


def _number(connection: psycopg.Connection, query: LiteralString, values: Mapping[str, Any]) -> int:
    row = connection.execute(query, values).fetchone()
    return int(row[0]) if row else 0
