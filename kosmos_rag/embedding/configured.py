"""The models that the settings name, as one."""

from kosmos_rag.config import Settings
from kosmos_rag.embedding.embedders import Embedders, Model
from kosmos_rag.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.ports import Embedder


def configured(settings: Settings, embedder: Embedder, next_embedder: Embedder | None) -> Embedders:
    """Return the model of `rag.embedding` and that of `rag.next_embedding`, where one is given or named."""
    current, following = settings.rag.embedding, settings.rag.next_embedding
    if next_embedder is None and following.embedding is not None:
        next_embedder = SentenceTransformerEmbedder(following.embedding, settings.models, section="rag.next_embedding")
    return Embedders(
        Model(embedder=embedder, normalized=current.normalize),
        Model(embedder=next_embedder, normalized=following.normalize) if next_embedder is not None else None,
    )
