"""Kept results and kept vectors of questions: the same answer as without them, whatever happened in between."""

import random
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
import pytest
from numpy.typing import NDArray

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ModelError
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.types import SearchResult
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened

KEPT = {"rag.retrieval.result_cache": 100}
# A few chunks are worth an index here.
INDEXED = {"indexes.unsegmented_chunks": 5, "indexes.vector": "ivfflat", "indexes.vector_min_chunks": 20}
CHUNKS = 30
READERS = ("everyone", "board")


def _document(number: int, text: str = "", **more: Any) -> SourceDocument:
    return SourceDocument(source=f"d{number}", title="-", data=f"churn of account{number} {text}".encode(), **more)


@pytest.fixture
def caching_engine(settings: Settings, tenant_name: str) -> Iterator[Engine]:
    """An engine that keeps results, and a tenant with two collections."""
    with opened(settings, KEPT | INDEXED) as engine:
        engine.tenant(tenant_name).ingest(_document(n, acl=READERS) for n in range(CHUNKS))
        engine.tenant(tenant_name, collection="wiki").ingest(_document(n, "wiki") for n in range(3))
        yield engine


def _ask(engine: Engine, tenant_name: str, k: int = 5, filter: Filter | None = None, **scope: Any) -> SearchResult:  # noqa: A002
    return engine.tenant(tenant_name, **scope).search("churn account3", k, filter)


def _content(result: SearchResult) -> SearchResult:
    """Return what a result says, without how long it took and where it is from."""
    return replace(result, cached=False, stages=(), timings_ms={})


def test_last_document_of_a_list__is_not_kept_when_it_is_gone(caching_engine: Engine, tenant_name: str) -> None:
    """The last document of a list of readers disappears from cached results at once when it is deleted.

    Its list has no row afterwards, and the newest change that the reader sees is one from before the question.
    """
    scope = caching_engine.tenant(tenant_name, collection="lists")
    for number, acl in enumerate((("ann", "ben"), ("ann",))):
        scope.ingest(_document(number, acl=acl))

    def sources() -> set[str]:
        return {hit.source for hit in _ask(caching_engine, tenant_name, collection="lists", principals=("ann",)).hits}

    assert sources() == {"d0", "d1"}
    scope.delete("d0")
    assert sources() == {"d1"}


def test_second_ask__is_answered_from_what_was_kept(caching_engine: Engine, tenant_name: str) -> None:
    first, second = _ask(caching_engine, tenant_name), _ask(caching_engine, tenant_name)
    assert (first.cached, second.cached) == (False, True)
    assert first.returned == 5
    assert _content(second) == _content(first)
    assert second.stages == ("embed", "cache")
    assert set(second.timings_ms) == {"embed", "cache", "total"}
    assert _ask(caching_engine, tenant_name, principals=("everyone", "everyone")).cached


def test_results__none_are_kept_unless_asked_for(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {}) as engine:
        engine.tenant(tenant_name).ingest(_document(1))
        assert not any(_ask(engine, tenant_name).cached for _ in range(3))


OTHER_QUESTIONS: dict[str, Callable[[Engine, str], SearchResult]] = {
    "tenant": lambda engine, name: engine.tenant(f"{name}-other").search("churn account3", 5),
    "principals": lambda engine, name: _ask(engine, name, principals=("board",)),
    "fewer principals": lambda engine, name: _ask(engine, name, principals=()),
    "collection": lambda engine, name: _ask(engine, name, collection="wiki"),
    "k": lambda engine, name: _ask(engine, name, k=4),
    "sources": lambda engine, name: _ask(engine, name, filter=Filter(sources=("d3",))),
    "where": lambda engine, name: _ask(engine, name, filter=Filter(where={"source": {"$ne": "d3"}})),
    "question": lambda engine, name: engine.tenant(name).search("churn account4", 5),
    "operator": lambda engine, name: engine.tenant(name).search("churn +account3", 5),
}


def test_result__is_not_that_of_another_question(caching_engine: Engine, settings: Settings, tenant_name: str) -> None:
    before = _ask(caching_engine, tenant_name)
    with opened(settings, INDEXED) as plain:
        for other, ask in OTHER_QUESTIONS.items():
            result = ask(caching_engine, tenant_name)
            assert not result.cached, other
            assert result.hits != before.hits, other
            assert _content(result) == _content(ask(plain, tenant_name)), other
            assert _content(_ask(caching_engine, tenant_name)) == _content(before), other


def _set_probes(scope: Tenant) -> None:
    with psycopg.connect(scope._parts.settings.database.admin_url or "") as connection:
        rows = connection.execute(
            "UPDATE kosmos.indexes SET settings = settings || '{\"probes\": 2}' "
            "WHERE tenant_id = %s AND kind = 'ivfflat' RETURNING id",
            [tenant(scope.name).id],
        )
        assert rows.fetchall()


CHANGES: dict[str, Callable[[Tenant], object]] = {
    "index build": lambda scope: scope.indexes.build(),
    "new document": lambda scope: scope.ingest(_document(3000, "account3 account3")),
    "changed text": lambda scope: scope.ingest(_document(3, "is another text", acl=READERS)),
    "changed metadata": lambda scope: scope.ingest(_document(3, "is another text", acl=READERS, metadata={"a": 1})),
    "changed readers": lambda scope: scope.ingest(_document(3, "is another text", acl=READERS[1:], metadata={"a": 1})),
    "deletion": lambda scope: scope.delete("d4"),
    "probes": _set_probes,
    "index rebuild": lambda scope: scope.indexes.rebuild(),
}
"""One after the other, each of which makes what was kept of before it a thing of the past."""


def test_result__of_before_a_change_is_not_served(caching_engine: Engine, settings: Settings, tenant_name: str) -> None:
    scope = caching_engine.tenant(tenant_name)
    before = _ask(caching_engine, tenant_name)
    with opened(settings, INDEXED) as plain:
        for name, change in CHANGES.items():
            assert _ask(caching_engine, tenant_name).cached, name
            change(scope)
            result = _ask(caching_engine, tenant_name)
            assert not result.cached, name
            assert _content(result) == _content(_ask(plain, tenant_name)), name
            assert _content(result) != _content(before) or name in {"probes", "index rebuild"}, name
            before = result
    assert "ivfflat" in _ask(caching_engine, tenant_name, principals=READERS).retrievers["dense"].plan


def test_result__over_all_collections_knows_of_a_new_one(caching_engine: Engine, tenant_name: str) -> None:
    before = _ask(caching_engine, tenant_name, k=100)
    caching_engine.tenant(tenant_name, collection="new").ingest(_document(99))
    result = _ask(caching_engine, tenant_name, k=100)
    assert (result.cached, result.returned) == (False, before.returned + 1)


def test_result__outlives_what_does_not_concern_it(caching_engine: Engine, tenant_name: str) -> None:
    collection = "wiki"
    _ask(caching_engine, tenant_name, collection=collection)
    caching_engine.tenant(tenant_name).ingest(_document(99))
    caching_engine.tenant(f"{tenant_name}-other").ingest(_document(99))
    caching_engine.tenant(tenant_name, collection=collection).ingest(_document(1, "wiki"))  # unchanged
    assert _ask(caching_engine, tenant_name, collection=collection).cached


class Reranker:
    """Fails, or scores by what a text ends in."""

    name = "told"
    fails = True

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        if self.fails:
            raise ModelError("the model is broken")
        return [1.0 if "account7" in text else 0.5 for text in passages]


class Writer:
    """Fails, or writes one wording."""

    name = "told"
    fails = True

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str]:
        if self.fails:
            raise ModelError("the model is broken")
        yield "account7"


@pytest.mark.parametrize(
    ("stage", "model", "keys"),
    [
        ("rerank", {"reranker": Reranker()}, {"rag.reranking.deadline_ms": 60_000}),
        ("expand", {"language_model": Writer()}, {"rag.expansion.queries": 1}),
    ],
)
def test_result__without_a_stage_is_not_kept(
    stage: str, model: dict[str, Any], keys: dict[str, Any], settings: Settings, tenant_name: str
) -> None:
    [broken] = model.values()
    with opened(settings, KEPT | keys, **model) as engine:
        engine.tenant(tenant_name).ingest(_document(n) for n in range(10))
        for _ in range(2):
            result = _ask(engine, tenant_name)
            assert (result.cached, result.degraded_stages) == (False, (stage,))
        broken.fails = False
        result = _ask(engine, tenant_name)
        assert (result.cached, result.degraded_stages) == (False, ())
        assert "d7" in {hit.source for hit in result.hits[:2]}
        assert _ask(engine, tenant_name).cached


def test_results__are_those_of_an_engine_that_keeps_none(settings: Settings, tenant_name: str) -> None:
    """Random changes, and after each of them questions of two readers, each asked twice."""
    dice = random.Random(29)
    words = [f"w{number}" for number in range(12)]
    questions = ["w1 w2", "w3", "w4 -w5", "w6 +w7", 'w8 "w9 w10"']

    def document() -> SourceDocument:
        text = " ".join(dice.choices(words, k=8))
        readers = dice.choice([("everyone",), ("board",)])
        metadata = {"year": dice.choice([2025, 2026])}
        return _document(dice.randrange(40), text, acl=readers, metadata=metadata)

    with opened(settings, KEPT | INDEXED) as engine, opened(settings, INDEXED) as plain:
        writer = plain.tenant(tenant_name)
        writer.ingest(document() for _ in range(40))
        changes: list[Callable[[], object]] = [
            lambda: writer.ingest(document()),
            lambda: writer.ingest([document(), document()]),
            lambda: writer.delete(f"d{dice.randrange(40)}"),
            writer.indexes.build,
            lambda: plain.tenant(tenant_name, collection="wiki").ingest(document()),
            lambda: None,
        ]
        cached = 0
        for _ in range(15):
            dice.choice(changes)()
            for question in dice.sample(questions, 2):
                for principals in (("everyone",), ("everyone", "board")):
                    choice = dice.choice([None, Filter(where={"metadata.year": 2026})])
                    expected = _content(plain.tenant(tenant_name, principals=principals).search(question, 8, choice))
                    for _ in range(2):
                        result = engine.tenant(tenant_name, principals=principals).search(question, 8, choice)
                        assert _content(result) == expected
                        cached += result.cached
    assert cached >= 60


def test_results__of_many_threads_are_never_older_than_what_was_committed_before(
    settings: Settings, tenant_name: str
) -> None:
    """One writer raises a number in three documents at once; readers see one number, and none of the past."""
    documents, states = 3, 12
    started = committed = 0
    kept_one, event = threading.Event(), threading.Event()
    with opened(settings, KEPT | {"database.pool_size": 10}) as engine:
        scope = engine.tenant(tenant_name)

        def publish(state: int) -> None:
            nonlocal started, committed
            started = state
            scope.ingest(SourceDocument(source=f"d{n}", data=f"state {state} {n}".encode()) for n in range(documents))
            committed = state

        def ask() -> int:
            searches = 0
            while not event.is_set():
                oldest = committed
                result = scope.search("state", 10)
                newest = started
                numbers = {int(hit.text.split()[1]) for hit in result.hits}
                assert result.returned == documents
                assert len(numbers) == 1
                assert oldest <= numbers.pop() <= newest
                searches += 1
                if result.cached:
                    kept_one.set()
            return searches

        publish(1)
        with ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(ask) for _ in range(8)]
            try:
                for state in range(2, states + 1):
                    kept_one.clear()
                    assert kept_one.wait(timeout=20), [answer.exception() for answer in answers if answer.done()]
                    publish(state)
            finally:
                event.set()
            assert all(answer.result() for answer in answers)


class CountingEmbedder(HashingEmbedder):
    """Counts how often each question was embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def embed_query(self, question: str) -> NDArray[np.float32]:
        self.calls[question] += 1
        return super().embed_query(question)


@pytest.mark.parametrize(("kept_questions", "embedded"), [(1000, 1), (0, 3)])
def test_question__is_embedded_once_while_its_vector_is_kept(
    kept_questions: int, embedded: int, settings: Settings, tenant_name: str
) -> None:
    embedder = CountingEmbedder()
    with opened(settings, {"rag.retrieval.query_embedding_cache": kept_questions}, embedder=embedder) as engine:
        for tenant in (tenant_name, "other", tenant_name):
            engine.tenant(tenant).search("churn -account3")
    assert embedder.calls["churn"] == embedded


def _states(database: DatabaseSettings, tenant_name: str) -> dict[str, set[tuple[uuid.UUID, uuid.UUID]]]:
    """Access control lists with their states, by collection."""
    states = defaultdict(set)
    with psycopg.connect(database.admin_url or "") as connection:
        query = "SELECT collection, acl_hash, state FROM kosmos.acl_statistics WHERE tenant_id = %s"
        for collection, acl_hash, state in connection.execute(query, [tenant(tenant_name).id]):
            states[collection].add((acl_hash, state))
    return states


def test_state__is_another_one_after_each_transaction_that_changes_documents(
    engine: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope, wiki = engine.tenant(tenant_name), engine.tenant(tenant_name, collection="wiki")
    steps: list[tuple[Callable[[], object], bool]] = [
        (lambda: scope.ingest([_document(1), _document(2)]), True),
        (lambda: scope.ingest(_document(1), prune=False), False),
        (lambda: scope.ingest(_document(1, metadata={"a": 1}), prune=False), True),
        (lambda: scope.update_metadata(["d1"], {"a": 2}), True),
        (lambda: scope.ingest(_document(1, metadata={"a": 2}, acl=("board",)), prune=False), True),
        (lambda: scope.delete("d1"), True),
        (lambda: scope.search("churn"), False),
        (lambda: wiki.ingest(_document(1)), False),
    ]
    previous = set[tuple[uuid.UUID, uuid.UUID]]()
    for number, (step, changes) in enumerate(steps):
        step()
        states = _states(database, tenant_name)["default"]
        assert (states != previous) == changes, number
        previous = states
    assert _states(database, tenant_name).keys() == {"default", "wiki"}
