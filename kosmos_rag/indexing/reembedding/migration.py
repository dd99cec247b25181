"""Moving a tenant from the model of its live space to the other one that is configured, while questions are answered.

A space is built beside the live one. Publications write both from the moment that it is there; `step` fills in what was
there before, and whatever a process without the second model has published since. Questions are switched by one row,
in a transaction that no publication overlaps and that finds no chunk without a vector, and back in the same way.
"""

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kosmos_rag.core.config import Settings
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.types import Space, SpaceInfo, SpaceQuality
from kosmos_rag.core.types.questions import Question
from kosmos_rag.evaluation.embedding_quality import ndcg_at_10, refusal
from kosmos_rag.indexing import catalog as catalogue
from kosmos_rag.indexing.maintenance import Indexes
from kosmos_rag.indexing.reembedding.backfill import EVERY_ID, Filler, IdRange, Throttle, part_of_ids
from kosmos_rag.indexing.reembedding.drop import condemn, delete_space
from kosmos_rag.indexing.reembedding.transactions import alone, count_chunks, count_missing, count_vectors, transaction
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.models.embedding.space import check_compatible, find_difference
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import (
    BUILDING,
    DROPPING,
    READY,
    StoredSpace,
    TenantRef,
    create_space,
    spaces_of,
    written_spaces,
)

_LOG = logging.getLogger(__name__)

Progress = Callable[[int, int, str], None]
"""Called with how many chunks are done, how many there are, and what is being done."""


class Reembedding:
    """Moves any tenant of one database between the models that are configured. Thread-safe."""

    def __init__(self, database: Database, embedders: EmbedderRegistry, indexes: Indexes, settings: Settings) -> None:
        self._database = database
        self._embedders = embedders
        self._indexes = indexes
        self._recall_target = settings.indexes.recall_target
        self._reached: dict[uuid.UUID, uuid.UUID] = {}

    def status(self, tenant: TenantRef) -> list[SpaceInfo]:
        """Return the tenant's spaces, the live one first. Loads no model. Raises DatabaseError."""
        with transaction(self._database, tenant) as connection:
            chunks = count_chunks(connection, tenant)
            ready = [entry for entry in catalogue.entries(connection, tenant.id) if entry.state == catalogue.READY]
            indexes = {entry.space_id: entry for entry in ready}
            return [
                _info(
                    stored,
                    indexes.get(stored.space.id),
                    embedded=count_vectors(connection, tenant, stored.space),
                    chunks=chunks,
                )
                for stored in spaces_of(connection, tenant.id)
            ]

    def begin(self, tenant: TenantRef) -> None:
        """Make the space of the other model, empty, where it is not there: publications write it from now on.

        Raises RequestError for a tenant without documents, ConfigError where no other model is configured,
        EmbeddingSpaceMismatch where the model of the live space is not, ModelUnavailable, DatabaseError.
        """
        space, there = self._other(tenant)
        if there is not None and there.state == DROPPING:
            raise RequestError(
                f"the space of {space.model!r} is being dropped; finish that first: kosmos-rag embed drop"
            )
        if there is None:
            with transaction(self._database, tenant) as connection:
                create_space(connection, tenant.id, space, state=BUILDING, now=datetime.now(UTC))

    def step(self, tenant: TenantRef, limit: int) -> int:
        """Embed up to `limit` chunks that a space lacks; returns how many, 0 where no space lacks any.

        Spaces are those whose models are configured here, the live one among them.
        Raises EmbeddingSpaceMismatch where its model is not, ModelUnavailable, DatabaseError.
        """
        # The live space last: it lacks something only where a model was not configured everywhere.
        for filler in reversed(self._fillers(tenant)):
            key = filler.space.id
            ahead = IdRange(after=self._reached.get(key, EVERY_ID.after), until=EVERY_ID.until)
            # Behind what was reached, chunks may have been published without vectors of this space.
            filled = filler.fill(ahead, limit) or (filler.fill(EVERY_ID, limit) if ahead != EVERY_ID else None)
            if filled is not None:
                self._reached[key] = filled.last
                return filled.chunks
            self._reached.pop(key, None)
        return 0

    def fill_part(self, tenant: TenantRef, number: int, parts: int, chunks_per_second: float | None) -> int:
        """Fill one of so many equal parts of every space; returns how many chunks were embedded. Raises as `step`."""
        throttle = Throttle(chunks_per_second)
        for filler in self._fillers(tenant):
            ids = part_of_ids(number, parts)
            while (filled := filler.fill(ids, throttle.batch)) is not None:
                throttle.wait(filled.chunks)
                ids = replace(ids, after=filled.last)
        return throttle.chunks

    def start(
        self,
        tenant: TenantRef,
        *,
        chunks_per_second: float | None,
        parts: Callable[[float | None], Iterator[int]] | None,
        on_progress: Progress,
    ) -> list[SpaceInfo]:
        """Make the space of the other model, fill it, and build its vector index; goes on where one was interrupted.

        `parts` fills most of it by other processes, and yields how many chunks each part had. Raises what `begin`,
        `step` and `Indexes.build` raise, RequestError on a rate that is not above 0.
        """
        if chunks_per_second is not None and not chunks_per_second > 0:
            raise RequestError(f"chunks per second are {chunks_per_second:g}; give a number above 0")
        self.begin(tenant)
        space, _ = self._other(tenant)
        with transaction(self._database, tenant) as connection:
            done, total = count_vectors(connection, tenant, space), count_chunks(connection, tenant)
        for chunks in self._filling(tenant, chunks_per_second, parts):
            done = min(total, done + chunks)
            on_progress(done, total, f"embedding with {space.model}")
        self._indexes.prepare_space(tenant, space, lambda line: on_progress(done, total, line))
        return self.status(tenant)

    def switch(
        self, tenant: TenantRef, *, questions: Sequence[Question], force: str | None, on_progress: Progress
    ) -> SpaceQuality:
        """Measure the space of the other model, and answer questions from it from now on.

        `force` says why that is done whatever is measured. Raises RequestError where the space is not there or
        incomplete, or measured to be worse; what `Indexes.build` raises.
        """
        if force is not None and not force.strip():
            raise RequestError("the reason for forcing the switch is empty; say in a word why")
        _, there = self._other(tenant)
        if there is None:
            raise RequestError(f"tenant {tenant.name!r} has no space to switch to; run kosmos-rag embed start")
        quality = self._measured(tenant, there.space, questions, on_progress)
        if (why := refusal(quality)) is not None:
            if force is None:
                raise RequestError(
                    f"{quality.model!r} is not switched to: {why}; to do so all the same: --force REASON"
                )
            _LOG.warning(
                "tenant %s switched to %s (%s), though %s", tenant.name, quality.model, force, why,
                extra={"action": "space_forced", "tenant": tenant.name},
            )  # fmt: skip
            quality = replace(quality, forced=force)
        self._make_live(tenant, there.space)
        return quality

    def drop(self, tenant: TenantRef, name: str, on_progress: Progress) -> list[SpaceInfo]:
        """Remove the space of that id or model, which is not live, with its vectors and its index.

        Interrupted, it goes on when it is called again. Raises RequestError where the space is live, not there or
        ambiguous, IndexLocked, ConfigError, DatabaseError.
        """
        space = condemn(self._database, tenant, name)
        self._indexes.drop_space(tenant, space, lambda line: on_progress(0, 0, line))
        delete_space(
            self._database,
            tenant,
            space,
            lambda done, total: on_progress(done, total, f"deleting vectors of {space.model}"),
        )
        return self.status(tenant)

    def rollback(self, tenant: TenantRef) -> list[SpaceInfo]:
        """Answer questions from the space that was live before, from now on.

        Raises RequestError where there is none or it is incomplete, EmbeddingSpaceMismatch where its model is not
        configured.
        """
        before = [stored for stored in self._stored(tenant) if stored.state == READY and stored.live_until is not None]
        if not before:
            raise RequestError(f"tenant {tenant.name!r} has no space that was live before; nothing was switched")
        self._embedders.get(before[0].space, tenant.name)
        self._make_live(tenant, before[0].space)
        return self.status(tenant)

    def _stored(self, tenant: TenantRef) -> list[StoredSpace]:
        with transaction(self._database, tenant) as connection:
            return spaces_of(connection, tenant.id)

    def _live(self, tenant: TenantRef) -> tuple[Space, list[StoredSpace]]:
        stored = self._stored(tenant)
        live = next((entry.space for entry in stored if entry.live), None)
        if live is None:
            raise RequestError(
                f"tenant {tenant.name!r} has no documents; ingest some, they are embedded by rag.embedding"
            )
        return live, stored

    def _other(self, tenant: TenantRef) -> tuple[Space, StoredSpace | None]:
        """Return the space of the model that is configured beside the live one's: as it would be made, and as it is."""
        live, stored = self._live(tenant)
        beside = self._embedders.target_space(live, tenant.id, tenant.name)
        if beside is None:
            raise ConfigError(
                "rag.next_embedding.model is null, and a tenant is moved between two models; name the other one there"
            )
        space, _ = beside
        if find_difference(live, space) is None:
            raise ConfigError(
                f"rag.embedding and rag.next_embedding both name the model of tenant {tenant.name!r}, {live.model!r}; "
                "name another one in rag.next_embedding"
            )
        there = next((entry for entry in stored if entry.space.id == space.id), None)
        if there is not None:
            check_compatible(there.space, space, tenant.name)
        return space, there

    def _fillers(self, tenant: TenantRef) -> list[Filler]:
        with transaction(self._database, tenant) as connection:
            spaces = written_spaces(connection, tenant.id)
        return [
            Filler(
                database=self._database,
                tenant=tenant,
                space=space,
                embedder=embedder,
                tokenizer=self._embedders.default.tokenizer,
            )
            for space, embedder in (self._embedders.get_writable(spaces, tenant.name) if spaces else ())
        ]

    def _filling(
        self,
        tenant: TenantRef,
        chunks_per_second: float | None,
        parts: Callable[[float | None], Iterator[int]] | None,
    ) -> Iterator[int]:
        if parts is not None:
            yield from parts(chunks_per_second)
        throttle = Throttle(chunks_per_second)
        while chunks := self.step(tenant, throttle.batch):
            yield chunks
            throttle.wait(chunks)

    def _measured(
        self, tenant: TenantRef, space: Space, questions: Sequence[Question], on_progress: Progress
    ) -> SpaceQuality:
        live, _ = self._live(tenant)
        entry = self._indexes.prepare_space(tenant, space, lambda line: on_progress(0, 0, line))
        scores: list[float | None] = [None, None]
        if questions:
            on_progress(0, 0, f"asking {len(questions)} questions of both models")
            with transaction(self._database, tenant) as connection:
                scores = [
                    ndcg_at_10(connection, tenant, of, self._embedders.get(of, tenant.name), questions)
                    for of in (space, live)
                ]
        return SpaceQuality(
            model=space.model,
            live_model=live.model,
            recall_at_10=entry.health["recall_at_10"] if entry is not None else None,
            recall_target=self._recall_target,
            questions=len(questions),
            ndcg_at_10=scores[0],
            live_ndcg_at_10=scores[1],
            forced=None,
        )

    def _make_live(self, tenant: TenantRef, space: Space) -> None:
        with alone(self._database, tenant) as connection:
            stored = {entry.space.id: entry for entry in spaces_of(connection, tenant.id)}
            if space.id not in stored or stored[space.id].state == DROPPING:
                raise RequestError(f"the space of {space.model!r} has been dropped; run kosmos-rag embed start")
            scope = {"tenant_id": tenant.id, "space_id": space.id, "now": datetime.now(UTC)}
            missing = count_missing(connection, tenant, space)
            if missing:
                raise RequestError(
                    f"{missing:,} chunks have no vector by {space.model!r} yet; run kosmos-rag embed start, then again"
                )
            live_id = next(entry.space.id for entry in stored.values() if entry.live)
            connection.execute(statement("retire_live_space"), {**scope, "live_id": live_id})
            connection.execute(statement("complete_space"), scope)
            connection.execute(statement("set_live_space"), scope)
        _LOG.info(
            "tenant %s is answered from %s", tenant.name, space.model,
            extra={"action": "space_switched", "tenant": tenant.name},
        )  # fmt: skip


def _info(stored: StoredSpace, index: catalogue.Entry | None, *, embedded: int, chunks: int) -> SpaceInfo:
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
