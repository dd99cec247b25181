"""The indexes of one tenant."""

import statistics
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.types import IndexEvent, IndexInfo
from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.indexing.live_recall import IndexComparison, compare_with_exact, summarise_comparisons
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.recall import Recall
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.database import Database

__all__ = ["IndexComparison", "Recall", "TenantIndexes", "summarise_comparisons"]


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmUpReport(Serializable):
    """Times of the searches that read a tenant's indexes into memory."""

    searches: int
    """Zero if the tenant has no chunks."""
    first_ms: float
    """Of the first search; it reads most from the disk."""
    last_ms: float
    """Median of the last quarter of the searches."""


@name_wrong_arguments()
class TenantIndexes:
    """The indexes of one tenant. Thread-safe."""

    def __init__(
        self,
        database: Database,
        maintenance: IndexMaintenance,
        reader: AuditContext,
        search_unrecorded: Callable[[str], object],
    ) -> None:
        """Bind a tenant.

        Args:
            maintenance: Maintains the indexes of all tenants.
            reader: The tenant, with the reader and the collection of `compare`.
            search_unrecorded: Searches for a text, without audit log, cache, sample and metric.
        """
        self._database = database
        self._maintenance = maintenance
        self._reader = reader
        self._owner = reader.tenant
        self._search_unrecorded = search_unrecorded

    def status(self) -> list[IndexInfo]:
        """Return the tenant's indexes, and the due maintenance of each. Raises DatabaseError."""
        return self._maintenance.status(self._owner)

    def log(self, limit: int = 20) -> list[IndexEvent]:
        """Return the latest changes to the vector indexes, the newest first.

        Raises DatabaseError.
        """
        return self._maintenance.log(self._owner, limit=limit)

    def build(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Do all due maintenance, while queries and ingestion continue.

        Raises IndexLocked while another process maintains them, ConfigError without `database.admin_url` if a vector
        index is due, DatabaseError.
        """
        return self._maintenance.build(self._owner, on_progress or _discard)

    def tune(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Tune the vector index to the recall target.

        Raises what `build` raises.
        """
        return self._maintenance.tune(self._owner, on_progress or _discard)

    def rebuild(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Rebuild all indexes.

        Queries use the old ones until the new ones are ready. Raises what `build` raises.
        """
        return self._maintenance.rebuild(self._owner, on_progress or _discard)

    def live_vector_index(self) -> tuple[uuid.UUID, datetime] | None:
        """Return id and last build or tuning of the live vector index.

        The result is None without one. Raises DatabaseError.
        """
        return self._maintenance.live_vector_index(self._owner)

    def compare(self, vector: NDArray[np.float32], *, statement_timeout_ms: int) -> IndexComparison | None:
        """Search a query vector by the vector index and exactly, as this reader in this collection.

        The result is None if no index covers it. Raises DatabaseUnavailable, and StatementFailed for a statement that
        took too long.

        Args:
            vector: The query vector, of shape (dimensions,).
            statement_timeout_ms: Time limit of a statement.
        """
        reader = self._reader
        return compare_with_exact(
            self._database.app,
            self._owner.id,
            reader.principals,
            reader.collection,
            vector,
            statement_timeout_ms=statement_timeout_ms,
        )

    def repair_recall(
        self,
        queries: Sequence[NDArray[np.float32]],
        reason: str,
        on_progress: Callable[[str], None] | None = None,
    ) -> str | None:
        """Repair the live vector index after low recall with these queries.

        Returns the action that was logged, None without an index. Raises what `build` raises.

        Args:
            queries: Query vectors, each of shape (dimensions,).
            reason: The measurement, for the log.
            on_progress: Called with one line for each step.
        """
        return self._maintenance.repair_recall(self._owner, queries, reason, on_progress or _discard)

    def warm(self, on_progress: Callable[[str], None] | None = None) -> WarmUpReport:
        """Read the indexes into memory, by searches for words of random chunks.

        No audit log, cache, sample or metric has these searches. Raises ModelError, DatabaseError.
        """
        texts = self._maintenance.sample_queries(self._owner)
        (on_progress or _discard)(f"searching {len(texts)} times")
        times = []
        for text in texts:
            started = time.perf_counter()
            self._search_unrecorded(text)
            times.append(round((time.perf_counter() - started) * 1000, 1))
        last = times[-max(1, len(times) // 4) :]
        return WarmUpReport(
            searches=len(times),
            first_ms=times[0] if times else 0.0,
            last_ms=round(statistics.median(last), 1) if last else 0.0,
        )


def _discard(*_: object) -> None:
    """Ignore progress."""
