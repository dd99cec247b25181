"""An engine of the lexical retriever alone, and the administrator of its database."""

from collections.abc import Iterator

import psycopg
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed


@pytest.fixture
def keyword_settings(settings: Settings) -> Settings:
    """The lexical retriever alone, as deep as the answer is long; every chunk is packed."""
    retrieval = {"rag.retrieval.semantic_weight": 0.0, "rag.retrieval.candidates": 1, "rag.retrieval.top_k": 1}
    return changed(settings, {**retrieval, "indexes.unsegmented_chunks": 1, "indexes.vector": "none"})


@pytest.fixture
def keywords(keyword_settings: Settings) -> Iterator[Engine]:
    """An engine over these settings."""
    with Engine(keyword_settings, embedder=HashingEmbedder()) as opened:
        yield opened


@pytest.fixture
def admin(database: DatabaseSettings) -> Iterator[psycopg.Connection]:
    """The administrator, who sees every row."""
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        yield connection
