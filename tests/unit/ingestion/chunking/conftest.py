"""The five splitters with small sizes, built by the factory."""

from collections.abc import Callable
from typing import Any

import pytest

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.protocols import Embedder
from kosmos_rag.ingestion.chunking import Chunker, build_chunker
from kosmos_rag.models.testing.hashing import HashingEmbedder

BuildChunker = Callable[..., Chunker]


@pytest.fixture
def build() -> BuildChunker:
    """Build a splitter; keywords are chunking settings, and `embedder` and `max_tokens`."""

    def build_(strategy: str, *, embedder: Embedder | None = None, max_tokens: int = 254, **settings: Any) -> Chunker:
        return build_chunker(
            ChunkingSettings(**{"strategy": strategy, "min_size": 100, **settings}),
            embedder=embedder or HashingEmbedder(),
            max_tokens=max_tokens,
        )

    return build_
