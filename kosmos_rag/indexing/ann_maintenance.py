"""Maintenance of vector indexes: build, measure, tune, repair, replace and drop.

The caller holds the maintenance lock of the tenant. A new index is built concurrently and replaces the old one in one
transaction; the old one is dropped afterwards.
"""

import math
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kosmos_rag.core.config import IndexSettings
from kosmos_rag.core.errors import DatabaseError, IndexLocked, KosmosError
from kosmos_rag.core.types import Space
from kosmos_rag.indexing import history
from kosmos_rag.indexing.ann import (
    VectorScope,
    admin_connection,
    create_index,
    drop_index,
    physical_indexes,
    plan_settings,
    search_setting,
    tune_index,
)
from kosmos_rag.indexing.catalog import (
    BUILDING,
    HNSW,
    IVFFLAT,
    READY,
    SEGMENT,
    IndexRecord,
    delete_indexes,
    insert_index,
    list_indexes,
    retire_indexes,
    update_index,
)
from kosmos_rag.indexing.history import log_event
from kosmos_rag.indexing.recall import sample_queries
from kosmos_rag.indexing.status import (
    HNSW_WRITES,
    count_published,
    count_vectors,
    daily_writes,
    needs_vector_index,
    rebuild_reason,
)
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.models.embedding.registry import EmbedderRegistry, embed_queries
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import TenantRef

Progress = Callable[[str], None]
"""Called with one line for each step."""

_MIN_WIDENING = 1.5
"""Factor by which a repair widens the search at least: readers of few documents see a lower recall than a measurement
over all of them shows."""
_MAX_SEARCHED_SHARE = 0.5
"""Share of the maximum search setting above which a repair rebuilds the index."""
_MIN_PUBLISHED_SHARE = 0.1
"""Share of the rows of an index that must have been published since its build to make a rebuild worthwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _BuildInput:
    """What the build of a vector index is planned and measured with."""

    scope: VectorScope
    rows: int
    published: int
    """Chunks published so far. The difference shows replaced chunks, which the number of rows does not."""
    queries: list[NDArray[np.float32]]


class VectorIndexMaintenance:
    """Builds and maintains the vector indexes of any tenant of one database.

    Thread-safe.
    """

    def __init__(self, database: Database, embedders: EmbedderRegistry, settings: IndexSettings) -> None:
        self._database = database
        self._embedders = embedders
        self._settings = settings

    def ready_index(self, tenant: TenantRef, space: Space) -> IndexRecord | None:
        """Return the vector index of a space that queries use.

        The result is None without one.
        """
        return next((index for index in self._list_indexes(tenant, space) if index.state == READY), None)

    def clean_up(self, tenant: TenantRef, progress: Progress) -> None:
        """Drop indexes of an interrupted maintenance, and delete stale records."""
        with maintenance_transaction(self._database, tenant) as connection:
            indexes = [index for index in list_indexes(connection, tenant.id) if index.kind != SEGMENT]
            is_valid = {name: physical.valid for name, physical in physical_indexes(connection, tenant.id).items()}
        usable = {index.relation for index in indexes if index.state == READY and is_valid.get(index.relation)}
        if leftovers := sorted(is_valid.keys() - usable):
            with admin_connection(self._database.admin_conninfo) as admin:
                for relation in leftovers:
                    progress(f"dropping {relation}, left by an interrupted run")
                    drop_index(admin, tenant.id, relation)
        with maintenance_transaction(self._database, tenant) as connection:
            delete_indexes(connection, tenant.id, [index for index in indexes if index.relation not in usable])

    def build(self, tenant: TenantRef, space: Space, progress: Progress, *, reason: str | None = None) -> None:
        """Build, rebuild or drop the vector index of a space, if due or for a reason.

        Args:
            space: The space; the indexes of other spaces stay as they are.
            reason: Why to rebuild whether due or not, for the log.
        """
        with maintenance_transaction(self._database, tenant) as connection:
            rows = count_vectors(connection, {"tenant_id": tenant.id, "space_id": space.id})
            published = count_published(connection, tenant.id)
        existing = self._list_indexes(tenant, space)
        current = next(iter(existing), None)
        needed = needs_vector_index(rows, self._settings, indexed=current is not None)
        threshold = f"indexes.vector_min_chunks is {self._settings.vector_min_chunks:,}"
        due = reason or (rebuild_reason(current, rows, published, self._settings) if current else threshold)
        obsolete = [index for index in existing if due or not needed or index is not current]
        if needed and due and (build_input := self._prepare_build(tenant, space)) is not None:
            writes = None if current is None else daily_writes(current, published)
            best = self._build_best(
                tenant, build_input, progress, tries_hnsw=writes is not None and writes <= HNSW_WRITES
            )
            best = replace(best, state=READY)
            with maintenance_transaction(self._database, tenant) as connection:
                retire_indexes(connection, tenant.id, obsolete)
                update_index(connection, tenant.id, best)
                log_event(connection, tenant.id, history.REBUILT, due, index_id=best.id, before=current, after=best)
            due = None
        self._drop(obsolete, tenant, due)

    def tune(self, tenant: TenantRef, space: Space, progress: Progress) -> None:
        """Tune the search setting of a space's index to the recall target."""
        build_input, index = self._prepare_build(tenant, space), self.ready_index(tenant, space)
        if build_input is None or index is None:
            return
        progress(f"measuring {index.kind}")
        tuned = self._tune_index(tenant, build_input, index)
        with maintenance_transaction(self._database, tenant) as connection:
            update_index(connection, tenant.id, tuned)
            log_event(connection, tenant.id, history.TUNED, "requested", index_id=index.id, before=index, after=tuned)

    def repair(
        self,
        tenant: TenantRef,
        space: Space,
        queries: Sequence[NDArray[np.float32]],
        reason: str,
        progress: Progress,
    ) -> str | None:
        """Repair an index with low recall: widen its search, else rebuild.

        The index is rebuilt if its search was widened before, if the widest search misses the target or searches nearly
        all rows, and if enough has changed since its build.

        Returns the action that was logged; None without an index.

        Args:
            space: Its live space.
            queries: Vectors of the queries that recall was measured with.
            reason: The measurement, for the log.
        """
        index = self.ready_index(tenant, space)
        if index is None:
            return None
        if not index.health.get("search_widened") and self._widen_search(
            tenant, space, index, queries, reason, progress, min_factor=_MIN_WIDENING
        ):
            return history.SEARCH_WIDENED
        if (obstacle := self._rebuild(tenant, space, queries, reason, progress)) is None:
            return history.REBUILT
        with maintenance_transaction(self._database, tenant) as connection:
            log_event(connection, tenant.id, history.SKIPPED, f"{reason}; {obstacle}", index_id=index.id, before=index)
        return history.SKIPPED

    def drop_space(self, tenant: TenantRef, space: Space) -> None:
        """Drop all vector indexes of a space."""
        self._drop(self._list_indexes(tenant, space), tenant)

    # --- repair ------------------------------------------------------------------------------------------------------

    def _widen_search(
        self,
        tenant: TenantRef,
        space: Space,
        index: IndexRecord,
        queries: Sequence[NDArray[np.float32]],
        reason: str,
        progress: Progress,
        *,
        min_factor: float = 0.0,
    ) -> bool:
        """Raise the search setting until these queries reach the recall target.

        Never lower it. Returns whether the setting was raised and reaches the target below `_MAX_SEARCHED_SHARE`.
        """
        progress(f"measuring {index.kind} with {len(queries)} live queries")
        scope = VectorScope(tenant_id=tenant.id, space_id=space.id, dimensions=space.dimensions)
        name, maximum = search_setting(index)
        target = self._settings.recall_target
        with maintenance_transaction(self._database, tenant) as connection:
            tuned = tune_index(connection, scope, index, queries=queries, target=target)
            setting = min(maximum, max(tuned.settings[name], math.ceil(min_factor * index.settings[name])))
            if setting <= index.settings[name]:
                return False
            health = {**index.health, **tuned.health, "search_widened": True}
            widened = replace(tuned, settings={**tuned.settings, name: setting}, health=health)
            update_index(connection, tenant.id, widened)
            log_event(
                connection, tenant.id, history.SEARCH_WIDENED, reason, index_id=index.id, before=index, after=widened
            )
        return bool(health["recall_at_10"] >= target and setting <= _MAX_SEARCHED_SHARE * maximum)

    def _rebuild(
        self,
        tenant: TenantRef,
        space: Space,
        queries: Sequence[NDArray[np.float32]],
        reason: str,
        progress: Progress,
    ) -> str | None:
        """Rebuild the index and widen its search as these queries need.

        Returns the obstacle if it was not rebuilt.
        """
        index = self.ready_index(tenant, space)
        assert index is not None, "the index exists, and the maintenance lock is held"
        with maintenance_transaction(self._database, tenant) as connection:
            published = count_published(connection, tenant.id) - index.health.get("published", 0)
        if published < _MIN_PUBLISHED_SHARE * index.rows:
            return f"{published:,} chunks published since it was built are too few for another build"
        try:
            self.clean_up(tenant, progress)
            self.build(tenant, space, progress, reason=reason)
        except KosmosError as error:
            return str(error)
        if (rebuilt := self.ready_index(tenant, space)) is not None:
            self._widen_search(
                tenant, space, rebuilt, queries, "the new index, measured with the same queries", progress
            )
        return None

    # --- build -------------------------------------------------------------------------------------------------------

    def _prepare_build(self, tenant: TenantRef, space: Space) -> _BuildInput | None:
        """Return the input of a build.

        The result is None if the tenant has no chunks. Queries are embedded before the build, so that a missing or
        wrong model is reported at once.
        """
        scope = VectorScope(tenant_id=tenant.id, space_id=space.id, dimensions=space.dimensions)
        with maintenance_transaction(self._database, tenant) as connection:
            texts = sample_queries(connection, tenant.id)
            rows, published = count_vectors(connection, scope.values), count_published(connection, tenant.id)
        if not texts:
            return None
        embedder = self._embedders.get(space, tenant.name)
        queries = embed_queries(embedder, texts)
        return _BuildInput(scope=scope, rows=rows, published=published, queries=queries)

    def _build_best(
        self, tenant: TenantRef, build_input: _BuildInput, progress: Progress, *, tries_hnsw: bool
    ) -> IndexRecord:
        """Build the configured kind.

        With `auto` ivfflat, and hnsw too if that is too slow and few chunks are published, and keep the better one.
        """
        configured = self._settings.vector
        first = self._build_kind(tenant, build_input, IVFFLAT if configured == "auto" else configured, progress)
        if configured != "auto" or not tries_hnsw or first.health["p50_ms"] <= self._settings.target_ms:
            return first
        try:
            second = self._build_kind(tenant, build_input, HNSW, progress)
        except (DatabaseError, IndexLocked) as error:
            # The next maintenance drops what is left of it.
            progress(f"{HNSW} could not be built, {IVFFLAT} is kept: {error}")
            return first
        target = self._settings.recall_target
        sufficient = second.health["recall_at_10"] >= min(target, first.health["recall_at_10"])
        faster = second.health["p50_ms"] < first.health["p50_ms"]
        better, rejected = (second, first) if sufficient and faster else (first, second)
        progress(f"{better.kind} is kept, {better.health['p50_ms']} ms against {rejected.health['p50_ms']} ms")
        with suppress(IndexLocked):  # as above
            self._drop([rejected], tenant)
        rejected_health = {key: rejected.health[key] for key in ("recall_at_10", "recall_at_100", "p50_ms")}
        return replace(better, health={**better.health, "rejected": {"kind": rejected.kind, **rejected_health}})

    def _build_kind(self, tenant: TenantRef, build_input: _BuildInput, kind: str, progress: Progress) -> IndexRecord:
        index = IndexRecord(
            id=uuid.uuid4(),
            kind=kind,
            state=BUILDING,
            rows=build_input.rows,
            space_id=build_input.scope.space_id,
            settings=plan_settings(kind, build_input.rows, self._settings),
        )
        with admin_connection(self._database.admin_conninfo) as admin:
            with maintenance_transaction(self._database, tenant) as connection:
                insert_index(connection, tenant.id, index)
            progress(f"building {kind} over {build_input.rows:,} vectors")
            create_index(admin, build_input.scope, index, self._settings)
        progress(f"measuring {kind}")
        return self._tune_index(tenant, build_input, index)

    def _tune_index(self, tenant: TenantRef, build_input: _BuildInput, index: IndexRecord) -> IndexRecord:
        with maintenance_transaction(self._database, tenant) as connection:
            target = self._settings.recall_target
            tuned = tune_index(connection, build_input.scope, index, queries=build_input.queries, target=target)
        counts = {"rows": build_input.rows, "published": build_input.published}
        return replace(tuned, health={**index.health, **tuned.health, **counts})

    def _list_indexes(self, tenant: TenantRef, space: Space) -> list[IndexRecord]:
        with maintenance_transaction(self._database, tenant) as connection:
            return [index for index in list_indexes(connection, tenant.id) if index.space_id == space.id]

    def _drop(self, obsolete: list[IndexRecord], tenant: TenantRef, reason: str | None = None) -> None:
        """Drop indexes; log it with the reason if no index replaces them."""
        if not obsolete:
            return
        with admin_connection(self._database.admin_conninfo) as admin:
            for index in obsolete:
                drop_index(admin, tenant.id, index.relation)
        with maintenance_transaction(self._database, tenant) as connection:
            for index in obsolete if reason else ():
                log_event(connection, tenant.id, history.DROPPED, str(reason), index_id=index.id, before=index)
            delete_indexes(connection, tenant.id, obsolete)
