"""The embedding spaces of one tenant, and its migration."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from kosmos_rag.core.types import Space, SpaceInfo, SpaceQuality
from kosmos_rag.evaluation.embedding_quality import compare_spaces, read_answerable
from kosmos_rag.indexing.reembedding.migration import Progress, Reembedding
from kosmos_rag.indexing.reembedding.ray import backfill_with_ray
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenants import TenantRef

__all__ = ["Progress", "TenantSpaces"]


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
            database: Connections.
            reembedding: Migrates tenants.
            reembedding_factory: Opens another Reembedding, for each process of a distributed backfill.
            owner: The tenant.
        """
        self._database = database
        self._reembedding = reembedding
        self._reembedding_factory = reembedding_factory
        self._owner = owner

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
        questions: str | Path | None = None,
        force: str | None = None,
        on_progress: Progress | None = None,
    ) -> SpaceQuality:
        """Measure the target space, and make it the live one.

        Raises RequestError if the space is incomplete or measured to be worse, ConfigError, ModelError, IndexLocked,
        DatabaseError.

        Args:
            questions: A question file with the sources of the answers, to compare both models.
            force: Reason to cut over in spite of the measurements.
            on_progress: Called with each step.
        """
        report = on_progress or _discard
        answerable = read_answerable(Path(questions)) if questions is not None else []

        def measure(target: Space) -> SpaceQuality:
            if answerable:
                report(0, 0, f"searching both spaces with {len(answerable)} questions")
            live, embedder_of = (
                self._reembedding.live_space(self._owner),
                partial(self._reembedding.embedder, self._owner),
            )
            return compare_spaces(self._database, self._owner, target, live, embedder_of, answerable)

        return self._reembedding.cutover(self._owner, measure=measure, force=force, on_progress=report)

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


def _discard(*_: object) -> None:
    """Ignore progress."""
