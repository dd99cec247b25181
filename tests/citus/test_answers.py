"""A hundred questions to real text, with all caches on: the answers of the cluster are those of a single server."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag import Engine, SearchResult, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.cluster import CitusCluster
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed
from tests.statements import recorded_statements

PAGES = Path(__file__).parents[2] / "docs"
"""Real text, which every checkout has."""
_CANDIDATES = 5000
"""More than there are chunks: which of equal candidates are cut off depends on random ids."""


def _documents() -> list[SourceDocument]:
    pages = sorted([*PAGES.glob("*.md"), *(PAGES / "how-to").glob("*.md")])
    return [SourceDocument(source=page.name, data=page.read_bytes()) for page in pages if page.name != "README.md"]


def _questions() -> list[str]:
    """Headings and sentences of the pages; some have misspelt words, so close terms are looked up."""
    texts = [bytes(document.data or b"").decode() for document in _documents()]
    headings = [heading for text in texts for heading in re.findall(r"(?m)^##+ (\w[^#`\n]{12,})$", text)]
    sentences = [match for text in texts for match in re.findall(r"(?m)^([A-Z][a-z]+ [a-z ,]{30,90})\.", text)]
    questions = list(dict.fromkeys([*headings[:60], *sentences[:60]]))[:100]
    assert len(questions) == 100
    return [_misspell(text) if number % 5 == 4 else text for number, text in enumerate(questions)]


def _misspell(text: str) -> str:
    words = text.split()
    return " ".join(f"{word[:3]}{word[4:]}" if len(word) > 7 and n % 3 == 0 else word for n, word in enumerate(words))


def _hits(result: SearchResult) -> list[tuple[Any, ...]]:
    """The hits, but for those that tie with the last: which of them are among the first depends on random ids."""
    hits = [(-round(hit.score, 6), hit.source, hit.chunk_index, hit.text) for hit in result.hits]
    return sorted(hit for hit in hits if hit[0] != hits[-1][0])


@pytest.fixture(scope="module")
def expected(loaded_settings: Settings, shared_database: DatabaseSettings) -> list[list[tuple[Any, ...]]]:
    """The answers of a single server, without caches."""
    plain = {"rag.retrieval.result_cache": 0, "rag.retrieval.candidates": _CANDIDATES, "indexes.vector_cache_mb": 0}
    settings = changed(loaded_settings, {"database": shared_database, **plain})
    with Engine(settings, embedder=HashingEmbedder(dimensions=384)) as engine:
        scope = engine.tenant("pages")
        scope.ingest(_documents())
        answers = [_hits(scope.search(question, 10)) for question in _questions()]
    assert sum(bool(hits) for hits in answers) == 100
    return answers


@pytest.fixture(params=[False, True], ids=["through the coordinator", "on the nodes"])
def cached(settings: Settings, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine on the cluster with a cache of results."""
    retrieval = {"rag.retrieval.result_cache": 1000, "rag.retrieval.candidates": _CANDIDATES}
    updated = changed(settings, {**retrieval, "database.use_nodes": request.param})
    with Engine(updated, embedder=HashingEmbedder(dimensions=384)) as engine:
        yield engine


@pytest.fixture
def statements() -> Iterator[list[Any]]:
    """What cursors execute from now on."""
    with recorded_statements() as queries:
        yield queries


def test_answers__are_those_of_a_single_server(
    cached: Engine, name: str, expected: list[list[tuple[Any, ...]]], statements: list[Any]
) -> None:
    scope, questions = cached.tenant(name), _questions()
    scope.ingest(_documents()[:1])
    scope.delete([_documents()[0].source])
    # Of an empty tenant: none of these results may come again.
    assert [scope.search(question, 10).hits for question in questions[:10]] == [()] * 10
    scope.ingest(_documents())
    for round_number in range(2):
        for number, question in enumerate(questions):
            assert _hits(scope.search(question, 10)) == expected[number], question
            if number % 20 == 0:
                assert cached.background.drain(60)
        assert round_number == 1 or statement("search_state_of_reader") in statements or not _uses_nodes(cached)
    if not _uses_nodes(cached):
        # The coordinator would send this statement without the reader, and read nothing.
        assert statement("search_state_of_reader") not in statements


def test_answers__are_right_while_the_node_is_remembered_that_had_the_tenant(
    cached: Engine, name: str, expected: list[list[tuple[Any, ...]]], cluster: DatabaseSettings
) -> None:
    scope, questions, admin = cached.tenant(name), _questions(), cluster.admin_url or ""
    scope.ingest(_documents())
    for question in questions[:40]:
        scope.search(question, 10)
        assert cached.background.drain(60)
    here = CitusCluster(admin).find_tenant(tenant(name)).node
    there = next(node.id for node in CitusCluster(admin).list_nodes() if node.id != here)
    CitusCluster(admin).move_tenant(tenant(name), there, limit_s=300)
    for number, question in enumerate(questions):
        assert _hits(scope.search(question, 10)) == expected[number], question


def _uses_nodes(engine: Engine) -> bool:
    return engine.settings.database.use_nodes
