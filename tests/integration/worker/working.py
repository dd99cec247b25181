"""A worker's work within a test, and what is to be true after it."""

from collections.abc import Callable, Sequence

from kosmos_rag import Engine, Tenant
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import RunInfo
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.worker.handlers.maintenance import count_orphans

Work = Callable[[], None]
KEPT: list[object] = []
"""Ends of pipes: a channel takes the end of its pipe for the end of its supervisor, and exits."""


class CountingEmbedder(HashingEmbedder):
    """Counts the texts that it is given."""

    texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return super().embed(texts)


def last_run(scope: Tenant) -> RunInfo:
    return scope.jobs.runs()[0]


def counts(run: RunInfo) -> dict[str, int]:
    assert run.state == "finished"
    assert run.seen == run.new + run.changed + run.unchanged + run.removed + run.failed
    names = ("new", "changed", "unchanged", "removed", "failed")
    return {name: getattr(run, name) for name in names if getattr(run, name)}


def assert_adds_up(engine: Engine, scope: Tenant) -> None:
    assert set(count_orphans(engine.database, scope._tenant).values()) == {0}
