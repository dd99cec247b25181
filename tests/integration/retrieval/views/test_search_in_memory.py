"""Searches without a transaction: state and new passages are read in a statement each, and are of one state."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, SearchResult, Settings, SourceDocument, Tenant
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.retrieval import pipeline
from kosmos_rag.retrieval.close_terms import CloseTermCache
from kosmos_rag.retrieval.hydrate import hydrate
from kosmos_rag.storage.sql import statement
from tests.integration.retrieval.views.blocks import opened_views
from tests.statements import recorded_statements

pytestmark = pytest.mark.usefixtures("early_blocks")
WORDS = ("revenue", "customer", "invoice", "contract", "supplier", "budget", "forecast", "salary", "holiday")
QUESTIONS = ("churn of revenue", "margin of customers and suppliers", "holiday", "the budget of invoices")
STATE, PASSAGES = statement("search_state_of_reader"), statement("passages_of_reader")
SETTINGS: dict[str, Any] = {
    "rag.retrieval.candidates": 20,
    "rag.retrieval.top_k": 8,
    "rag.retrieval.result_cache": 0,
    "indexes.vector": "none",
}


@pytest.fixture
def engines(settings: Settings) -> Iterator[tuple[Engine, Engine]]:
    """One with the view of the memory, and one without."""
    with opened_views(settings, SETTINGS) as engines:
        yield engines


def _document(number: int, acl: tuple[str, ...] = (EVERYONE,)) -> SourceDocument:
    dice = random.Random(number)
    text = f"churn margin number {number} {' '.join(dice.choices(WORDS, k=4))}"
    return SourceDocument(source=f"d{number}", data=text.encode(), acl=acl, metadata={"tags": ["a", "b"]})


def _warm(scope: Tenant) -> None:
    """Load the block, and search it once."""
    scope.search("load")
    assert scope._parts.background.drain(10)
    scope.search("churn")


def _hits(result: SearchResult) -> list[tuple[Any, ...]]:
    return [(hit.chunk_id, hit.score, hit.text, hit.metadata, hit.version) for hit in result.hits]


def test_search__reads_the_state_and_the_passages_that_are_new(
    engines: tuple[Engine, Engine], tenant_name: str
) -> None:
    cached, plain = (engine.tenant(tenant_name) for engine in engines)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    texts: list[Any] = []
    for question in QUESTIONS:
        with recorded_statements() as first:
            outcome = cached.search(question)
        with recorded_statements() as second:
            again = cached.search(question)
        assert first in ([STATE, PASSAGES], [STATE])
        assert second == [STATE]
        texts += first
        assert _hits(outcome) == _hits(again) == _hits(plain.search(question))
    assert PASSAGES in texts


@pytest.mark.parametrize("change", ["publish", "delete", "metadata"])
def test_passages__of_a_later_state_are_not_mixed_in(
    engines: tuple[Engine, Engine], tenant_name: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Documents change between the two statements: the search is made once more, in a transaction."""
    cached, plain = (engine.tenant(tenant_name) for engine in engines)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    changes: dict[str, Callable[[], object]] = {
        "publish": lambda: plain.ingest([_document(number) for number in range(100, 110)], prune=False),
        "delete": lambda: plain.delete([f"d{number}" for number in range(20)]),
        "metadata": lambda: plain.update_metadata([f"d{number}" for number in range(40)], {"tags": ["c"]}),
    }
    calls = list[int]()

    def change_first(*args: Any, **kwargs: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            changes[change]()
        return hydrate(*args, **kwargs)

    with monkeypatch.context() as context:
        context.setattr(pipeline, "hydrate", change_first)
        outcome = cached.search(QUESTIONS[1])
    assert len(calls) == 2
    assert _hits(outcome) == _hits(plain.search(QUESTIONS[1]))


def test_passages__are_copied_for_each_caller(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    cached = engines[0].tenant(tenant_name)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    for _ in range(2):
        outcome = cached.search(QUESTIONS[0])
        assert outcome.hits[0].metadata == {"tags": ["a", "b"]}
        outcome.hits[0].metadata["tags"].append("mine")


def test_passages__are_those_that_row_level_security_has_shown_to_these_principals(
    engines: tuple[Engine, Engine], tenant_name: str
) -> None:
    """Readers of the same lists share a block; each reads the passages for himself."""
    engines[0].tenant(tenant_name).ingest([_document(number) for number in range(40)])
    readers = [engines[0].tenant(tenant_name, principals=(EVERYONE, name)) for name in ("user:ann", "user:ben")]
    _warm(readers[0])
    expected = _hits(readers[0].search(QUESTIONS[0]))
    readers[1].search("churn")
    for texts in ([STATE, PASSAGES], [STATE]):
        with recorded_statements() as statements:
            assert _hits(readers[1].search(QUESTIONS[0])) == expected
        assert statements == texts


def test_close_terms__are_looked_up_once_for_each_state(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    cached, plain = (engine.tenant(tenant_name) for engine in engines)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    fetch = psycopg.Cursor.fetchall

    def record_fetch(cursor: psycopg.Cursor) -> Any:
        statements.append("fetch")
        return fetch(cursor)

    with recorded_statements() as statements, pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "fetchall", record_fetch)
        expected = cached.search("marginn")
    # The state and the words are one round trip.
    assert statements[statements.index(statement("last_changes")) + 1] == statement("close_terms")
    assert "'margin'" in expected.warnings[0]
    with recorded_statements() as statements:
        again = cached.search("marginn")
    assert statement("close_terms") not in statements
    assert again.warnings == expected.warnings
    assert _hits(again) == _hits(expected) == _hits(plain.search("marginn"))
    plain.ingest([SourceDocument(source="new", data=b"marginn")], prune=False)
    assert cached.search("marginn").warnings == ()
    assert [hit.source for hit in cached.search("marginn").hits][:1] == ["new"]


def test_close_terms__of_a_later_state_are_not_mixed_in(
    engines: tuple[Engine, Engine], tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word is published after the state was read, and before it is looked up."""
    cached, plain = (engine.tenant(tenant_name) for engine in engines)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    find, calls = CloseTermCache.find, list[int]()

    def publish_first(*args: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            plain.ingest([SourceDocument(source="new", data=b"marginn")], prune=False)
        return find(*args)

    with monkeypatch.context() as context:
        context.setattr(CloseTermCache, "find", publish_first)
        result = cached.search("marginn")
    assert len(calls) == 1
    assert result.warnings == ()
    assert [hit.source for hit in result.hits][:1] == ["new"]
    assert _hits(result) == _hits(plain.search("marginn"))


def test_operators__are_searched_in_a_transaction(engines: tuple[Engine, Engine], tenant_name: str) -> None:
    cached, plain = (engine.tenant(tenant_name) for engine in engines)
    cached.ingest([_document(number) for number in range(40)])
    _warm(cached)
    with recorded_statements() as statements:
        outcome = cached.search("+revenue churn")
    assert STATE not in statements
    assert _hits(outcome) == _hits(plain.search("+revenue churn"))


def test_routing__that_has_changed_is_followed(
    engines: tuple[Engine, Engine], tenant_name: str, tmp_path: Path
) -> None:
    """A preset of the collection is set while its searches are answered from memory."""
    preset = tmp_path / "short.yaml"
    preset.write_text("rag:\n  retrieval:\n    top_k: 3\n", encoding="utf-8")
    cached, plain = (engine.tenant(tenant_name, collection="books") for engine in engines)
    plain.ingest([_document(number) for number in range(40)])
    _warm(cached)
    assert len(cached.search(QUESTIONS[0]).hits) == 8
    engines[1].tenant(tenant_name).collections.set_preset("books", preset=preset)
    assert len(cached.search(QUESTIONS[0]).hits) == 3
    with recorded_statements() as statements:
        assert _hits(cached.search(QUESTIONS[0])) == _hits(plain.search(QUESTIONS[0]))
    assert statements[0] == STATE
