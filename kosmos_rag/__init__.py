"""Multi-tenant retrieval on PostgreSQL and pgvector: files in, cited context out.

Start with `Engine`. The records are what its calls give and take; every error is a `KosmosError`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kosmos_rag.version import __version__

if TYPE_CHECKING:
    from kosmos_rag.async_engine import AsyncEngine
    from kosmos_rag.config import Settings
    from kosmos_rag.engine import Engine
    from kosmos_rag.errors import KosmosError
    from kosmos_rag.records import (
        Answer,
        Citation,
        CitationReport,
        Context,
        Filter,
        IngestReport,
        Passage,
        Retrieval,
        SourceDocument,
    )
    from kosmos_rag.scope import TenantScope
    from kosmos_rag.worker import run_worker

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
    "Retrieval",
    "Settings",
    "SourceDocument",
    "TenantScope",
    "__version__",
    "run_worker",
]

_HOME = {
    "AsyncEngine": "async_engine",
    "Engine": "engine",
    "KosmosError": "errors",
    "Settings": "config",
    "TenantScope": "scope",
    "run_worker": "worker",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562), so that a command that needs no engine does not pay for one."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'records')}"), name)


def __dir__() -> list[str]:
    return __all__
