"""Sample live queries for the recall monitor.

A sample is a query vector that a vector index answered.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import numpy as np
from cachetools import LRUCache
from pgvector import HalfVector

from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.types import EVALUATOR
from kosmos_rag.engine.query_hooks import HookContext, IndexedQuery
from kosmos_rag.evaluation.metrics import RECALL_MONITOR_SAMPLES
from kosmos_rag.evaluation.settings import MonitorSettings
from kosmos_rag.evaluation.sql import statement

log = logging.getLogger(__name__)

WRITTEN, DROPPED = "written", "dropped"
_KEYS = 10_000
"""Collections for which the sampled time slice is remembered."""


class RecallSampler:
    """Selects and writes samples. Thread-safe.

    The time between two monitor runs (`interval_s`) has `samples_per_run` slots. The first query in each slot is
    sampled, so samples are spread over time and their number is bounded; slots are reused in the next interval.
    """

    def __init__(self, context: HookContext) -> None:
        self._context = context
        self._settings = context.settings.section(MonitorSettings)
        self._lock = threading.Lock()
        self._last_slots: LRUCache[tuple[uuid.UUID, str | None], uuid.UUID] = LRUCache(_KEYS)

    def select(self, indexed: IndexedQuery) -> Callable[[], None] | None:
        """Return the task that writes a sample if the current slot has none yet.

        A filter or a required term is text of the caller, and is not stored; a query with one cannot be repeated.
        Queries of evaluations are not live ones.
        """
        if not self._settings.sample or indexed.query.subject == EVALUATOR:
            return None
        space_id, collection = indexed.search.space_id, indexed.query.collection
        slot = self._slot(space_id, collection)
        with self._lock:
            if self._last_slots.get((space_id, collection)) == slot:
                return None
            self._last_slots[space_id, collection] = slot
        return partial(self._write, indexed, slot, datetime.now(UTC))

    def _write(self, indexed: IndexedQuery, slot: uuid.UUID, at: datetime) -> None:
        """Write a sample.

        One that the database refuses is dropped, counted and logged.
        """
        query, search = indexed.query, indexed.search
        values = {
            "tenant_id": query.tenant.id,
            "id": slot,
            "at": at,
            "space_id": search.space_id,
            "collection": query.collection,
            "principals": list(query.principals),
            "vector": HalfVector(search.vector.astype(np.float16)),
            "question": query.text if self._settings.keep_questions else None,
        }
        try:
            with self._context.append(query.tenant) as connection:
                connection.execute(statement("insert_monitor_sample"), values)
            self._context.telemetry.record(RECALL_MONITOR_SAMPLES, 1.0, WRITTEN)
        except DatabaseError as error:
            self.count_dropped()
            log.warning("a sample of the recall monitor was not written: %s", error, extra={"action": "sample_dropped"})

    def count_dropped(self) -> None:
        """Count a sample that is not written."""
        self._context.telemetry.record(RECALL_MONITOR_SAMPLES, 1.0, DROPPED)

    def _slot(self, space_id: uuid.UUID, collection: str | None) -> uuid.UUID:
        slots = self._settings.samples_per_run
        number = int(time.time() / self._settings.interval_s * slots) % slots
        return uuid.uuid5(space_id, f"{collection or ''}/{number}")
