"""What the tests of the view of the memory share."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kosmos_rag import Engine, Settings
from kosmos_rag.retrieval.blocks.cache import BlockCache
from kosmos_rag.retrieval.views.memory import MemoryView
from tests.integration.variants import opened


def find_block_cache(engine: Engine) -> BlockCache:
    """Return the blocks that an engine has in memory."""
    view = engine._components.pipelines.default.search._resources.views[0]
    assert isinstance(view, MemoryView)
    return view.blocks


@contextmanager
def opened_views(settings: Settings, overrides: Mapping[str, Any], **models: Any) -> Iterator[tuple[Engine, Engine]]:
    """Open an engine with the view of the memory, and one without."""
    with (
        opened(settings, overrides, **models) as memory,
        opened(settings, {**overrides, "indexes.vector_cache_mb": 0}, **models) as database,
    ):
        yield memory, database
