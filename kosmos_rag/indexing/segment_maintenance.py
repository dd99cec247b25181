"""Maintenance of lexical segments: pack unsegmented chunks, merge small and fragmented segments.

The caller holds the maintenance lock of the tenant. Each step is one transaction, so that a query sees a chunk either
unsegmented or in one segment.
"""

from collections.abc import Callable

import psycopg

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.indexing import segments
from kosmos_rag.indexing.catalog import IndexRecord, list_indexes
from kosmos_rag.indexing.status import (
    MIN_LIVE_SHARE,
    count_unsegmented,
    filter_segments,
    list_collections,
    live_share,
    segments_end,
)
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import TenantRef


class SegmentMaintenance:
    """Packs and merges the segments of any tenant of one database. Thread-safe."""

    def __init__(self, database: Database, settings: IndexSettings) -> None:
        self._database = database
        self._settings = settings

    def pack(self, tenant: TenantRef, progress: Callable[[str], None]) -> None:
        """Pack the unsegmented chunks of each collection that has enough of them.

        Raises IndexLocked.
        """
        for collection, unsegmented in self._count_unsegmented(tenant).items():
            if unsegmented < self._settings.unsegmented_chunks:
                continue
            remaining = unsegmented
            while remaining > 0:
                progress(f"packing {remaining:,} chunks of {collection}")
                with maintenance_transaction(self._database, tenant) as connection:
                    existing = filter_segments(list_indexes(connection, tenant.id), collection)
                    packed = segments.pack_unsegmented(
                        connection, tenant.id, collection, first_sequence=segments_end(existing)
                    )
                remaining = remaining - packed.rows if packed else 0

    def merge(self, tenant: TenantRef, progress: Callable[[str], None], *, everything: bool) -> None:
        """Merge the due segments of each collection, or all.

        Raises IndexLocked.

        Args:
            everything: Merge all segments of a collection into one.
        """
        for collection in self._count_unsegmented(tenant):
            with maintenance_transaction(self._database, tenant) as connection:
                existing = filter_segments(list_indexes(connection, tenant.id), collection)
                due = (
                    existing
                    if everything
                    else segments.mergeable(existing) or self._find_most_fragmented(connection, tenant, existing)
                )
                if due:
                    rows = sum(segment.rows for segment in due)
                    progress(f"merging {len(due)} segments of {collection}, {rows:,} chunks")
                    segments.merge_segments(connection, tenant.id, due)

    def _find_most_fragmented(
        self, connection: psycopg.Connection, tenant: TenantRef, existing: list[IndexRecord]
    ) -> list[IndexRecord]:
        """Return the most fragmented segment below MIN_LIVE_SHARE."""
        live_shares = {segment.id: live_share(connection, tenant.id, segment) for segment in existing}
        worst = min(existing, key=lambda segment: live_shares[segment.id], default=None)
        return [worst] if worst is not None and live_shares[worst.id] < MIN_LIVE_SHARE else []

    def _count_unsegmented(self, tenant: TenantRef) -> dict[str, int]:
        with maintenance_transaction(self._database, tenant) as connection:
            return {
                collection: count_unsegmented(connection, tenant.id, collection)
                for collection in list_collections(connection, tenant.id)
            }
