"""The embedding spaces of one tenant, and its migration."""

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from kosmos_rag.core.types import EVERYONE, Space, SpaceInfo, SpaceQuality
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.indexing.recall import exact_search
from kosmos_rag.indexing.reembedding.migration import Progress, Reembedding
from kosmos_rag.indexing.reembedding.ray import backfill_with_ray
from kosmos_rag.indexing.transactions import maintenance_transaction
from kosmos_rag.models.embedding.registry import embed_queries
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore, TenantRef

MeasureSpaces = Callable[[Space, Space], SpaceQuality]
"""Compares the space that is to become live with the one that is live."""

__all__ = ["Progress", "TenantSpaces"]


@name_wrong_arguments()
class TenantSpaces:
    """The embedding spaces of one tenant. Thread-safe."""

    def __init__(
        self,
        database: Database,
        reembedding: Reembedding,
        reembedding_factory: Callable[[], Reembedding],
        owner: TenantRef,
    ) -> None:
        """Bind a tenant.

        Args:
            reembedding: Migrates tenants.
            reembedding_factory: Opens another Reembedding, for each process of a distributed backfill.
        """
        self._database = database
        self._reembedding = reembedding
        self._reembedding_factory = reembedding_factory
        self._owner = owner

    def live_id(self) -> uuid.UUID | None:
        """Return the id of the live space; None for a tenant without documents. Raises DatabaseError."""
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            space = SpaceStore(connection, self._owner.id).find_live()
        return None if space is None else space.id

    def status(self) -> list[SpaceInfo]:
        """Return the tenant's embedding spaces, the live one first. Raises DatabaseError."""
        return self._reembedding.status(self._owner)

    def start(
        self,
        *,
        chunks_per_second: float | None = None,
        engine: Literal["local", "ray"] = "local",
        on_progress: Progress | None = None,
    ) -> list[SpaceInfo]:
        """Re-embed all chunks with the other model, and build its index.

        Queries and ingestion continue meanwhile. After an interruption, call it again to continue.

        Raises RequestError for a tenant without documents, ConfigError without another model or without Ray,
        ModelError, IndexLocked, DatabaseError.

        Args:
            chunks_per_second: Rate limit; None means no limit.
            engine: `local`: this process; `ray`: the workers of a Ray cluster.
            on_progress: Called after each batch.
        """
        return self._reembedding.start(
            self._owner,
            chunks_per_second=chunks_per_second,
            run_partitions=partial(backfill_with_ray, self._reembedding_factory, self._owner)
            if engine == "ray"
            else None,
            on_progress=on_progress or _discard,
        )

    def backfill(self, limit: int) -> int:
        """Embed up to `limit` chunks without a vector in a space.

        For callers that schedule the work themselves.

        Returns the number of embedded chunks; 0 if none is missing. Raises ModelError, DatabaseError.
        """
        return self._reembedding.backfill(self._owner, limit)

    def cutover(
        self,
        *,
        measure: MeasureSpaces | None = None,
        force: str | None = None,
        on_progress: Progress | None = None,
    ) -> SpaceQuality:
        """Measure the target space, and make it the live one.

        Raises RequestError if the space is incomplete or measured to be worse, ConfigError, ModelError, IndexLocked,
        DatabaseError.

        Args:
            measure: Compares the target space with the live one; None to compare no models.
            force: Reason to cut over in spite of the measurements.
            on_progress: Called with each step.
        """

        def measure_target(target: Space) -> SpaceQuality:
            live = self._reembedding.live_space(self._owner)
            return (measure or _compare_nothing)(target, live)

        return self._reembedding.cutover(
            self._owner, measure=measure_target, force=force, on_progress=on_progress or _discard
        )

    def rank_sources(self, space: Space, questions: Sequence[str]) -> list[list[str]]:
        """Return the sources of the chunks nearest to each question, the nearest first.

        A space is searched exactly, so that models are compared and not indexes. Raises ModelError, DatabaseError.

        Args:
            space: The space to search, by its model.
        """
        vectors = embed_queries(self._reembedding.embedder(self._owner, space), questions)
        with maintenance_transaction(self._database, self._owner) as connection:
            search = exact_search(connection, {"tenant_id": self._owner.id, "space_id": space.id})
            rankings = []
            for vector in vectors:
                values = {"tenant_id": self._owner.id, "chunk_ids": search(vector)}
                rows = connection.execute(statement("sources_of_chunks"), values).fetchall()
                rankings.append(list(dict.fromkeys(source for _, source in rows)))
        return rankings

    def rollback(self) -> list[SpaceInfo]:
        """Answer queries from the space that was live before.

        Raises RequestError if there is none.
        """
        return self._reembedding.rollback(self._owner)

    def drop(self, space: str, on_progress: Progress | None = None) -> list[SpaceInfo]:
        """Drop a space that is not live, by model or id.

        With its vectors and its index.

        Raises RequestError if it is live or missing, IndexLocked, ConfigError, DatabaseError.
        """
        return self._reembedding.drop(self._owner, space, on_progress or _discard)


def _compare_nothing(target: Space, live: Space) -> SpaceQuality:
    return SpaceQuality(
        model=target.model,
        live_model=live.model,
        recall_at_10=None,
        recall_target=0.0,
        questions=0,
        ndcg_at_10=None,
        live_ndcg_at_10=None,
        forced=None,
    )


def _discard(*_: object) -> None:
    """Ignore progress."""
