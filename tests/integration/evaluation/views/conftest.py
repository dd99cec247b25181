"""The engines of the tests of random worlds: with the view of the memory, and without."""

from tests.integration.retrieval.views.conftest import early_blocks
from tests.integration.retrieval.views.test_worlds_in_memory import engines

__all__ = ["early_blocks", "engines"]
