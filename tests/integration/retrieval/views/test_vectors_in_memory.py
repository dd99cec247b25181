"""Vectors in memory: the hits of a scan, for each reader, after every change."""

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest
from pgvector import HalfVector
from pgvector.psycopg import register_vector

from kosmos_rag import Engine, Filter, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.retrieval.blocks.block import inner_products
from tests.integration.retrieval.views.blocks import find_block_cache, opened_views

pytestmark = pytest.mark.usefixtures("early_blocks")
IN_MEMORY = "exact, in memory"
QUESTIONS = ("usual churn of topic2", "number7", "margin and topic5", "what says chunk 11")
SETTINGS: dict[str, Any] = {
    "rag.retrieval.similarity_threshold": -1.0,
    "rag.retrieval.semantic_weight": 1.0,
    "rag.retrieval.keyword_weight": 0.0,
    "rag.retrieval.candidates": 20,
    "rag.retrieval.top_k": 5,
    "indexes.vector": "none",
}


@pytest.fixture
def engines(settings: Settings) -> Iterator[tuple[Engine, Engine]]:
    """One with the view of the memory, and one without."""
    with opened_views(settings, SETTINGS) as engines:
        yield engines


def _document(number: int, acl: Sequence[str] = (EVERYONE,)) -> SourceDocument:
    dice = random.Random(number)
    words = " ".join(f"topic{dice.randrange(9)}" for _ in range(4))
    return SourceDocument(
        source=f"d{number}",
        data=f"churn margin number{number} chunk {number} {words}".encode(),
        acl=tuple(acl),
        metadata={"parity": number % 2},
    )


def _load(scope: Tenant) -> None:
    """Search until the vectors of this reader are in memory."""
    scope.search("load")
    assert scope._parts.background.drain(10)


def _hits(result: SearchResult) -> list[tuple[Any, float]]:
    return [(hit.chunk_id, round(hit.score, 6)) for hit in result.hits]


def _require_equal(engines: tuple[Engine, Engine], name: str, *principals: str, plan: str = IN_MEMORY) -> set[str]:
    """Require the hits of a scan, and return their sources."""
    sources: set[str] = set()
    cached, plain = (engine.tenant(name, principals=principals or (EVERYONE,)) for engine in engines)
    _load(cached)
    for question in QUESTIONS:
        outcome = cached.search(question)
        assert [stats.plan for stats in outcome.retrievers.values()] in ([plan], ["hidden"])
        assert _hits(outcome) == _hits(plain.search(question))
        sources |= {hit.source for hit in outcome.hits}
    return sources


def test_hits__are_those_of_a_scan_after_every_change(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    scope = engines[0].tenant(tenant_name)
    scope.ingest([_document(number) for number in range(40)])
    before = _require_equal(engines, tenant_name)
    scope.delete(sorted(before))
    assert not before & _require_equal(engines, tenant_name)
    scope.ingest([_document(number) for number in range(40, 60)])
    _require_equal(engines, tenant_name)
    scope.ingest([SourceDocument(source="d41", data=b"another text on number7")])
    assert "d41" in _require_equal(engines, tenant_name)
    engines[0].tenant(tenant_name, collection="other").ingest([_document(number) for number in range(100, 130)])
    _require_equal(engines, tenant_name)


def test_readers_of_the_same_lists__share_vectors(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    acls = {0: ("ann", "ben"), 1: ("ben",)}
    engines[0].tenant(tenant_name).ingest([_document(number, acls[number % 2]) for number in range(40)])
    even = _require_equal(engines, tenant_name, "ann")
    assert {int(source[1:]) % 2 for source in even} == {0}
    # Who may read as much finds the vectors that are there, whatever else they hold. His first search shows the state.
    for _ in range(2):
        outcome = engines[0].tenant(tenant_name, principals=("ann", "cay")).search(QUESTIONS[0])
    assert outcome.retrievers["dense"].plan in (IN_MEMORY, "hidden")
    cache = find_block_cache(engines[0])
    assert (len(cache._blocks), cache.hits) == (1, len(QUESTIONS) + 1)
    assert {int(source[1:]) % 2 for source in _require_equal(engines, tenant_name, "ben")} == {0, 1}
    assert engines[0].tenant(tenant_name, principals=("dan",)).search(QUESTIONS[0]).hits == ()


def test_block__gives_no_chunk_that_row_level_security_hides(
    engines: tuple[Engine, Engine], tenant_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ids of a block are candidates: where a reader may not read one, the database is searched."""
    engines[0].tenant(tenant_name).ingest([_document(number, (("ann",), ("ben",))[number % 2]) for number in range(60)])
    _require_equal(engines, tenant_name, "ann")
    _require_equal(engines, tenant_name, "ben")
    cache = find_block_cache(engines[0])
    (first, block), (second, other) = cache._blocks.items()
    cache._blocks[first] = replace(block, layers=other.layers)
    cache._blocks[second] = replace(other, layers=block.layers)
    for name, parity in (("ann", 0), ("ben", 1)):
        outcome = engines[0].tenant(tenant_name, principals=(name,)).search(QUESTIONS[0])
        assert {int(hit.source[1:]) % 2 for hit in outcome.hits} == {parity}
        assert len(outcome.hits) == 5
    # On a busy machine a search may also be logged as slow, which is a warning.
    errors = [record.action for record in caplog.records if record.levelno >= logging.ERROR]  # type: ignore[attr-defined]
    assert errors == ["block_refused"] * 2


def test_required_words__are_searched_in_the_database(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    scope = engines[0].tenant(tenant_name)
    scope.ingest([_document(number) for number in range(40)])
    _load(scope)
    outcome = scope.search("+number7 churn")
    assert outcome.retrievers["dense"].plan == "exact scan"
    assert outcome.hits


def _require_filtered(engines: tuple[Engine, Engine], name: str, where: dict[str, Any], *principals: str) -> set[str]:
    """Require the hits of a scan under a filter, from memory, and return their sources."""
    cached, plain = (engine.tenant(name, principals=principals or (EVERYONE,)) for engine in engines)
    cached.search("load", filter=Filter(where=where))
    assert cached._parts.background.drain(10)
    hits = find_block_cache(engines[0]).hits
    sources: set[str] = set()
    for question in QUESTIONS:
        outcome = cached.search(question, filter=Filter(where=where))
        assert _hits(outcome) == _hits(plain.search(question, filter=Filter(where=where)))
        sources |= {hit.source for hit in outcome.hits}
    assert find_block_cache(engines[0]).hits == hits + len(QUESTIONS)
    return sources


def test_filters__have_vectors_of_their_own(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    scope = engines[0].tenant(tenant_name)
    scope.ingest([_document(number) for number in range(40)])
    for parity in (0, 1):
        outcome = _require_filtered(engines, tenant_name, {"metadata.parity": parity})
        assert {int(source[1:]) % 2 for source in outcome} == {parity}
    assert scope.update_metadata([f"d{number}" for number in range(30)], {"parity": 1}) == 15
    assert {int(source[1:]) for source in _require_filtered(engines, tenant_name, {"metadata.parity": 0})} == set(
        range(30, 40, 2)
    )


def test_filter_on_the_acl__is_of_its_reader(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    """Both readers may read the same chunks, and only one may know of the department."""
    engines[0].tenant(tenant_name).ingest([_document(number, ("staff", "department:sales")) for number in range(40)])
    where = {"department": "sales"}
    assert _require_filtered(engines, tenant_name, where, "staff", "department:sales")
    assert not _require_filtered(engines, tenant_name, where, "staff")


def test_filter__that_leaves_too_many_is_not_loaded(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    scope = engines[0].tenant(tenant_name)
    scope.ingest([_document(number) for number in range(40)])
    cache = find_block_cache(engines[0])
    cache._max_bytes = 2 * 30 * (2 * HashingEmbedder().dimensions + 50)
    for where, blocks in (({"metadata.parity": {"$exists": True}}, 0), ({"metadata.parity": 1}, 1)):
        scope.search("load", filter=Filter(where=where))
        assert scope._parts.background.drain(10)
        assert len(cache._blocks) == blocks


@pytest.mark.usefixtures("tenant_name")
@pytest.mark.parametrize("dimensions", [8, 16, 384, 768])
def test_inner_products__are_those_of_the_server(database: DatabaseSettings, dimensions: int) -> None:
    vectors = np.random.default_rng(dimensions).normal(size=(200, dimensions))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    with psycopg.connect(database.admin_url or "") as connection:
        register_vector(connection)
        expected = [
            connection.execute("SELECT -(%s::halfvec <#> %s::halfvec)", (HalfVector(row), HalfVector(vectors[0])))
            for row in vectors
        ]
        products = [cursor.fetchall()[0][0] for cursor in expected]
    single = vectors.astype(np.float32)
    assert inner_products(single, single[0]).tolist() == products
