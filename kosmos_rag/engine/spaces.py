"""The embedding spaces of one tenant, and its move between the two models that are configured."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal

from kosmos_rag.core.types import SpaceInfo, SpaceQuality
from kosmos_rag.evaluation.embedding_quality import read_judged
from kosmos_rag.indexing.reembedding.migration import Progress, Reembedding
from kosmos_rag.indexing.reembedding.ray import fill_by_ray
from kosmos_rag.storage.tenants import TenantRef


class TenantSpaces:
    """The embedding spaces of one tenant. Thread-safe."""

    def __init__(self, reembedding: Reembedding, again: Callable[[], Reembedding], owner: TenantRef) -> None:
        """`again` makes the same once more, for the processes that embed in bulk: they open their own."""
        self._reembedding = reembedding
        self._again = again
        self._owner = owner

    def status(self) -> list[SpaceInfo]:
        """Return the tenant's embedding spaces, the live one first, and how far each has come. Raises DatabaseError."""
        return self._reembedding.status(self._owner)

    def start(
        self,
        *,
        chunks_per_second: float | None = None,
        engine: Literal["local", "ray"] = "local",
        on_progress: Progress | None = None,
    ) -> list[SpaceInfo]:
        """Embed all chunks by the other one of the two models that are configured, beside the live space.

        Safe at any time, beside questions and ingestion; interrupted, it goes on when it is called again. `ray` lets
        the workers of a Ray cluster do it. Raises RequestError for a tenant without documents, ConfigError where there
        is no other model or no Ray, ModelError, IndexLocked, DatabaseError.
        """
        return self._reembedding.start(
            self._owner,
            chunks_per_second=chunks_per_second,
            parts=partial(fill_by_ray, self._again, self._owner) if engine == "ray" else None,
            on_progress=on_progress or _silent,
        )

    def step(self, limit: int) -> int:
        """Embed up to `limit` of the chunks that a space lacks, for those who share the work out among others.

        Returns how many; 0 where none is missing. Raises ModelError, DatabaseError.
        """
        return self._reembedding.step(self._owner, limit)

    def switch(
        self,
        *,
        questions: str | Path | None = None,
        force: str | None = None,
        on_progress: Progress | None = None,
    ) -> SpaceQuality:
        """Measure the space of the other model, and answer questions from it from now on.

        `questions` is a file of questions with the sources of their answers, that both models are compared by. `force`
        is the reason to switch whatever is measured. Raises RequestError where the space is incomplete or measured to
        be worse, ConfigError, ModelError, IndexLocked, DatabaseError.
        """
        return self._reembedding.switch(
            self._owner,
            questions=read_judged(Path(questions)) if questions is not None else (),
            force=force,
            on_progress=on_progress or _silent,
        )

    def rollback(self) -> list[SpaceInfo]:
        """Answer questions from the space that was live before. Raises RequestError where there is none."""
        return self._reembedding.rollback(self._owner)

    def drop(self, space: str, on_progress: Progress | None = None) -> list[SpaceInfo]:
        """Remove a space that is not live, by its model or id, with its vectors and its index.

        Raises RequestError where it is live or not there, IndexLocked, ConfigError, DatabaseError.
        """
        return self._reembedding.drop(self._owner, space, on_progress or _silent)


def _silent(*_: object) -> None:
    """Tell nobody."""
