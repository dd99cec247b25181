"""The rows of `kosmos.indexes`.

They are segments and vector indexes of a tenant, with settings and measurements.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import IndexLocked
from kosmos_rag.storage.sql import statement

SEGMENT = "segment"
HNSW, IVFFLAT = "hnsw", "ivfflat"
BUILDING, READY = "building", "ready"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexRecord:
    """One index: a segment of a collection, or a vector index."""

    id: uuid.UUID
    kind: str
    state: str
    rows: int
    """Rows at the time of the build."""
    collection: str | None = None
    space_id: uuid.UUID | None = None
    first_sequence: int | None = None
    last_sequence: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    health: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    checked_at: datetime | None = None

    @property
    def relation(self) -> str:
        """Name of a vector index in the catalog of the server."""
        return f"vec_{self.id.hex}"


def list_indexes(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[IndexRecord]:
    """Return all indexes of a tenant, segments by sequence number."""
    with connection.cursor(row_factory=class_row(IndexRecord)) as cursor:
        return cursor.execute(statement("list_indexes"), {"tenant_id": tenant_id}).fetchall()


def insert_index(connection: psycopg.Connection, tenant_id: uuid.UUID, index: IndexRecord) -> None:
    """Insert an index."""
    values = {name: getattr(index, name) for name in IndexRecord.__slots__}
    values |= {"settings": Jsonb(index.settings), "health": Jsonb(index.health), "now": index.created_at}
    connection.execute(statement("insert_index"), {"tenant_id": tenant_id, **values})


def update_index(connection: psycopg.Connection, tenant_id: uuid.UUID, index: IndexRecord) -> None:
    """Store state, settings and health of an index.

    Raises IndexLocked if another process has deleted it.
    """
    values = {"id": index.id, "state": index.state, "now": index.checked_at or datetime.now(UTC)}
    values |= {"settings": Jsonb(index.settings), "health": Jsonb(index.health)}
    if not connection.execute(statement("update_index"), {"tenant_id": tenant_id, **values}).rowcount:
        raise IndexLocked(f"the index {index.relation} has been removed by another process; try again later")


def retire_indexes(connection: psycopg.Connection, tenant_id: uuid.UUID, indexes: Sequence[IndexRecord]) -> None:
    """Take vector indexes out of use, before they are dropped."""
    connection.execute(statement("retire_indexes"), {"tenant_id": tenant_id, "ids": [index.id for index in indexes]})


def delete_indexes(connection: psycopg.Connection, tenant_id: uuid.UUID, indexes: Sequence[IndexRecord]) -> None:
    """Delete indexes from the catalog, segments with their postings."""
    connection.execute(statement("delete_indexes"), {"tenant_id": tenant_id, "ids": [index.id for index in indexes]})
