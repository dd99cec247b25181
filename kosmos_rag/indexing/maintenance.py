"""Maintenance of a tenant's indexes, under one lock.

`segment_maintenance` packs and merges the lexical segments, `ann_maintenance` builds, tunes and drops vector indexes.
One maintenance of a tenant runs at a time. Queries use the old indexes until the new ones are ready, and the next
maintenance removes what a crash leaves behind.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import Settings
from kosmos_rag.core.types import IndexEvent, IndexInfo, Space
from kosmos_rag.indexing.ann_maintenance import VectorIndexMaintenance
from kosmos_rag.indexing.catalog import IndexRecord
from kosmos_rag.indexing.history import list_events
from kosmos_rag.indexing.known_items import KnownItemsMaintenance
from kosmos_rag.indexing.recall import sample_queries
from kosmos_rag.indexing.segment_maintenance import SegmentMaintenance
from kosmos_rag.indexing.status import index_status
from kosmos_rag.indexing.transactions import maintenance_lock, maintenance_transaction
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import SpaceStore, TenantRef

Progress = Callable[[str], None]
"""Called with one line for each step."""


class IndexMaintenance:
    """Maintains the indexes of any tenant of one database. Thread-safe."""

    def __init__(self, database: Database, embedders: EmbedderRegistry, settings: Settings) -> None:
        self._database = database
        self._settings = settings.indexes
        self._segments = SegmentMaintenance(database, settings.indexes)
        self._vectors = VectorIndexMaintenance(database, embedders, settings.indexes)
        self._known_items = KnownItemsMaintenance(database, embedders, settings.rag.retrieval)

    def status(self, tenant: TenantRef) -> list[IndexInfo]:
        """Return the indexes of a tenant, and the due maintenance of each.

        Raises DatabaseError.
        """
        with maintenance_transaction(self._database, tenant) as connection:
            status = index_status(connection, tenant, self._settings)
            space = SpaceStore(connection, tenant.id).find_live()
            return status if space is None else [*status, *self._known_items.status(connection, tenant, space.id)]

    def build(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Do all due maintenance of segments and vector index.

        Segments are packed and merged, the vector index is built or rebuilt, and the retrievers are measured.

        Raises IndexLocked while other maintenance of the tenant runs, or a long build of another one; ConfigError
        without `database.admin_url` if a vector index is due, EmbeddingSpaceMismatch and ModelUnavailable if it cannot
        be measured, DatabaseError.
        """
        with maintenance_lock(self._database, tenant):
            # First, as they do not wait for the builds of other tenants.
            self._segments.pack(tenant, progress)
            self._segments.merge(tenant, progress, everything=False)
            self._vectors.clean_up(tenant, progress)
            if (space := self._live_space(tenant)) is not None:
                self._vectors.build(tenant, space, progress)
                self._known_items.measure(tenant, space, progress)
        return self.status(tenant)

    def measure_known_items(self, tenant: TenantRef) -> None:
        """Measure how well each retriever finds known items, in the collections that are due.

        Raises DatabaseError.
        """
        if (space := self._live_space(tenant)) is not None:
            self._known_items.measure(tenant, space, lambda _: None)

    def sample_queries(self, tenant: TenantRef) -> list[str]:
        """Return queries made of words of random chunks; empty without chunks.

        Raises DatabaseError.
        """
        with maintenance_transaction(self._database, tenant) as connection:
            return sample_queries(connection, tenant.id)

    def rebuild(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Rebuild all indexes, due or not. Raises what `build` raises."""
        with maintenance_lock(self._database, tenant):
            self._segments.pack(tenant, progress)
            self._segments.merge(tenant, progress, everything=True)
            self._vectors.clean_up(tenant, progress)
            if (space := self._live_space(tenant)) is not None:
                self._vectors.build(tenant, space, progress, reason="requested")
                self._known_items.measure(tenant, space, progress, everything=True)
        return self.status(tenant)

    def tune(self, tenant: TenantRef, progress: Progress) -> list[IndexInfo]:
        """Tune the vector index to the recall target.

        Raises what `build` raises.
        """
        with maintenance_lock(self._database, tenant):
            if (space := self._live_space(tenant)) is not None:
                self._vectors.tune(tenant, space, progress)
        return self.status(tenant)

    def log(self, tenant: TenantRef, *, limit: int = 20) -> list[IndexEvent]:
        """Return the latest changes to the vector indexes, the newest first.

        Raises DatabaseError.
        """
        with maintenance_transaction(self._database, tenant) as connection:
            return list_events(connection, tenant.id, limit=limit)

    def live_vector_index(self, tenant: TenantRef) -> tuple[uuid.UUID, datetime] | None:
        """Return id and last build or tuning of the live vector index.

        The result is None without one. Raises DatabaseError.
        """
        space = self._live_space(tenant)
        index = None if space is None else self._vectors.ready_index(tenant, space)
        return None if index is None else (index.id, index.checked_at or index.created_at)

    def repair_recall(
        self, tenant: TenantRef, queries: Sequence[NDArray[np.float32]], reason: str, progress: Progress
    ) -> str | None:
        """Repair the live vector index after low recall with these queries.

        Returns the action that was logged, None without an index. Raises what `build` raises.

        Args:
            queries: Query vectors, each of shape (dimensions,).
            reason: The measurement, for the log.
        """
        with maintenance_lock(self._database, tenant):
            space = self._live_space(tenant)
            return None if space is None else self._vectors.repair(tenant, space, queries, reason, progress)

    def prepare_space(self, tenant: TenantRef, space: Space, progress: Progress) -> IndexRecord | None:
        """Build or tune the vector index of a non-live space.

        Returns the index, None if the space is to be scanned. Raises what `build` raises.
        """
        with maintenance_lock(self._database, tenant):
            self._vectors.clean_up(tenant, progress)
            before = self._vectors.ready_index(tenant, space)
            self._vectors.build(tenant, space, progress)
            if before is not None and self._vectors.ready_index(tenant, space) == before:
                self._vectors.tune(tenant, space, progress)
        return self._vectors.ready_index(tenant, space)

    def drop_space(self, tenant: TenantRef, space: Space, progress: Progress) -> None:
        """Drop the vector indexes of a space that is not live.

        Raises IndexLocked, ConfigError, DatabaseError.
        """
        with maintenance_lock(self._database, tenant):
            self._vectors.clean_up(tenant, progress)
            self._vectors.drop_space(tenant, space)

    @contextmanager
    def without_vector_indexes(self, tenant: TenantRef) -> Iterator[None]:
        """Drop the vector indexes of a tenant, and let nobody build one within the block.

        Raises IndexLocked, DatabaseError, and ConfigError if there is one.
        """
        with maintenance_lock(self._database, tenant):
            self._vectors.clean_up(tenant, lambda _: None)
            with maintenance_transaction(self._database, tenant) as connection:
                spaces = SpaceStore(connection, tenant.id).list()
            for stored in spaces:
                self._vectors.drop_space(tenant, stored.space)
            yield

    def _live_space(self, tenant: TenantRef) -> Space | None:
        with maintenance_transaction(self._database, tenant) as connection:
            return SpaceStore(connection, tenant.id).find_live()
