"""Read from replicas of the primary server that are not too far behind.

How far is measured by positions in the write-ahead log. A replica that has lost its connection to the primary does not
notice by its own clock that it is behind.
"""

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseError, NodeUnavailable, first_line
from kosmos_rag.core.periodic import run_periodically
from kosmos_rag.storage.breaker_pool import BreakerPool
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0
"""Seconds between two measurements."""
_MEASUREMENTS = 11
"""Measurements that are waited for: the span of ten intervals."""
_CLOSING_S = 1.0
"""Seconds that the end waits for a measurement: that of a server that hangs takes a minute, and can be left."""
_SAMPLES, _MOST_SAMPLES = 600, 86_400
"""Positions of the primary that are kept, at least and at most; a lag beyond them is shown as at least their span."""


class ReplicaPool(BreakerPool):
    """Pool connections to one replica."""

    def __init__(self, conninfo: str, *, role: str, settings: DatabaseSettings) -> None:
        parts = conninfo_to_dict(conninfo)
        self.address = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        super().__init__(
            conninfo,
            role=role,
            settings=settings,
            name=f"the replica {self.address}",
            consequence="searches go to other servers",
        )
        self.is_refused = False
        """Whether it is no replica of the primary; that is logged when it changes, and not each second."""
        self.ahead_at: int | None = None
        """Position at which it was ahead of the primary; None once it has another one.

        A primary that was restored passes it later, but what the replica shows stays that of the lost history.
        """
        self.lag_s: float | None = None
        """Seconds that it is behind the primary at most; None while it is unknown, and its searches are refused."""
        self.is_unmeasured = False
        """Whether it is behind all positions that this process has read of the primary, however long ago that was."""

    @contextmanager
    def checkout(self) -> Iterator[psycopg.Connection]:
        """Check out a connection, outside transactions. Raises NodeUnavailable."""
        try:
            with super().checkout() as connection:
                yield connection
        except psycopg.errors.SerializationFailure as error:
            # Changes of the primary waited for this snapshot for as long as they may.
            raise NodeUnavailable(f"the replica {self.address} has cancelled a search: {first_line(error)}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class _Position:
    """A position in the write-ahead log."""

    at: float
    """When it was read, by `time.monotonic`."""
    lsn: int


class Replicas:
    """Choose a server for each reader. Thread-safe.

    A thread measures the replicas while the pools are open, from the first search on.
    """

    def __init__(self, primary: ConnectionPool, conninfo: str, urls: Sequence[str], settings: DatabaseSettings) -> None:
        """Create the pools, without a connection.

        Args:
            primary: Its pool, which reads where no replica can.
            conninfo: Of the primary.
            urls: Of the replicas, as the role of the primary's pool.
            settings: Limits of the connections to each server.
        """
        self._primary = primary
        single = settings.model_copy(update={"pool_size": 1})
        self._watched = BreakerPool(
            conninfo, role=primary.role, settings=single, name="the primary", consequence="replicas answer searches"
        )
        self.pools = tuple(ReplicaPool(url, role=primary.role, settings=settings) for url in urls)
        self._max_lag_s = settings.replica_max_lag_s
        samples = int(min(_MOST_SAMPLES, max(_SAMPLES, 1.1 * settings.replica_max_lag_s / _INTERVAL_S)))
        self._positions: deque[_Position] = deque(maxlen=samples)
        self._system: int | None = None
        self._is_refused = False
        self._lock = threading.Lock()
        self._is_watched = False
        self._watch_stack = ExitStack()

    def pick(self, reader: str) -> ConnectionPool:
        """Return the pool of a server for a reader.

        A reader stays on one replica while it can be used, so that its searches do not go back in time.
        """
        if not self._is_watched:
            self._start()
        usable = [pool for pool in self.pools if self._is_usable(pool)]
        if not usable:
            return self._primary
        return max(usable, key=lambda pool: zlib.crc32(f"{reader} {pool.address}".encode()))

    def _is_usable(self, pool: ReplicaPool) -> bool:
        return not pool.is_down and pool.lag_s is not None and pool.lag_s <= self._max_lag_s

    def _start(self) -> None:
        with self._lock:
            if self._is_watched:
                return
            self.measure()
            watch = run_periodically(
                self._measure_or_forget,
                interval_s=_INTERVAL_S,
                delay_s=_INTERVAL_S,
                thread_name="kosmos-rag-replicas",
                wait_s=_CLOSING_S,
            )
            with suppress(RuntimeError):  # no thread can be started: the next search measures, and tries again
                self._watch_stack.enter_context(watch)
                self._is_watched = True

    def _measure_or_forget(self) -> None:
        try:
            self.measure()
        except Exception:
            for pool in self.pools:
                pool.lag_s = None
            raise

    def measure(self) -> None:
        """Read the positions of all servers, the primary's first.

        While the primary is down, the last position that it had counts.
        """
        if (lsn := self._read_primary()) is not None:
            # One for each round: their number is computed from the longest lag.
            self._positions.append(_Position(at=time.monotonic(), lsn=lsn))
        for pool in self.pools:
            pool.lag_s = self._measure(pool)

    def _read_primary(self) -> int | None:
        """Return the position of the primary; None if it has none."""
        try:
            in_recovery, lsn, system = self._read(self._watched)
            if in_recovery:
                if not self._is_refused:
                    log.warning(
                        "the server of database.url is a replica itself; replicas are not used",
                        extra={"action": "replicas_refused"},
                    )
                self._positions.clear()
            else:
                self._system = system
            self._is_refused = in_recovery
        except DatabaseError:
            return None  # its breaker has logged that
        return None if in_recovery else lsn

    def measure_until_known(self) -> None:
        """Measure until the lag of each replica is known, for at most ten seconds."""
        for _ in range(_MEASUREMENTS):
            self.measure()
            if not any(pool.is_unmeasured for pool in self.pools):
                return
            time.sleep(_INTERVAL_S)

    def _measure(self, pool: ReplicaPool) -> float | None:
        pool.is_unmeasured = False
        if not self._positions:
            return None
        try:
            in_recovery, lsn, system = self._read(pool)
        except DatabaseError:
            return None
        if lsn != pool.ahead_at:
            pool.ahead_at = lsn if self._is_ahead(lsn) else None
        was_refused = pool.is_refused
        pool.is_refused = not in_recovery or system != self._system or pool.ahead_at is not None
        if pool.is_refused:
            if not was_refused:
                log.error(
                    "%s is no replica of the server of database.url, or ahead of it as after a restore; it is not "
                    "used: make it again", pool.address,
                    extra={"action": "replica_refused"},
                )  # fmt: skip
            return None
        if not self._positions:
            return None
        newest = self._positions[-1]
        for position in reversed(self._positions):
            if position.lsn <= lsn:
                return newest.at - position.at
        # Days behind, as far as a process knows that has just started: at least the time that it has watched.
        watched_s = newest.at - self._positions[0].at
        is_full = len(self._positions) == self._positions.maxlen
        pool.is_unmeasured = watched_s <= self._max_lag_s and not is_full
        return None if pool.is_unmeasured else watched_s

    def _is_ahead(self, lsn: int) -> bool:
        """Return whether the primary lacks what a replica at this position shows, as after a restore."""
        if lsn <= self._positions[-1].lsn:
            return False
        now = self._read_primary()  # it may have written since it was read
        return now is not None and lsn > now

    @staticmethod
    def _read(pool: BreakerPool) -> tuple[bool, int, int]:
        with pool.untenanted() as connection:
            row = connection.execute(statement("wal_position")).fetchone()
        assert row is not None
        return bool(row[0]), int(row[1]), int(row[2])

    def close(self) -> None:
        """Close all pools but that of the primary that was given."""
        self._watch_stack.close()
        for pool in (self._watched, *self.pools):
            pool.close()
