"""What the tests of the view of the memory share."""

from kosmos_rag import Engine
from kosmos_rag.retrieval.blocks.cache import BlockCache
from kosmos_rag.retrieval.views.memory import MemoryView


def find_block_cache(engine: Engine) -> BlockCache:
    """Return the blocks that an engine has in memory."""
    view = engine._search._resources.views[0]
    assert isinstance(view, MemoryView)
    return view.blocks
