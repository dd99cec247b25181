"""The log of changes to vector indexes.

A change is logged in its own transaction.
"""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import IndexEvent
from kosmos_rag.indexing.catalog import IndexRecord
from kosmos_rag.storage.sql import statement

REBUILT, TUNED, SEARCH_WIDENED, DROPPED, SKIPPED = "rebuilt", "tuned", "search_widened", "dropped", "skipped"
_RETENTION = timedelta(days=365)


def log_event(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    action: str,
    reason: str,
    *,
    index_id: uuid.UUID,
    before: IndexRecord | None = None,
    after: IndexRecord | None = None,
) -> None:
    """Store an event, and delete events older than a year.

    Args:
        connection: A connection in the transaction of the change.
        action: One of the constants of this module.
        reason: The reason, for people.
        index_id: The index that was changed; of a rebuild the new one.
        before: The index before the change; of a rebuild the one that was replaced.
        after: The index after the change.
    """
    now = datetime.now(UTC)
    values = {
        "tenant_id": tenant_id,
        "id": uuid.uuid4(),
        "at": now,
        "index_id": index_id,
        "action": action,
        "reason": reason,
        "before": Jsonb(_summary(before)),
        "after": Jsonb(_summary(after)),
    }
    connection.execute(statement("insert_index_event"), values)
    connection.execute(statement("prune_index_events"), {"tenant_id": tenant_id, "before": now - _RETENTION})


def list_events(connection: psycopg.Connection, tenant_id: uuid.UUID, *, limit: int) -> list[IndexEvent]:
    """Return the latest events, the newest first."""
    with connection.cursor(row_factory=class_row(IndexEvent)) as cursor:
        return cursor.execute(statement("list_index_events"), {"tenant_id": tenant_id, "limit": limit}).fetchall()


def _summary(index: IndexRecord | None) -> Mapping[str, Any]:
    if index is None:
        return {}
    health: dict[str, Any] = {
        key: index.health[key] for key in ("recall_at_10", "recall_target", "p50_ms") if key in index.health
    }
    return {"kind": index.kind, "rows": index.rows, **index.settings, **health}
