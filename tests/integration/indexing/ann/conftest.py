"""Copies of one world for each test, and engines over them."""

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Engine, Settings
from tests.integration.indexing.ann.worlds import CHUNKS, WORLD, opened, publish_world


@pytest.fixture(scope="session")
def template(server: Any, template: str) -> Iterator[str]:
    """The migrated template with the world in it: tests get copies."""
    name = f"kosmos_world_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        )
    base = Settings.load(overrides={"rag.reranking.enabled": False})
    filled = base.model_copy(update={"database": server.settings(name)})
    with Engine(filled, embedder=WORLD) as engine:
        publish_world(engine, "acme", range(CHUNKS))
    yield name
    with psycopg.connect(server.admin, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The dense retriever alone, everything within reach; nothing is packed, for these tests are not about that."""
    retrieval = settings.rag.retrieval.model_copy(update={"similarity_threshold": -1.0, "keyword_weight": 0.0})
    indexes = settings.indexes.model_copy(
        # Vectors in memory would answer in place of the index.
        update={
            "vector_min_chunks": 1_000,
            "unsegmented_chunks": 1_000_000,
            "vector": "ivfflat",
            "vector_cache_mb": 0,
        }
    )
    return settings.model_copy(
        update={"rag": settings.rag.model_copy(update={"retrieval": retrieval}), "indexes": indexes}
    )


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """An engine that builds ivfflat indexes."""
    with opened(settings) as running:
        yield running


@pytest.fixture
def exact(settings: Settings) -> Iterator[Engine]:
    """An engine that uses no vector index, whether there is one or not."""
    with opened(settings, vector="none") as running:
        yield running


@pytest.fixture
def indexed(engine: Engine) -> Engine:
    """An engine whose tenant has its index."""
    engine.tenant("acme").indexes.build()
    return engine
