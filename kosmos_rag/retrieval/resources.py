"""Connections, models and caches that the search pipelines of a process share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self
from uuid import UUID

from kosmos_rag.core.config import Settings
from kosmos_rag.core.protocols import Embedder, LanguageModel, Reranker
from kosmos_rag.core.telemetry.metrics import CACHE_BYTES, CACHE_LOOKUPS
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.retrieval.cache import QueryEmbeddingCache, ResultCache
from kosmos_rag.retrieval.close_terms import CloseTermCache
from kosmos_rag.retrieval.expansion.expander import Expander, create_expander
from kosmos_rag.retrieval.postings import PostingsCache
from kosmos_rag.retrieval.rerank import RerankStage
from kosmos_rag.retrieval.views import create_views
from kosmos_rag.retrieval.views.base import SearchView
from kosmos_rag.storage.pool import ConnectionPool

_CLOSE_TERMS = 10_000
"""Absent words whose close terms are cached, a kilobyte each at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchResources:
    """Connections, models and caches that the pipelines of a process share."""

    pool: ConnectionPool
    embedders: EmbedderRegistry
    embeddings: Mapping[int, QueryEmbeddingCache]
    """By identity of the model."""
    last_embedders: dict[UUID, tuple[UUID, Embedder]]
    """Embedding space and model of the last query, by tenant id."""
    expander: Expander | None
    """None if the settings expand nothing."""
    results: ResultCache
    views: tuple[SearchView, ...]
    """In the order in which a search asks them."""
    rerank: RerankStage | None
    telemetry: Telemetry

    @classmethod
    def create(
        cls,
        pool: ConnectionPool,
        embedders: EmbedderRegistry,
        reranker: Reranker | None,
        language_model: LanguageModel | None,
        settings: Settings,
        telemetry: Telemetry,
    ) -> Self:
        """Create caches and stages, and register the gauges of the caches.

        Args:
            pool: Connections of readers.
            embedders: Models of all embedding spaces.
            reranker: None to leave the fused order.
            language_model: Of query expansion.
            settings: Of the process.
            telemetry: Where metrics go.
        """
        retrieval = settings.rag.retrieval
        postings = PostingsCache(settings.indexes.postings_cache_mb * 1024 * 1024)
        resources = cls(
            pool=pool,
            embedders=embedders,
            embeddings={
                id(embedder): QueryEmbeddingCache(embedder, size=retrieval.query_embedding_cache)
                for embedder in embedders.all
            },
            last_embedders={},
            expander=create_expander(settings.rag, language_model),
            results=ResultCache(size=retrieval.result_cache),
            views=create_views(settings, telemetry, postings, CloseTermCache(_CLOSE_TERMS)),
            rerank=RerankStage(reranker, settings.rag.reranking, telemetry) if reranker else None,
            telemetry=telemetry,
        )
        caches: list[tuple[str, ResultCache | PostingsCache | QueryEmbeddingCache]] = [
            *(("question_vectors", cache) for cache in resources.embeddings.values()),
            ("results", resources.results),
            ("postings", postings),
        ]
        for name, cache in caches:
            telemetry.gauge(CACHE_LOOKUPS, partial(getattr, cache, "hits"), name, "hit")
            telemetry.gauge(CACHE_LOOKUPS, partial(getattr, cache, "misses"), name, "miss")
        telemetry.gauge(CACHE_BYTES, lambda: postings.bytes, "postings")
        return resources

    def for_background(self, pool: ConnectionPool) -> Self:
        """Return resources for background queries.

        They have their own connections and rerank slots, cache no results and record no metrics.
        """
        return replace(
            self,
            pool=pool,
            results=ResultCache(size=0),
            rerank=None if self.rerank is None else self.rerank.for_background(),
            telemetry=Telemetry(),
        )
