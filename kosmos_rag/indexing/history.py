"""What was done to vector indexes, and why: written in the transaction that does it."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import IndexStep
from kosmos_rag.indexing.catalog import Entry
from kosmos_rag.storage.sql import statement

REBUILT, TUNED, SEARCH_WIDENED, DROPPED, SKIPPED = "rebuilt", "tuned", "search_widened", "dropped", "skipped"
_KEPT = timedelta(days=365)


def note(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    action: str,
    reason: str,
    *,
    index_id: uuid.UUID,
    before: Entry | None = None,
    after: Entry | None = None,
) -> None:
    """Write down a step, and forget those of more than a year ago."""
    now = datetime.now(UTC)
    values = {
        "tenant_id": tenant_id,
        "id": uuid.uuid4(),
        "at": now,
        "index_id": index_id,
        "action": action,
        "reason": reason,
        "before": Jsonb(_shown(before)),
        "after": Jsonb(_shown(after)),
    }
    connection.execute(statement("insert_index_event"), values)
    connection.execute(statement("prune_index_events"), {"tenant_id": tenant_id, "before": now - _KEPT})


def steps(connection: psycopg.Connection, tenant_id: uuid.UUID, *, limit: int) -> list[IndexStep]:
    """Return the latest steps, the newest first."""
    with connection.cursor(row_factory=class_row(IndexStep)) as cursor:
        return cursor.execute(statement("list_index_events"), {"tenant_id": tenant_id, "limit": limit}).fetchall()


def _shown(entry: Entry | None) -> Mapping[str, Any]:
    if entry is None:
        return {}
    measured: dict[str, Any] = {
        key: entry.health[key] for key in ("recall_at_10", "recall_target", "p50_ms") if key in entry.health
    }
    return {"kind": entry.kind, "rows": entry.rows, **entry.settings, **measured}
