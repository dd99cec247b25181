"""Wait for changes of sources, and enqueue passes over them.

A periodic sync of a source with `changes` has its changes followed between two passes.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import DatabaseError, KosmosError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.ingestion.sources.listing import ChangeSource, ChangeWatch
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.handlers.sync import CHANGES

log = logging.getLogger("kosmos_rag.worker")

_REFRESH_S = 5.0
"""Seconds between two looks at the queue for sources, and at a source without a notification or a connection."""
_TICK_S = 1.0
_PAUSE_S = 0.25
"""Seconds in which the notifications of many changes become one pass."""
_FAILED_PAUSE_S = 300.0
"""Seconds without a pass after one that failed permanently: its changes would fail again at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _FollowedSync:
    """The periodic sync of a source that knows its changes."""

    owner: TenantRef
    collection: str
    key: str
    """Of its job."""
    payload: Mapping[str, Any]


class SourceWatch:
    """Waits for changes of all sources that have them, in a thread of its own.

    Several workers do the same: a key has one unfinished job.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._sources: dict[tuple[uuid.UUID, str], _FollowedSync] = {}
        self.watches: dict[tuple[uuid.UUID, str], ChangeWatch] = {}
        """The connections that wait, by tenant and key of the job."""
        self._warnings: dict[tuple[uuid.UUID, str], str] = {}
        self._ended = threading.Event()

    @contextmanager
    def run_in_background(self) -> Iterator[None]:
        """Wait in the background until the block ends."""
        thread = threading.Thread(target=self._run, name="kosmos-rag-source-changes", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join(_REFRESH_S)

    def _run(self) -> None:
        refresh_at = 0.0
        while not self._ended.is_set():
            try:
                if is_due := time.monotonic() >= refresh_at:
                    self.refresh()
                    refresh_at = time.monotonic() + _REFRESH_S
                for key in self._wait(_PAUSE_S) | (self.watches.keys() if is_due else set()):
                    with suppress(DatabaseError):  # of one tenant, whose node may be down; the next look tries again
                        self.look(key)
            except DatabaseError:
                self._ended.wait(_REFRESH_S)  # the main loop logs it
            except Exception:  # the thread continues
                log.exception("changes of sources are not followed", extra={"action": "changes_failed"})
                self._close_all()
                self._ended.wait(_REFRESH_S)
        self._close_all()

    def refresh(self) -> None:
        """Read which sources there are, and connect to those without a connection. Raises DatabaseError."""
        syncs = Queue.open(self._database, self._settings.worker).list_followed_syncs()
        self._sources = {
            (owner.id, key): _FollowedSync(owner=owner, collection=collection, key=key, payload=payload)
            for owner, collection, key, payload in syncs
        }
        for key in self.watches.keys() - self._sources.keys():
            self.close(key)
        for key in self._sources.keys() - self.watches.keys():
            self._open(key)

    def _open(self, key: tuple[uuid.UUID, str]) -> None:
        try:
            source = create_source(self._sources[key].payload["spec"], self._settings.ingestion)
            if isinstance(source, ChangeSource):
                self.watches[key] = source.watch()
                self._warnings.pop(key, None)
        except KosmosError as error:
            self._warn(key, error)

    def _wait(self, pause_s: float) -> set[tuple[uuid.UUID, str]]:
        """Return the sources that announced changes, after the pause that joins several of them."""
        keys = {watch: key for key, watch in self.watches.items()}
        if not keys:
            self._ended.wait(_REFRESH_S)
            return set()
        connections: list[Any] = list(keys)
        readable = wait(connections, _TICK_S)
        if readable:
            self._ended.wait(pause_s)
        return {keys[watch] for watch in readable if isinstance(watch, ChangeWatch)}

    def look(self, key: tuple[uuid.UUID, str]) -> None:
        """Enqueue a pass where a source has changes. Raises DatabaseError."""
        try:
            is_notified = self.watches[key].drain()
            has_changes = self.watches[key].has_changes()
        except KosmosError as error:
            self.close(key)  # the next refresh connects again
            return self._warn(key, error)
        if has_changes:
            self._enqueue(self._sources[key], is_notified=is_notified)
        return None

    def _enqueue(self, source: _FollowedSync, *, is_notified: bool) -> None:
        job_key = f"{CHANGES} {source.key}"
        with self._database.worker.transaction(source.owner.id, [EVERYONE]) as connection:
            values = {"tenant_id": source.owner.id, "key": source.key}
            if connection.execute(statement("unfinished_job_of_key"), values).fetchone() is None:
                return  # its sync was cancelled since the last refresh
            # A pass that runs deletes the changes when it ends, so they do not announce another one.
            if (
                not is_notified
                and connection.execute(statement("unfinished_job_of_key"), values | {"key": job_key}).fetchone()
            ):
                return
            failed_values = {**values, "key": job_key, "pause_s": _FAILED_PAUSE_S}
            if connection.execute(statement("recently_failed_job_of_key"), failed_values).fetchone():
                return
            payload = {name: value for name, value in source.payload.items() if name != "traceparent"}
            JobWriter(connection, source.owner).enqueue(
                source.collection, kinds.SYNC, {job_key: {**payload, CHANGES: True}}
            )

    def _close_all(self) -> None:
        for key in list(self.watches):
            self.close(key)

    def close(self, key: tuple[uuid.UUID, str]) -> None:
        """Close the connection to a source."""
        with suppress(KosmosError):
            self.watches.pop(key).close()

    def _warn(self, key: tuple[uuid.UUID, str], error: KosmosError) -> None:
        if self._warnings.get(key) == str(error):
            return
        self._warnings[key] = str(error)
        source = self._sources[key]
        log.warning(
            "changes of a source are not followed: %s", error,
            extra={"action": "changes_not_followed", "tenant": source.owner.name, "texts": {"source": source.key}},
        )  # fmt: skip
