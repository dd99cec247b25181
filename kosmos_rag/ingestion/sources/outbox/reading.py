"""Take changes from the outbox of a source, and wait for them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

import psycopg

from kosmos_rag.core.errors import SourceError
from kosmos_rag.core.types import IngestFailure
from kosmos_rag.ingestion.sources.listing import Backlog, Changes, Entry, Listing, build_failure, drop_duplicates
from kosmos_rag.ingestion.sources.outbox import Outbox
from kosmos_rag.ingestion.sources.sql_connection import (
    ROWS_AT_ONCE,
    connect,
    create_postgresql_engine,
    is_data_error,
    translate_errors,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, Engine

MAX_CHANGES = 50_000
"""Changes of one pass, whose ids are in memory."""

_REMEDY = "apply the script again: `kosmos-rag enqueue --source … --script`"

_PROBED_ROWS = 20
"""Rows that are read to find whether the query itself fails, or the data of some rows."""


class OutboxRows(Protocol):
    """The rows of the query of a source."""

    def read_entries(self, connection: "Connection", keys: Sequence[str]) -> list[Entry | IngestFailure]:
        """Return the entries of the rows with these ids."""
        ...

    def list_keys(self, connection: "Connection", limit: int, *, at_random: bool) -> list[str]:
        """Return the ids of some rows.

        Args:
            at_random: whether to choose them from all rows, which takes longer.
        """
        ...


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

    def measure_backlog(self) -> Backlog:
        """Connect, and return what the outbox has. Raises SourceError."""
        with connect(self.engine, self.variable, self.root) as connection:
            row = self.execute(connection, "measure_outbox").one()
        return Backlog(is_full=row[1], oldest_s=row[2])

    def execute(self, connection: "Connection", name: str, **values: object) -> "CursorResult[*tuple[Any, ...]]":
        """Execute a statement of the outbox. Raises SourceError."""
        with self.translate_errors():
            return connection.exec_driver_sql(self.outbox.statement(name), values)

    def translate_errors(self) -> AbstractContextManager[None]:
        """Raise SourceError for errors of an outbox, most often one of an earlier script."""
        return translate_errors(self.variable, self.root, remedy=_REMEDY)


def open_outbox(outbox: Outbox, variable: str) -> OutboxDatabase:
    """Open the database of an outbox.

    Raises ConfigError if the variable contains no usable URL of PostgreSQL.
    """
    return OutboxDatabase(outbox=outbox, engine=create_postgresql_engine(variable), variable=variable)


@contextmanager
def take_changes(database: OutboxDatabase, rows: OutboxRows) -> Iterator[Changes]:
    """Take the oldest changes; they return where the block raises.

    Changes of documents are in a transaction that ends with the block. Where all documents are to be compared, a
    committed row replaces the changes until the block has ended, so that later changes are recorded.

    Raises SourceError.

    Args:
        rows: the rows as they are now.
    """
    with connect(database.engine, database.variable, database.root) as connection:
        oldest = _take(database, connection)
        if not oldest.compare_all:
            removed: list[str] = []
            entries = _read(database, connection, list(dict.fromkeys(oldest.keys)), rows, removed)
            yield Changes(
                listing=_build_listing(database, entries),
                removed=removed,
                compare_all=False,
                emptied=False,
                has_more=len(oldest.keys) == MAX_CHANGES,
            )
            connection.commit()
            return
        mark_id = database.execute(connection, "mark_comparison", emptied=oldest.emptied).scalar_one()
        connection.commit()
    yield Changes(
        listing=_build_listing(database, ()), removed=[], compare_all=True, emptied=oldest.emptied, has_more=False
    )
    _unmark(database, mark_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class _TakenChanges:
    """Changes that were deleted from the outbox, in a transaction that is not committed."""

    keys: Sequence[str]
    """Ids of changed documents, with repetitions."""
    compare_all: bool
    emptied: bool


def _take(database: OutboxDatabase, connection: "Connection") -> _TakenChanges:
    for name in ("limit_waiting", "lock_outbox"):
        database.execute(connection, name)
    rows = database.execute(connection, "take_changes", limit=MAX_CHANGES).all()
    ids = [row.id for row in rows]
    newest = database.execute(connection, "find_newest_change").scalar_one() or 0
    keys = [row.key for row in rows if row.key is not None]
    is_full = bool(ids) and max(newest, *ids) - min(ids) >= database.outbox.max_rows
    if not is_full and len(keys) == len(rows):
        return _TakenChanges(keys=keys, compare_all=False, emptied=False)
    emptied = database.execute(connection, "take_all_changes").scalar_one()
    return _TakenChanges(keys=(), compare_all=True, emptied=emptied or any(row.emptied for row in rows))


def _unmark(database: OutboxDatabase, mark_id: int) -> None:
    """Delete the mark of a comparison, unless changes since then were not recorded."""
    with connect(database.engine, database.variable, database.root) as connection:
        # A transaction that shares the lock may have such changes.
        if database.execute(connection, "try_lock_outbox").scalar_one():
            database.execute(connection, "unmark_comparison", id=mark_id)
            connection.commit()


def _build_listing(database: OutboxDatabase, entries: Iterable[Entry | IngestFailure]) -> Listing:
    return Listing(database.root, drop_duplicates(entries), lambda _: False)


def _read(
    database: OutboxDatabase,
    connection: "Connection",
    keys: Sequence[str],
    rows: OutboxRows,
    removed: list[str],
) -> Iterator[Entry | IngestFailure]:
    for start in range(0, len(keys), ROWS_AT_ONCE):
        batch = keys[start : start + ROWS_AT_ONCE]
        errors: list[SourceError] = []
        entries = _read_batch(database, connection, batch, rows.read_entries, errors)
        if errors and len(errors) == len(entries):
            _require_readable_row(database, connection, rows)
        present = {entry.source for entry in entries}
        removed += [source for key in batch if (source := f"{database.root}{key}") not in present]
        yield from entries


def _read_batch(
    database: OutboxDatabase,
    connection: "Connection",
    keys: Sequence[str],
    read_entries: Callable[["Connection", Sequence[str]], list[Entry | IngestFailure]],
    errors: list[SourceError],
) -> list[Entry | IngestFailure]:
    """Read rows; where the data of one fails the query, find it by halves.

    Raises SourceError for other errors, so that the changes return.

    Args:
        errors: gets those of rows whose data fails the query.
    """
    name = f"{database.root}{keys[0]}" if len(keys) == 1 else database.root
    try:
        with translate_errors(database.variable, name), connection.begin_nested():
            return read_entries(connection, keys)
    except SourceError as error:
        if not is_data_error(error):
            raise
        if len(keys) == 1:
            errors.append(error)
            return [build_failure(name, error)]
    middle = len(keys) // 2
    halves = (keys[:middle], keys[middle:])
    return [entry for half in halves for entry in _read_batch(database, connection, half, read_entries, errors)]


def _require_readable_row(database: OutboxDatabase, connection: "Connection", rows: OutboxRows) -> None:
    """Raise SourceError where the query fails for all of some rows, whatever their data.

    The first rows may be bad ones that were stored together.
    """
    errors: list[SourceError] = []
    for at_random in (False, True):
        try:
            with translate_errors(database.variable, database.root), connection.begin_nested():
                keys = rows.list_keys(connection, _PROBED_ROWS, at_random=at_random)
        except SourceError as error:
            if is_data_error(error):
                return  # a condition of the query fails on some row; others are read by their ids
            raise
        for key in keys:
            before = len(errors)
            _read_batch(database, connection, [key], rows.read_entries, errors)
            if len(errors) == before:
                return
    if errors:
        raise errors[0]


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
        with self._database.translate_errors():
            return self._connection.execute(self._database.outbox.statement(name).encode())
