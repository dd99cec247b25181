"""Tests of the view of the memory run where its module is: it is optional."""

import pytest

from tests.integration.variants import HAS_MEMORY_VIEW

collect_ignore_glob = [] if HAS_MEMORY_VIEW else ["*_in_memory.py"]


@pytest.fixture
def early_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the block of a state after one search, with a filter too."""
    from kosmos_rag.retrieval.blocks import cache

    monkeypatch.setattr(cache, "MISSES", 1)
    monkeypatch.setattr(cache, "MISSES_OF_FILTER", 1)
