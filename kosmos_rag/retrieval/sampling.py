"""Sample live queries for the recall monitor.

A sample is a query vector that a vector index answered.
"""

import logging
import threading
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray
from pgvector import HalfVector

from kosmos_rag.core.config import MonitorSettings
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.telemetry.metrics import RECALL_MONITOR_SAMPLES
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.retrieval.query import Query
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.sql import statement

log = logging.getLogger(__name__)

WRITTEN, DROPPED = "written", "dropped"
_KEYS = 10_000
"""Collections for which the sampled time slice is remembered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedSearch:
    """The dense part of a search that only the vector index decided.

    It had no filter and no required term.
    """

    space_id: uuid.UUID
    vector: NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallSample:
    """One sampled query."""

    query: Query
    search: IndexedSearch
    slot: uuid.UUID
    at: datetime


class RecallSampler:
    """Selects and writes samples. Thread-safe.

    The time between two monitor runs (`interval_s`) has `samples_per_run` slots. The first query in each slot is
    sampled, so samples are spread over time and their number is bounded; slots are reused in the next interval.
    """

    def __init__(self, pool: ConnectionPool, settings: MonitorSettings, telemetry: Telemetry) -> None:
        """Create a sampler.

        Args:
            pool: Connections of background work, so that no query waits for a sample.
            settings: Settings of the recall monitor.
            telemetry: Where metrics go.
        """
        self._pool = pool
        self._settings = settings
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._last_slots: LRUCache[tuple[uuid.UUID, str | None], uuid.UUID] = LRUCache(_KEYS)

    def maybe_sample(self, query: Query, search: IndexedSearch) -> RecallSample | None:
        """Return a sample to write if the current slot has none yet.

        A filter or a required term is text of the caller, and is not stored; a query with one cannot be repeated.
        """
        if not self._settings.sample:
            return None
        key = (search.space_id, query.collection)
        slot = self._slot(search.space_id, query.collection)
        with self._lock:
            if self._last_slots.get(key) == slot:
                return None
            self._last_slots[key] = slot
        return RecallSample(query=query, search=search, slot=slot, at=datetime.now(UTC))

    def write(self, sample: RecallSample) -> None:
        """Write a sample.

        One that the database refuses is dropped, counted and logged.
        """
        query = sample.query
        values = {
            "tenant_id": query.tenant.id,
            "id": sample.slot,
            "at": sample.at,
            "space_id": sample.search.space_id,
            "collection": query.collection,
            "principals": list(query.principals),
            "vector": HalfVector(sample.search.vector.astype(np.float16)),
            "question": query.text if self._settings.keep_questions else None,
        }
        try:
            with self._pool.transaction(query.tenant.id, (), append_only=True) as connection:
                connection.execute(statement("insert_monitor_sample"), values)
            self._telemetry.record(RECALL_MONITOR_SAMPLES, 1.0, WRITTEN)
        except DatabaseError as error:
            self.count_dropped()
            log.warning("a sample of the recall monitor was not written: %s", error, extra={"action": "sample_dropped"})

    def count_dropped(self) -> None:
        """Count a sample that is not written."""
        self._telemetry.record(RECALL_MONITOR_SAMPLES, 1.0, DROPPED)

    def _slot(self, space_id: uuid.UUID, collection: str | None) -> uuid.UUID:
        slots = self._settings.samples_per_run
        number = int(time.time() / self._settings.interval_s * slots) % slots
        return uuid.uuid5(space_id, f"{collection or ''}/{number}")
