"""Migrate a tenant to the other embedding model while queries are answered.

A target space is created next to the live one. Publications write both from then on; `backfill` embeds older chunks,
and those that a process without the second model has published since. The cutover changes one row, in a transaction
that no publication overlaps and only if no chunk lacks a vector; a rollback does the same in reverse.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.core.types import Space, SpaceInfo, SpaceQuality
from kosmos_rag.indexing.catalog import READY as INDEX_READY
from kosmos_rag.indexing.catalog import IndexRecord, list_indexes
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.reembedding.backfill import (
    ALL_IDS,
    IdRange,
    RateLimit,
    SpaceBackfill,
    count_chunks,
    count_embedded,
    count_missing,
    id_partition,
)
from kosmos_rag.indexing.reembedding.drop import delete_space, retire
from kosmos_rag.indexing.transactions import exclusive_transaction, maintenance_transaction
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.models.embedding.space import check_compatible, find_difference
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceState, SpaceStore, StoredSpace, TenantRef

_LOG = logging.getLogger(__name__)

MAX_NDCG_LOSS = 0.02
"""How far nDCG@10 of the target space may lie below that of the live space."""

Progress = Callable[[int, int, str], None]
"""Called with the number of chunks done, the number of all, and the current step."""
PartitionRunner = Callable[[float | None], Iterator[int]]
"""Backfills by other processes at a rate limit in chunks per second; yields the chunks of each partition."""
MeasureQuality = Callable[[Space], SpaceQuality]
"""Compares the model of the target space with that of the live one; `cutover` adds the recall of the vector index."""


class Reembedding:
    """Migrates any tenant of one database between the configured models. Thread-safe."""

    def __init__(
        self, database: Database, embedders: EmbedderRegistry, maintenance: IndexMaintenance, settings: Settings
    ) -> None:
        self._database = database
        self._embedders = embedders
        self._maintenance = maintenance
        self._recall_target = settings.indexes.recall_target
        self._last_ids: dict[uuid.UUID, uuid.UUID] = {}

    def status(self, tenant: TenantRef) -> list[SpaceInfo]:
        """Return the tenant's spaces, the live one first.

        Loads no model. Raises DatabaseError.
        """
        with maintenance_transaction(self._database, tenant) as connection:
            chunks = count_chunks(connection, tenant)
            ready = [index for index in list_indexes(connection, tenant.id) if index.state == INDEX_READY]
            indexes = {index.space_id: index for index in ready}
            return [
                _info(
                    stored,
                    indexes.get(stored.space.id),
                    embedded=count_embedded(connection, tenant, stored.space),
                    chunks=chunks,
                )
                for stored in SpaceStore(connection, tenant.id).list()
            ]

    def create_target_space(self, tenant: TenantRef) -> None:
        """Create the empty space of the other model if it is missing.

        Publications write to it from now on.

        Raises RequestError for a tenant without documents, ConfigError without another configured model,
        EmbeddingSpaceMismatch if the model of the live space is not configured, ModelUnavailable, DatabaseError.
        """
        space, stored = self._target_space(tenant)
        if stored is not None and stored.state == SpaceState.DROPPING:
            raise RequestError(
                f"the space of {space.model!r} is being dropped; finish that first: kosmos-rag reembed drop"
            )
        if stored is None:
            with maintenance_transaction(self._database, tenant) as connection:
                SpaceStore(connection, tenant.id).create(space, state=SpaceState.BUILDING, now=datetime.now(UTC))

    def backfill(self, tenant: TenantRef, limit: int) -> int:
        """Embed up to `limit` chunks without a vector in a space.

        Return how many, 0 if none is missing. Fills the spaces of the models that are configured here, the live one
        included. Raises EmbeddingSpaceMismatch if the model of the live space is not, ModelUnavailable, DatabaseError.
        """
        # The live space last: it has gaps only if a model was not configured in every process.
        for space_backfill in reversed(self._backfills(tenant)):
            space_id = space_backfill.space.id
            ahead = IdRange(after=self._last_ids.get(space_id, ALL_IDS.after), until=ALL_IDS.until)
            batch = space_backfill.run_batch(ahead, limit)
            if batch is None and ahead != ALL_IDS:
                # Before the last id, chunks may have been published without vectors of this space.
                batch = space_backfill.run_batch(ALL_IDS, limit)
            if batch is not None:
                self._last_ids[space_id] = batch.last_id
                return batch.chunks
            self._last_ids.pop(space_id, None)
        return 0

    def backfill_partition(
        self, tenant: TenantRef, number: int, partitions: int, chunks_per_second: float | None
    ) -> int:
        """Backfill one of equal partitions of every space.

        Return the number of embedded chunks.

        Args:
            number: Number of the partition, from 0.
            partitions: Number of partitions.
            chunks_per_second: Rate limit; None means no limit.

        Raises what `backfill` raises.
        """
        rate_limit = RateLimit(chunks_per_second)
        for space_backfill in self._backfills(tenant):
            ids = id_partition(number, partitions)
            while (batch := space_backfill.run_batch(ids, rate_limit.batch_size)) is not None:
                rate_limit.wait(batch.chunks)
                ids = replace(ids, after=batch.last_id)
        return rate_limit.chunks

    def start(
        self,
        tenant: TenantRef,
        *,
        chunks_per_second: float | None,
        run_partitions: PartitionRunner | None,
        on_progress: Progress,
    ) -> list[SpaceInfo]:
        """Create the target space, backfill it and build its vector index.

        Continue after an interruption.

        Args:
            chunks_per_second: Rate limit; None means no limit.
            run_partitions: Backfills most chunks by other processes; None backfills all in this one.
            on_progress: Called after each batch.

        Raises what `create_target_space`, `backfill` and `IndexMaintenance.build` raise, RequestError on a rate that is
        not above 0.
        """
        if chunks_per_second is not None and not chunks_per_second > 0:
            raise RequestError(f"chunks per second are {chunks_per_second:g}; give a number above 0")
        self.create_target_space(tenant)
        space, _ = self._target_space(tenant)
        with maintenance_transaction(self._database, tenant) as connection:
            completed, total = count_embedded(connection, tenant, space), count_chunks(connection, tenant)
        for chunks in self._backfill_all(tenant, chunks_per_second, run_partitions):
            completed = min(total, completed + chunks)
            on_progress(completed, total, f"embedding with {space.model}")
        self._maintenance.prepare_space(tenant, space, lambda line: on_progress(completed, total, line))
        return self.status(tenant)

    def cutover(
        self, tenant: TenantRef, *, measure: MeasureQuality, force: str | None, on_progress: Progress
    ) -> SpaceQuality:
        """Measure the target space, and answer queries from it from now on.

        Args:
            measure: Measures the target space after its vector index was built.
            force: Reason to cut over in spite of the measurements; None refuses a worse space.
            on_progress: Called with each step.

        Raises RequestError if the space is missing, incomplete or worse; what `IndexMaintenance.build` raises.
        """
        if force is not None and not force.strip():
            raise RequestError("the reason for forcing the cutover is empty; give a reason")
        _, stored = self._target_space(tenant)
        if stored is None:
            raise RequestError(f"tenant {tenant.name!r} has no space to cut over to; run kosmos-rag reembed start")
        index = self._maintenance.prepare_space(tenant, stored.space, lambda line: on_progress(0, 0, line))
        quality = replace(
            measure(stored.space),
            recall_at_10=index.health["recall_at_10"] if index is not None else None,
            recall_target=self._recall_target,
        )
        if (reason := rejection_reason(quality)) is not None:
            if force is None:
                raise RequestError(
                    f"queries are not cut over to {quality.model!r}: {reason}; to do so all the same: --force REASON"
                )
            _LOG.warning(
                "tenant %s cut over to %s (%s), though %s", tenant.name, quality.model, force, reason,
                extra={"action": "space_forced", "tenant": tenant.name},
            )  # fmt: skip
            quality = replace(quality, forced=force)
        self._make_live(tenant, stored.space)
        return quality

    def drop(self, tenant: TenantRef, name: str, on_progress: Progress) -> list[SpaceInfo]:
        """Drop a space that is not live, with vectors and index.

        Continues after an interruption.

        Raises RequestError if the space is live, missing or ambiguous, IndexLocked, ConfigError, DatabaseError.

        Args:
            name: Id or model of the space.
            on_progress: Called after each batch.
        """
        space = retire(self._database, tenant, name)
        self._maintenance.drop_space(tenant, space, lambda line: on_progress(0, 0, line))
        delete_space(
            self._database,
            tenant,
            space,
            lambda completed, total: on_progress(completed, total, f"deleting vectors of {space.model}"),
        )
        return self.status(tenant)

    def rollback(self, tenant: TenantRef) -> list[SpaceInfo]:
        """Answer queries from the space that was live before, from now on.

        Raises RequestError if there is none or it is incomplete, EmbeddingSpaceMismatch if its model is not configured.
        """
        previous = [
            stored
            for stored in self._list_spaces(tenant)
            if stored.state == SpaceState.READY and stored.live_until is not None
        ]
        if not previous:
            raise RequestError(f"tenant {tenant.name!r} has no space that was live before; nothing was changed")
        self.embedder(tenant, previous[0].space)  # refuse before the rollback what could not be searched after it
        self._make_live(tenant, previous[0].space)
        return self.status(tenant)

    def live_space(self, tenant: TenantRef) -> Space:
        """Return the live space. Raises RequestError for a tenant without documents, DatabaseError."""
        live = next((stored.space for stored in self._list_spaces(tenant) if stored.live), None)
        if live is None:
            raise RequestError(
                f"tenant {tenant.name!r} has no documents; ingest some, they are embedded by rag.embedding"
            )
        return live

    def embedder(self, tenant: TenantRef, space: Space) -> Embedder:
        """Return the model of a space. Raises EmbeddingSpaceMismatch, ModelUnavailable."""
        return self._embedders.get(space, tenant.name)

    def _list_spaces(self, tenant: TenantRef) -> list[StoredSpace]:
        with maintenance_transaction(self._database, tenant) as connection:
            return SpaceStore(connection, tenant.id).list()

    def _target_space(self, tenant: TenantRef) -> tuple[Space, StoredSpace | None]:
        """Return the target space, and its stored state if it exists."""
        live = self.live_space(tenant)
        target = self._embedders.target_space(live, tenant.id, tenant.name)
        if target is None:
            raise ConfigError(
                "rag.next_embedding.model is null, and a tenant is moved between two models; name the other one there"
            )
        space, _ = target
        if find_difference(live, space) is None:
            raise ConfigError(
                f"rag.embedding and rag.next_embedding both name the model of tenant {tenant.name!r}, {live.model!r}; "
                "name another one in rag.next_embedding"
            )
        stored = next((candidate for candidate in self._list_spaces(tenant) if candidate.space.id == space.id), None)
        if stored is not None:
            check_compatible(stored.space, space, tenant.name)
        return space, stored

    def _backfills(self, tenant: TenantRef) -> list[SpaceBackfill]:
        with maintenance_transaction(self._database, tenant) as connection:
            spaces = SpaceStore(connection, tenant.id).list_writable()
        return [
            SpaceBackfill(
                database=self._database,
                tenant=tenant,
                space=space,
                embedder=embedder,
                tokenizer=self._embedders.default.tokenizer,
            )
            for space, embedder in (self._embedders.get_writable(spaces, tenant.name) if spaces else ())
        ]

    def _backfill_all(
        self, tenant: TenantRef, chunks_per_second: float | None, run_partitions: PartitionRunner | None
    ) -> Iterator[int]:
        if run_partitions is not None:
            yield from run_partitions(chunks_per_second)
        rate_limit = RateLimit(chunks_per_second)
        while chunks := self.backfill(tenant, rate_limit.batch_size):
            yield chunks
            rate_limit.wait(chunks)

    def _make_live(self, tenant: TenantRef, space: Space) -> None:
        with exclusive_transaction(self._database, tenant) as connection:
            stored_spaces = {stored.space.id: stored for stored in SpaceStore(connection, tenant.id).list()}
            if space.id not in stored_spaces or stored_spaces[space.id].state == SpaceState.DROPPING:
                raise RequestError(f"the space of {space.model!r} has been dropped; run kosmos-rag reembed start")
            scope = {"tenant_id": tenant.id, "space_id": space.id, "now": datetime.now(UTC)}
            missing = count_missing(connection, tenant, space)
            if missing:
                raise RequestError(
                    f"{missing:,} chunks have no vector by {space.model!r} yet; run kosmos-rag reembed start first"
                )
            live_id = next(stored.space.id for stored in stored_spaces.values() if stored.live)
            connection.execute(statement("retire_live_space"), {**scope, "live_id": live_id})
            connection.execute(statement("complete_space"), scope)
            connection.execute(statement("set_live_space"), scope)
        _LOG.info(
            "queries of tenant %s are answered by %s", tenant.name, space.model,
            extra={"action": "space_cutover", "tenant": tenant.name},
        )  # fmt: skip


def rejection_reason(quality: SpaceQuality) -> str | None:
    """Return why not to cut over to a space.

    The result is None if it is good enough.
    """
    if quality.recall_at_10 is not None and quality.recall_at_10 < quality.recall_target:
        return f"recall@10 of its index is {quality.recall_at_10:.3f}, the target is {quality.recall_target}"
    if quality.ndcg_at_10 is None or quality.live_ndcg_at_10 is None:
        return None
    if quality.ndcg_at_10 < quality.live_ndcg_at_10 - MAX_NDCG_LOSS:
        return (
            f"nDCG@10 is {quality.ndcg_at_10:.3f} over {quality.questions} questions, "
            f"that of {quality.live_model!r} {quality.live_ndcg_at_10:.3f}"
        )
    return None


def _info(stored: StoredSpace, index: IndexRecord | None, *, embedded: int, chunks: int) -> SpaceInfo:
    return SpaceInfo(
        id=stored.space.id,
        model=stored.space.model,
        dimensions=stored.space.dimensions,
        state=stored.state,
        live=stored.live,
        live_until=stored.live_until,
        embedded=embedded,
        chunks=chunks,
        truncated_tokens=stored.truncated_tokens,
        index=index.kind if index is not None else None,
        recall_at_10=index.health.get("recall_at_10") if index is not None else None,
        created_at=stored.created_at,
    )
