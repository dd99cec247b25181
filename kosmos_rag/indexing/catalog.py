"""The rows of `kosmos.indexes`: which segments and vector indexes a tenant has, and what is known of them."""

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
BUILDING, READY = "building", "ready"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One index: a segment of a collection, or a vector index over a space."""

    id: uuid.UUID
    kind: str
    state: str
    rows: int
    """When it was built."""
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
        """Name of a vector index in the server's catalogue."""
        return f"vec_{self.id.hex}"


def entries(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[Entry]:
    """Return all indexes of a tenant, segments in the order of their serials."""
    with connection.cursor(row_factory=class_row(Entry)) as cursor:
        return cursor.execute(statement("list_indexes"), {"tenant_id": tenant_id}).fetchall()


def insert(connection: psycopg.Connection, tenant_id: uuid.UUID, entry: Entry) -> None:
    """Add an index."""
    values = {name: getattr(entry, name) for name in Entry.__slots__}
    values |= {"settings": Jsonb(entry.settings), "health": Jsonb(entry.health), "now": entry.created_at}
    connection.execute(statement("insert_index"), {"tenant_id": tenant_id, **values})


def change(connection: psycopg.Connection, tenant_id: uuid.UUID, entry: Entry) -> None:
    """Store state, settings and health of an index. Raises IndexLocked where another process has removed it."""
    values = {"id": entry.id, "state": entry.state, "now": entry.checked_at or datetime.now(UTC)}
    values |= {"settings": Jsonb(entry.settings), "health": Jsonb(entry.health)}
    if not connection.execute(statement("update_index"), {"tenant_id": tenant_id, **values}).rowcount:
        raise IndexLocked(f"the index {entry.relation} has been removed by another process; try again later")


def retire(connection: psycopg.Connection, tenant_id: uuid.UUID, gone: Sequence[Entry]) -> None:
    """Take vector indexes out of use; they are dropped afterwards."""
    connection.execute(statement("retire_indexes"), {"tenant_id": tenant_id, "ids": [entry.id for entry in gone]})


def delete(connection: psycopg.Connection, tenant_id: uuid.UUID, gone: Sequence[Entry]) -> None:
    """Forget indexes; the postings of segments go with them."""
    connection.execute(statement("delete_indexes"), {"tenant_id": tenant_id, "ids": [entry.id for entry in gone]})
