"""The tenant of the tests of re-embedding, with both models."""

from tests.integration.indexing.reembedding.conftest import acme, moving

__all__ = ["acme", "moving"]
