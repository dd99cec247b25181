"""What an engine is made of, for those who work with its parts and not through the scope of a tenant."""

from collections.abc import Callable
from dataclasses import dataclass

from kosmos_rag.config import Settings
from kosmos_rag.indexing.lifecycle import Indexes
from kosmos_rag.ingestion.pipeline import Ingestor
from kosmos_rag.retrieval.retriever import Retriever
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.tenancy import Tenant


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Parts of an engine that work for all tenants."""

    database: Database
    ingestor: Ingestor
    """For what has nothing to do with the settings of a collection."""
    ingestor_of: Callable[[Tenant, str], Ingestor]
    """Returns what ingests into a collection, by its preset."""
    indexes: Indexes


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What goes by the settings of a collection."""

    settings: Settings
    ingestor: Ingestor
    retriever: Retriever
