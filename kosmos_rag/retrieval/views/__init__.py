"""Views: the ways to read what a search needs, the fastest first.

The view of the memory of the process is optional: without its module, the database answers every search.
"""

from importlib.util import find_spec

from kosmos_rag.core.config import Settings
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.retrieval.close_terms import CloseTermCache
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.views.base import SearchView
from kosmos_rag.retrieval.views.database import DatabaseView


def create_views(
    settings: Settings, telemetry: Telemetry, postings: PostingsCache, close_terms: CloseTermCache
) -> tuple[SearchView, ...]:
    """Return the views of a process, in the order in which a search asks them.

    The last one can answer every search.

    Args:
        settings: Of the process.
        telemetry: Where metrics go.
        postings: Cache of packed postings.
    """
    database = DatabaseView(postings=postings, close_terms=close_terms)
    if not settings.indexes.vector_cache_mb or find_spec(f"{__name__}.memory") is None:
        return (database,)
    from kosmos_rag.retrieval.views.memory import MemoryView

    return MemoryView(settings, telemetry, close_terms), database
