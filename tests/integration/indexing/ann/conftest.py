"""Copies of one world for each test, and engines over them."""

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from tests.conftest import Server, clone
from tests.integration.indexing.ann.worlds import CHUNKS, WORLD, opened, publish_world
from tests.integration.variants import changed


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


@pytest.fixture(scope="session")
def indexed_template(server: Server, template: str, loaded_settings: Settings) -> Iterator[str]:
    """The template with the index of its tenant."""
    with clone(server, template) as database:
        with opened(_of_indexes(loaded_settings.model_copy(update={"database": database}))) as engine:
            engine.tenant("acme").indexes.build()
        yield urlsplit(database.url).path[1:]


@pytest.fixture
def database(request: pytest.FixtureRequest, server: Server, template: str) -> Iterator[DatabaseSettings]:
    """A copy of the world; with the index of its tenant for a test of `indexed`, unless it has many lists."""
    names = request.fixturenames
    built = "indexed" in names and "many_lists" not in names
    with clone(server, request.getfixturevalue("indexed_template") if built else template) as settings:
        yield settings


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The dense retriever alone, everything within reach; nothing is packed, for these tests are not about that."""
    return _of_indexes(settings)


def _of_indexes(settings: Settings) -> Settings:
    values = {
        "rag.retrieval.similarity_threshold": -1.0,
        "rag.retrieval.keyword_weight": 0.0,
        "indexes.vector_min_chunks": 1_000,
        "indexes.unsegmented_chunks": 1_000_000,
        "indexes.vector": "ivfflat",
        # Vectors in memory would answer in place of the index.
        "indexes.vector_cache_mb": 0,
    }
    return changed(settings, values)


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
    """An engine whose tenant has its index: that of the template, which is not due, or one that is built here."""
    engine.tenant("acme").indexes.build()
    return engine
