"""The indexes of one tenant."""

from collections.abc import Callable

from kosmos_rag.core.types import IndexInfo, IndexStep
from kosmos_rag.indexing.maintenance import Indexes
from kosmos_rag.storage.tenants import TenantRef


class TenantIndexes:
    """The indexes of one tenant: looked at, built, tuned. Thread-safe."""

    def __init__(self, indexes: Indexes, owner: TenantRef) -> None:
        self._indexes = indexes
        self._owner = owner

    def status(self) -> list[IndexInfo]:
        """Return the tenant's indexes, how they are, and what is due. Raises DatabaseError."""
        return self._indexes.status(self._owner)

    def log(self, limit: int = 20) -> list[IndexStep]:
        """Return what was done to the vector indexes, and why, the latest first. Raises DatabaseError."""
        return self._indexes.log(self._owner, limit=limit)

    def build(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Build what is due: safe at any time, beside questions and ingestion.

        Raises IndexLocked while another process does so, ConfigError without `database.admin_url` where a vector index
        is due, DatabaseError.
        """
        return self._indexes.build(self._owner, on_progress or _silent)

    def tune(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Measure the vector index and search it as far as the recall target asks. Raises what `build` raises."""
        return self._indexes.tune(self._owner, on_progress or _silent)

    def rebuild(self, on_progress: Callable[[str], None] | None = None) -> list[IndexInfo]:
        """Build all indexes again; the old ones serve until the new are ready. Raises what `build` raises."""
        return self._indexes.rebuild(self._owner, on_progress or _silent)


def _silent(*_: object) -> None:
    """Tell nobody."""
