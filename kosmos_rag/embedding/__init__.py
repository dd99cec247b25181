"""Text in, vectors out: the embedding model, its tokenizer, and the space that a tenant's vectors live in."""

from kosmos_rag.embedding.configured import configured
from kosmos_rag.embedding.embedders import Embedders, Model
from kosmos_rag.embedding.sentence_transformer import SentenceTransformerEmbedder

__all__ = ["Embedders", "Model", "SentenceTransformerEmbedder", "configured"]
