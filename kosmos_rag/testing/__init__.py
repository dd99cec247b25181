"""Light stand-ins for models, so that tests and examples run without one."""

from kosmos_rag.testing.embedding import HashingEmbedder

__all__ = ["HashingEmbedder"]
