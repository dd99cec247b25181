"""Samples of live questions for the guard of recall: offered in passing, written by a thread of their own.

No question waits for it: what finds the buffer full is dropped and counted, and what cannot be written too. Samples are
spread over the time between two runs: each slice of it has one place, for the first question that comes.
"""

import logging
import queue
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

import numpy as np
from cachetools import LRUCache
from pgvector import HalfVector

from kosmos_rag.core.config import MonitorSettings
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.telemetry.metrics import RECALL_MONITOR_SAMPLES
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.retrieval.search import Search
from kosmos_rag.retrieval.snapshot import Snapshot
from kosmos_rag.storage.pool import Role
from kosmos_rag.storage.sql import statement

log = logging.getLogger(__name__)

WRITTEN, DROPPED = "written", "dropped"
_HELD = 256
"""Samples that wait to be written."""
_KEYS = 10_000
"""Collections of which is known that their slice of time has its sample."""
_PAUSE_S = 5.0
"""Time between two writings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sample:
    search: Search
    space_id: uuid.UUID
    location: uuid.UUID
    at: datetime


class Sampler:
    """Keeps some of the questions that a vector index answers. Thread-safe; its thread starts with the first one."""

    def __init__(self, app: Role, settings: MonitorSettings, telemetry: Telemetry) -> None:
        self._app = app
        self._settings = settings
        self._telemetry = telemetry
        self._waiting: queue.SimpleQueue[_Sample] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._taken: LRUCache[tuple[uuid.UUID, str | None], uuid.UUID] = LRUCache(_KEYS)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, search: Search, snapshot: Snapshot) -> None:
        """Keep a question, if it is the first of its slice of time, and nothing but the index decides what it finds.

        A filter or a required word is the caller's text, and is not kept; so such a question cannot be asked again.
        """
        if snapshot.vector_index is None or snapshot.space_id is None or search.vector is None:
            return
        if not self._settings.sample or search.scope["filtered"] or snapshot.required:
            return
        place = self._place(snapshot.space_id, search.collection)
        with self._lock:
            if self._taken.get((snapshot.space_id, search.collection)) == place:
                return
            self._taken[snapshot.space_id, search.collection] = place
            if self._waiting.qsize() >= _HELD or self._closing.is_set():
                self._telemetry.record(RECALL_MONITOR_SAMPLES, 1.0, DROPPED)
                return
            self._waiting.put(_Sample(search=search, space_id=snapshot.space_id, location=place, at=datetime.now(UTC)))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kosmos-rag-samples", daemon=True)
                self._thread.start()

    def flush(self) -> None:
        """Write what waits, a transaction for each tenant. What the database does not take is dropped and counted."""
        samples = [self._waiting.get() for _ in range(self._waiting.qsize())]
        samples.sort(key=lambda sample: sample.search.tenant.id)
        for tenant_id, group in groupby(samples, key=lambda sample: sample.search.tenant.id):
            values = [self._values(sample) for sample in group]
            try:
                with self._app.transaction(tenant_id, (), appends=True) as connection:
                    connection.cursor().executemany(statement("insert_monitor_sample"), values)
                self._telemetry.record(RECALL_MONITOR_SAMPLES, len(values), WRITTEN)
            except DatabaseError as error:
                self._telemetry.record(RECALL_MONITOR_SAMPLES, len(values), DROPPED)
                log.warning("%d samples were not kept: %s", len(values), error, extra={"action": "samples_dropped"})

    def close(self) -> None:
        """Write what waits, and keep nothing more."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self.flush()

    def _place(self, space_id: uuid.UUID, collection: str | None) -> uuid.UUID:
        """Return the slot of this moment: `monitor.samples_per_run` slots repeat every `monitor.interval_s`."""
        number = (
            int(time.time() / self._settings.interval_s * self._settings.samples_per_run)
            % self._settings.samples_per_run
        )
        return uuid.uuid5(space_id, f"{collection or ''}/{number}")

    def _run(self) -> None:
        while not self._closing.wait(_PAUSE_S):
            self.flush()

    def _values(self, sample: _Sample) -> dict[str, Any]:
        search = sample.search
        assert search.vector is not None
        return {
            "tenant_id": search.tenant.id,
            "id": sample.location,
            "at": sample.at,
            "space_id": sample.space_id,
            "collection": search.collection,
            "principals": list(search.principals),
            "vector": HalfVector(search.vector.astype(np.float16)),
            "question": search.request.question if self._settings.keep_questions else None,
        }
