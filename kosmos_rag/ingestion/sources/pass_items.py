"""What passes over a site have found, in a file of the cache folder.

A million items need no memory.
"""

import fcntl
import json
import shutil
import sqlite3
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import SourceError, is_disk_full
from kosmos_rag.ingestion.sources.files import cache_folder, open_sqlite, remove_unused

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS item (id TEXT PRIMARY KEY, container TEXT NOT NULL, parent TEXT, value TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS item_parent ON item (parent) WHERE parent IS NOT NULL;
"""
_UPSERT = """
INSERT INTO item VALUES (:id, :container, :parent, :value)
ON CONFLICT (id) DO UPDATE SET container = excluded.container, parent = excluded.parent, value = excluded.value
"""
_UNLOCKED_S = 60.0
"""Seconds in which a copy may not be locked yet."""


class PassItem(NamedTuple):
    """What a pass has found."""

    id: str
    container: str
    """Key of its space or project."""
    value: Mapping[str, Any]
    """As JSON."""
    parent: str | None = None
    """Id of what it belongs to."""


class PassItems:
    """The items of a site by id, and what is known of the last pass."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def read_state(self) -> dict[str, Any]:
        """Return what the last pass has written; empty without one."""
        row = self._connection.execute("SELECT value FROM state").fetchone()
        return {} if row is None else dict(json.loads(row[0]))

    def write_state(self, state: Mapping[str, Any]) -> None:
        """Replace what the last pass has written."""
        self._connection.execute("DELETE FROM state")
        self._connection.execute("INSERT INTO state VALUES (?)", (json.dumps(state),))

    def put(self, item: PassItem) -> None:
        """Add an item, or replace the one with its id."""
        self._connection.execute(_UPSERT, {**item._asdict(), "value": json.dumps(item.value)})

    def remove(self, identifier: str) -> None:
        """Remove an item, if there is one with this id."""
        self._connection.execute("DELETE FROM item WHERE id = ?", (identifier,))

    def remove_others(self, containers: Collection[str]) -> None:
        """Remove the items that are in none of these spaces or projects."""
        self._connection.execute(
            "DELETE FROM item WHERE container NOT IN (SELECT value FROM json_each(?))", (json.dumps(list(containers)),)
        )

    def count(self) -> dict[str, int]:
        """Return the number of items by space or project."""
        return dict(self._connection.execute("SELECT container, count(*) FROM item GROUP BY container").fetchall())

    def __iter__(self) -> Iterator[PassItem]:
        """Yield the items in the order in which they were found."""
        return self._select("ORDER BY rowid")

    def list_children(self, parent: str) -> Iterator[PassItem]:
        """Yield the items that belong to one."""
        return self._select("WHERE parent = ?", parent)

    def _select(self, clause: str, *values: str) -> Iterator[PassItem]:
        rows = self._connection.execute(f"SELECT id, container, value, parent FROM item {clause}", values)  # noqa: S608 — the clauses of this class
        return (
            PassItem(identifier, container, json.loads(value), parent) for identifier, container, value, parent in rows
        )


@contextmanager
def open_items(kind: str, *identity: object) -> Iterator[PassItems]:
    """Open what the last pass has found.

    What this one finds replaces it where the block ends without an error: passes of two collections may run at the
    same time. Where the folder cannot be written to, each pass is the first one. Raises SourceError where the disk is
    full.

    Args:
        kind: kind of the source.
        identity: all that decides what a pass finds.
    """
    digest = blake2b(json.dumps(identity).encode(), digest_size=16).hexdigest()
    path = cache_folder(kind) / f"{digest}.sqlite"
    part = path.with_suffix(f".{uuid.uuid4().hex}.part")
    try:
        with _open_copy(path, part) as (connection, is_kept):
            connection.execute("BEGIN")
            yield PassItems(connection)
            connection.commit()
            if is_kept:
                with suppress(OSError):
                    part.replace(path)
    except sqlite3.Error as error:
        raise _full_error(path.parent, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


@contextmanager
def _open_copy(path: Path, part: Path) -> Iterator[tuple[sqlite3.Connection, bool]]:
    """Open a copy, and return whether it is in a file.

    The file is locked, so that other passes know that it is in use.
    """
    with ExitStack() as stack:
        is_kept = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_parts(path.parent)
            remove_unused(path.parent)
            file = stack.enter_context(part.open("xb"))
            with suppress(OSError):  # some file systems know no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError), path.open("rb") as state:
                shutil.copyfileobj(state, file)
            file.flush()
            connection = open_sqlite(part, _SCHEMA)
        except (OSError, sqlite3.OperationalError) as error:
            if is_disk_full(error) or getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise _full_error(path.parent, error) from error
            is_kept = False
            connection = open_sqlite(Path(":memory:"), _SCHEMA)
        stack.enter_context(closing(connection))
        # What an error leaves is thrown away.
        connection.execute("PRAGMA journal_mode = OFF")
        yield connection, is_kept


def _full_error(folder: Path, error: Exception) -> SourceError:
    reason = f"what a pass finds cannot be kept in {folder}: {one_line(str(error))}"
    return SourceError("unavailable", f"{reason}; make room there")


def _remove_parts(folder: Path) -> None:
    """Remove the copies of passes that were killed."""
    for part in folder.glob("*.part*"):
        with suppress(OSError), part.open("rb") as file:
            if part.stat().st_mtime < time.time() - _UNLOCKED_S:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
