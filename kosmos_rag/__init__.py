"""Multi-tenant retrieval on PostgreSQL and pgvector: files in, cited context out.

Start with `Engine`. The records are what its calls give and take; every error is a `KosmosError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kosmos_rag.core.version import __version__
from kosmos_rag.wings import register_wings

if TYPE_CHECKING:
    from kosmos_rag.core.config import Settings
    from kosmos_rag.core.errors import KosmosError
    from kosmos_rag.core.types import (
        Answer,
        Citation,
        CitationReport,
        Context,
        Filter,
        IngestReport,
        Passage,
        SearchResult,
        SourceDocument,
    )
    from kosmos_rag.engine.aio import AsyncEngine
    from kosmos_rag.engine.engine import Engine
    from kosmos_rag.engine.tenant import Tenant

__all__ = [
    "Answer",
    "AsyncEngine",
    "Citation",
    "CitationReport",
    "Context",
    "Engine",
    "Filter",
    "IngestReport",
    "KosmosError",
    "Passage",
    "SearchResult",
    "Settings",
    "SourceDocument",
    "Tenant",
    "__version__",
]

register_wings()

_HOME = {
    "AsyncEngine": "engine.aio",
    "Engine": "engine.engine",
    "KosmosError": "core.errors",
    "Settings": "core.config",
    "Tenant": "engine.tenant",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562).

    Commands that need no engine then start without importing it.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'core.types')}"), name)


def __dir__() -> list[str]:
    return __all__
