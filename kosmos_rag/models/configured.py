"""The local models that the settings name."""

from collections.abc import Iterator
from dataclasses import dataclass

from kosmos_rag.core.config import RagSettings
from kosmos_rag.models.hub import LOCAL_ALTERNATIVE
from kosmos_rag.models.reranking.cross_encoder import REMEDY as RERANKER_ALTERNATIVE


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfiguredModel:
    """A model, its use, and the remedy where it is missing."""

    use: str
    name: str
    remedy: str


def list_configured_models(rag: RagSettings) -> Iterator[ConfiguredModel]:
    """Yield the models that ingestion and questions load.

    Models behind a server are not among them.
    """
    if rag.embedding.url is None:
        yield ConfiguredModel(use="embedding model", name=rag.embedding.model, remedy=LOCAL_ALTERNATIVE)
    if rag.next_embedding.model is not None and rag.next_embedding.url is None:
        yield ConfiguredModel(use="next embedding model", name=rag.next_embedding.model, remedy=LOCAL_ALTERNATIVE)
    if rag.reranking.enabled and rag.reranking.url is None:
        yield ConfiguredModel(use="reranking model", name=rag.reranking.model, remedy=RERANKER_ALTERNATIVE)
