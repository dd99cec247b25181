"""Take changes from the outbox of a source, and wait for them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import psycopg

from kosmos_rag.core.types import IngestFailure
from kosmos_rag.ingestion.sources.listing import Backlog, Changes, Entry, Listing, drop_duplicates
from kosmos_rag.ingestion.sources.outbox import Outbox
from kosmos_rag.ingestion.sources.sql_connection import (
    ROWS_AT_ONCE,
    connect,
    create_postgresql_engine,
    translate_errors,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

MAX_CHANGES = 50_000
"""Changes of one pass, whose ids are in memory."""

ReadEntries = Callable[["Connection", Sequence[str]], list[Entry | IngestFailure]]


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxDatabase:
    """The database of an outbox."""

    outbox: Outbox
    engine: "Engine"
    variable: str
    """The variable of the environment that holds the URL."""

    @property
    def root(self) -> str:
        """What the sources of the documents begin with."""
        return f"sql://{self.outbox.source}/"

    def create_script(self) -> str:
        """Return the script for the operator, with the role that the source connects as."""
        return self.outbox.create_script(self.engine.url.username or "reader")

    def measure(self, connection: "Connection") -> Backlog:
        """Return what the outbox has."""
        row = connection.exec_driver_sql(self.outbox.statement("measure_outbox")).one()
        return Backlog(is_full=row[1], oldest_s=row[2])

    def measure_backlog(self) -> Backlog:
        """Connect, and return what the outbox has. Raises SourceError."""
        with connect(self.engine, self.variable, self.root) as connection:
            return self.measure(connection)


def open_outbox(outbox: Outbox, variable: str) -> OutboxDatabase:
    """Open the database of an outbox.

    Raises ConfigError if the variable contains no usable URL of PostgreSQL.
    """
    return OutboxDatabase(outbox=outbox, engine=create_postgresql_engine(variable), variable=variable)


@contextmanager
def take_changes(database: OutboxDatabase, read_entries: ReadEntries) -> Iterator[Changes]:
    """Take the oldest changes in a transaction that ends with the block.

    Raises SourceError.

    Args:
        read_entries: Reads the rows with these ids, as they are now.
    """
    with connect(database.engine, database.variable, database.root) as connection:
        if is_full := database.measure(connection).is_full:
            connection.exec_driver_sql(database.outbox.statement("take_all_changes"))
            keys: list[str | None] = []
        else:
            rows = connection.exec_driver_sql(database.outbox.statement("take_changes"), {"limit": MAX_CHANGES})
            keys = list(rows.scalars())
        removed: list[str] = []
        changed = [key for key in dict.fromkeys(keys) if key is not None]
        entries = _read(connection, changed, read_entries, database.root, removed)
        listing = Listing(database.root, drop_duplicates(entries), lambda _: False)
        was_truncated = None in keys
        yield Changes(
            listing=listing,
            removed=removed,
            compare_all=is_full or was_truncated,
            emptied=was_truncated,
            has_more=len(keys) == MAX_CHANGES,
        )
        connection.commit()


def _read(
    connection: "Connection", keys: Sequence[str], read_entries: ReadEntries, root: str, removed: list[str]
) -> Iterator[Entry | IngestFailure]:
    for start in range(0, len(keys), ROWS_AT_ONCE):
        batch = keys[start : start + ROWS_AT_ONCE]
        entries = read_entries(connection, batch)
        present = {str(entry.locator["id"]) for entry in entries if isinstance(entry, Entry)}
        removed += [f"{root}{key}" for key in batch if key not in present]
        yield from entries


class OutboxWatch:
    """Listens to the notifications of an outbox. Used by one thread."""

    def __init__(self, database: OutboxDatabase) -> None:
        """Connect and listen. Raises SourceError."""
        self._database = database
        with translate_errors(database.variable, database.root):
            self._lease = database.engine.raw_connection()
            self._connection = cast("psycopg.Connection", self._lease.driver_connection)
            self._connection.autocommit = True
        self._execute("listen_for_changes")

    def fileno(self) -> int:
        """Return the descriptor that notifications make readable. Raises SourceError where the connection is lost."""
        with translate_errors(self._database.variable, self._database.root):
            return self._connection.fileno()

    def drain(self) -> bool:
        """Discard notifications; return whether there were any. Raises SourceError."""
        with translate_errors(self._database.variable, self._database.root):
            return bool(list(self._connection.notifies(timeout=0)))

    def has_changes(self) -> bool:
        """Return whether there are changes, also without a notification. Raises SourceError."""
        row = self._execute("measure_outbox").fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        """Close the connection."""
        self._lease.invalidate()

    def _execute(self, name: str) -> "psycopg.Cursor":
        with translate_errors(self._database.variable, self._database.root):
            return self._connection.execute(self._database.outbox.statement(name).encode())
