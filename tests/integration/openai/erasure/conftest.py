"""The tenant of the tests of erasures."""

from tests.integration.engine.test_erasure import acme, logged, shared_logged

__all__ = ["acme", "logged", "shared_logged"]
