"""What the tenants of one engine share."""

from collections.abc import Callable
from dataclasses import dataclass

from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder, LanguageModel
from kosmos_rag.engine.background import BackgroundQueue
from kosmos_rag.engine.collections import Collections, PipelineCache
from kosmos_rag.engine.page_images import PageImages
from kosmos_rag.engine.query import QueryHandler
from kosmos_rag.engine.query_hooks import Directory, Meter
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.storage.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineComponents:
    """Components of an engine that serve all tenants; only the engine and its tenants hold them."""

    settings: Settings
    database: Database
    embedder: Embedder
    language_model: LanguageModel | None
    ingest_pipeline: IngestPipeline
    collections: Collections
    pipelines: PipelineCache
    queries: QueryHandler
    background: BackgroundQueue
    page_images: PageImages
    indexes: IndexMaintenance
    reembedding: Reembedding
    reembedding_factory: Callable[[], Reembedding]
    """Creates another one, for processes that open their own engine."""
    meter: Meter | None
    directory: Directory | None
