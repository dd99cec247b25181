"""What an engine is made of, for the scope of a tenant and for workers."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder, LanguageModel
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.engine.collections import Collections, PerCollection
from kosmos_rag.evaluation.experiments.assignment import Experiments
from kosmos_rag.indexing.maintenance import IndexMaintenance
from kosmos_rag.indexing.reembedding.migration import Reembedding
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.retrieval.pipeline import Retriever
from kosmos_rag.storage.pool import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What goes by the settings of a collection."""

    settings: Settings
    retriever: Retriever
    answerer: Answerer
    version: str = field(init=False)
    """That of the settings: equal means that questions are answered by the same ones."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self.settings.settings_hash)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Parts of an engine that work for all tenants."""

    settings: Settings
    database: Database
    telemetry: Telemetry
    embedder: Embedder
    language_model: LanguageModel | None
    ingest_pipeline: IngestPipeline
    collections: Collections
    shapes: PerCollection[Shape]
    experiments: Experiments
    indexes: IndexMaintenance
    reembedding: Reembedding
    reembedding_again: Callable[[], Reembedding]
    """Makes the same once more, for processes that open their own."""
