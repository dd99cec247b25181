"""Events of a tenant for subscribers that pull."""

from datetime import UTC, datetime

import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Event
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.sessions import TenantSessions
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_MAX_SEQUENCE = 2**63 - 1
_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


@name_wrong_arguments()
class TenantEvents:
    """The events of a tenant, of all readers and collections. Thread-safe.

    Every call raises ConfigError without `database.worker_url`, and DatabaseError.
    """

    def __init__(self, sessions: TenantSessions, owner: TenantRef) -> None:
        self._sessions = sessions
        self._owner = owner

    def start(self) -> None:
        """Record events from now on; a tenant records none before.

        After a pause, the events before it are deleted and their positions refused: readers would miss the changes of
        the pause.
        """
        with self._sessions.write() as connection:
            self.start_recording(connection)

    def start_recording(self, connection: psycopg.Connection) -> None:
        """Start as `start` does, in the caller's transaction, and lock the record until it ends.

        Args:
            connection: A transaction that `TenantSessions.write` opened.
        """
        self._set_recording(connection, True)

    def stop(self) -> None:
        """Record no more events; those that are recorded stay until maintenance deletes them."""
        with self._sessions.write() as connection:
            self._set_recording(connection, False)

    def read(self, after: int | None = None, limit: int = 100) -> tuple[list[Event], int]:
        """Return the next events, and the position to continue after.

        Args:
            after: position that the previous call returned; None for the oldest event.

        Raises:
            RequestError: The tenant records no events, or those after the position are deleted.
        """
        if after is not None and not 0 <= after <= _MAX_SEQUENCE:
            raise RequestError(f"{after} is not a position in the events; use the one that the previous call returned")
        values = {"tenant_id": self._owner.id, "after": after or 0, "limit": limit}
        with self._sessions.write() as connection:
            # In this order: an event that is committed between the two statements is no gap.
            stream = connection.execute(statement("event_stream"), values).fetchone()
            cursor = connection.cursor(row_factory=kwargs_row(Event))
            events = cursor.execute(statement("list_events"), values).fetchall()
        if stream is None:
            name = self._owner.name
            raise RequestError(f"tenant {name} records no events; start it with `kosmos-rag events start -t {name}`")
        last = stream[1]
        first = events[0].sequence if events else last + 1
        if after is not None and (after > last or first != after + 1):
            raise RequestError(
                f"the events after {after} are deleted, or never were; list the documents, and read on without a cursor"
            )
        return events, events[-1].sequence if events else last

    def _set_recording(self, connection: psycopg.Connection, recording: bool) -> None:
        self._sessions.create_tenant(connection)
        values = {"tenant_id": self._owner.id, "recording": recording}
        stream = connection.execute(statement("event_stream"), values).fetchone()
        if recording and stream is not None and not stream[0]:
            # Before the lock of the stream, which is the last of a transaction.
            connection.execute(statement("prune_events"), {**values, "before": _END_OF_TIME})
        connection.execute(statement("set_event_recording"), values)
