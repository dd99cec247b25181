"""The indexes of one tenant."""

import statistics
import time
from collections.abc import Callable

from kosmos_rag.core.types import IndexEvent, IndexInfo, WarmUpReport
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.storage.tenants import TenantRef


class TenantIndexes:
    """The indexes of one tenant. Thread-safe."""

    def __init__(
        self, maintenance: IndexMaintenance, owner: TenantRef, search_unrecorded: Callable[[str], object]
    ) -> None:
        self._maintenance = maintenance
        self._owner = owner
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
