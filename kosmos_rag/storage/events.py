"""Record events of a tenant in the transaction of the change: an outbox for subscribers."""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg

from kosmos_rag.core.types import EventType, IngestFailure, storable
from kosmos_rag.storage.sql import statement


class EventBuffer:
    """The events of one transaction, until its other statements have run."""

    def __init__(self) -> None:
        self._events: list[tuple[str, str, str]] = []

    def add(self, collection: str, kind: EventType, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add events of one type.

        Args:
            entries: the data of each event.
        """
        self._events += [(collection, str(kind), json.dumps(entry, default=str)) for entry in entries]

    def add_source_failure(self, collection: str, source: str, failures: Sequence[IngestFailure]) -> None:
        """Add an event that a source could not be listed, or refused its credentials.

        Args:
            failures: what could not be listed, at least one.
        """
        # A site that refuses its login refuses its sitemap first.
        refused = [failure for failure in failures if failure.code == "no_permission" and failure.source == source]
        kind = EventType.SOURCE_EXPIRED if refused else EventType.SOURCE_FAILED
        first = (refused or failures)[0]
        entry = {"source": storable(source), "code": first.code, "message": storable(first.message)}
        self.add(collection, kind, [{**entry, "failures": len(failures)}])

    def write(self, connection: psycopg.Connection, tenant_id: uuid.UUID) -> None:
        """Write the events, if the tenant records events.

        The row of the tenant's stream is locked until the transaction ends, so no statement of the transaction may
        follow that locks another row.

        Args:
            connection: connection of the worker role, with the tenant set.
        """
        if not self._events:
            return
        collections, types, data = (list(column) for column in zip(*self._events, strict=True))
        stream = {"tenant_id": tenant_id, "count": len(data)}
        row = connection.execute(statement("extend_event_stream"), stream).fetchone()
        # Only what the stream was extended by: recording may start between the two statements.
        if row is not None:
            columns = {"collections": collections, "types": types, "data": data}
            values = {"tenant_id": tenant_id, "last": row[0], "now": datetime.now(UTC), **columns}
            connection.execute(statement("insert_events"), values)


@contextmanager
def record_events(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Iterator[EventBuffer]:
    """Write the events that the block adds, at its end.

    The block ends where the transaction ends. Every transaction locks the stream last: two that lock it between other
    rows could wait for each other.

    Args:
        connection: connection of the worker role, with the tenant set.
    """
    events = EventBuffer()
    yield events
    events.write(connection, tenant_id)
