"""Record events of a tenant in the transaction of the change: an outbox for subscribers."""

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from kosmos_rag.storage.sql import statement

PUBLISHED, REMOVED, FAILED = "document.published", "document.removed", "document.failed"
PERMISSIONS_CHANGED = "document.permissions_changed"
SOURCE_FAILED = "source.failed"


def record_events(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collection: str,
    kind: str,
    entries: Sequence[Mapping[str, Any]],
) -> None:
    """Record events of one type, if the tenant records events.

    The row of the tenant's stream is locked until the transaction ends, so this is the last of its locks.

    Args:
        connection: connection of the worker role, with the tenant set.
        kind: type of the events.
        entries: the data of each event.
    """
    if not entries:
        return
    values = {
        "tenant_id": tenant_id,
        "collection": collection,
        "type": kind,
        "count": len(entries),
        "now": datetime.now(UTC),
        "data": [json.dumps(entry, default=str) for entry in entries],
    }
    connection.execute(statement("extend_event_stream"), values)
    connection.execute(statement("insert_events"), values)
