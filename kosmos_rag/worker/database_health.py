"""The database as an operator watches it, at the time of the scrape."""

import threading
import time
from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric as Metrics
from prometheus_client.registry import Collector

from kosmos_rag.errors import ConfigError, DatabaseError
from kosmos_rag.metrics import (
    DATABASE_BYTES,
    DATABASE_INVALID_INDEXES,
    DATABASE_ROWS,
    DATABASE_XID_AGE,
    RLS_PREFLIGHT_OK,
    SCHEMA_REVISION,
)
from kosmos_rag.prometheus import family_of
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.preflight import ServerState
from kosmos_rag.storage.provision import APP, WORKER
from kosmos_rag.storage.revision import REVISION
from kosmos_rag.storage.sql import statement

_PREFLIGHT_S = 60.0
"""A preflight takes connections of its own: one holds for so long."""


class DatabaseHealth(Collector):
    """Size, age, dead rows, revision, and whether tenants are kept apart. Where the server is away, nothing is said."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._states: dict[str, ServerState] = {}
        self._looked_at = float("-inf")

    def describe(self) -> Iterable[Metrics]:
        """Name nothing beforehand: the database is not asked for that."""
        return []

    def collect(self) -> Iterator[Metrics]:
        """Ask the database."""
        try:
            with self._database.worker.queue() as connection:
                row = connection.execute(statement("database_health")).fetchone()
            states = self._looked()
        except (ConfigError, DatabaseError):
            return
        assert row is not None, "the database that we are connected to is in its own catalogue"
        size, xid_age, live, dead, invalid = row
        yield family_of(DATABASE_BYTES, {(): size})
        yield family_of(DATABASE_XID_AGE, {(): xid_age})
        yield family_of(DATABASE_ROWS, {("live",): live, ("dead",): dead})
        yield family_of(DATABASE_INVALID_INDEXES, {(): invalid})
        apart: dict[tuple[str, ...], float] = {
            (role,): state.apart for role, state in states.items() if state.apart is not None
        }
        yield family_of(RLS_PREFLIGHT_OK, apart)
        revisions: dict[tuple[str, ...], float] = {("code",): float(REVISION)}
        if (found := states[WORKER].revision) is not None:
            revisions["database",] = float(found)
        yield family_of(SCHEMA_REVISION, revisions)

    def _looked(self) -> dict[str, ServerState]:
        with self._lock:
            if time.monotonic() > self._looked_at + _PREFLIGHT_S:
                self._states = {APP: self._database.app.state(), WORKER: self._database.worker.state()}
                self._looked_at = time.monotonic()
            return self._states
