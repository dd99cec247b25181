"""The document store: Haystack's own tests of document stores, retrievers in pipelines, and serialisation.

Haystack is imported within the tests: every process of a run collects every module, and it brings torch along.
"""

import asyncio
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import Engine, Tenant
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import opened

if TYPE_CHECKING:
    from kosmos_rag.apps.integrations.haystack import KosmosDocumentStore

TEXTS = {
    "leave": "Employees receive 20 days of paid annual leave per year.",
    "travel": "Travel expenses are paid back within 14 days of the receipt.",
    "page": "<p>The canteen <b>opens</b> at noon.</p>",
}


@pytest.fixture
def store(engine: Engine, tenant_name: str) -> "KosmosDocumentStore":
    from haystack import Document

    from kosmos_rag.apps.integrations.haystack import KosmosDocumentStore

    store = KosmosDocumentStore(engine=engine, tenant=tenant_name, collection="notes")
    store.write_documents(
        [
            Document(id=key, content=text, meta={"year": 2020 + number})
            for number, (key, text) in enumerate(TEXTS.items())
        ]
    )
    secret = KosmosDocumentStore(engine=engine, tenant=tenant_name, collection="notes", acl=["department:hr"])
    secret.write_documents([Document(id="secret", content="Annual leave of the board: 90 days.")])
    return store


def _own_tests() -> Iterator[tuple[Any, str]]:
    """Yield an instance of each class of Haystack's tests, and the names of its tests."""
    from haystack import Document
    from haystack.testing import document_store as synchronous
    from haystack.testing import document_store_async as asynchronous

    def assert_equal(received: list[Document], expected: list[Document]) -> None:
        # Documents are listed by id, and embeddings that come with them are not stored.
        assert sorted(item.id for item in received) == sorted(item.id for item in expected)
        content = {item.id: (item.content, item.meta) for item in expected}
        assert all(content[item.id] == (item.content, item.meta) for item in received)

    def test_write_documents(self: Any, document_store: Any) -> None:
        # Haystack leaves the default policy to the store: here it is FAIL.
        self.test_write_documents_duplicate_fail(document_store)

    async def test_write_documents_async(self: Any, document_store: Any) -> None:
        await self.test_write_documents_duplicate_fail_async(document_store)

    bases: dict[type, dict[str, Any]] = {
        synchronous.DocumentStoreBaseExtendedTests: {"test_write_documents": test_write_documents},
        synchronous.CountDocumentsByFilterTest: {},
        asynchronous.CountDocumentsAsyncTest: {},
        asynchronous.WriteDocumentsAsyncTest: {"test_write_documents_async": test_write_documents_async},
        asynchronous.DeleteDocumentsAsyncTest: {},
        asynchronous.FilterDocumentsAsyncTest: {},
    }
    for base, overrides in bases.items():
        suite = type("Own", (base,), {"assert_documents_are_equal": staticmethod(assert_equal), **overrides})()
        for name in dir(suite):
            if name.startswith("test_"):
                yield suite, name


def test_store__passes_the_tests_of_haystack(engine: Engine, tenant_name: str) -> None:
    from haystack.testing.document_store import create_filterable_docs

    from kosmos_rag.apps.integrations.haystack import KosmosDocumentStore

    failed, ran = [], []
    # The documents of these tests come with embeddings of 768 dimensions.
    with opened(engine.settings, {}, embedder=HashingEmbedder(dimensions=768)) as own_engine:
        for number, (suite, name) in enumerate(_own_tests()):
            method = getattr(suite, name)
            document_store = KosmosDocumentStore(
                engine=own_engine, tenant=f"{tenant_name[:30]}-{number}", collection="a"
            )
            arguments: dict[str, Any] = {"document_store": document_store}
            if "filterable_docs" in inspect.signature(method).parameters:
                arguments["filterable_docs"] = create_filterable_docs()
            try:
                result = method(**arguments)
                if inspect.iscoroutine(result):
                    asyncio.run(result)
            except pytest.skip.Exception:
                continue
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 — each test is named
                failed.append(f"{name}: {type(error).__name__}: {error}")
            ran.append(name)
    assert failed == [], "\n".join(failed)
    assert len(ran) > 60


def test_retrievers__find_by_vector_words_and_both(store: "KosmosDocumentStore") -> None:
    from kosmos_rag.apps.integrations.haystack import (
        KosmosBM25Retriever,
        KosmosEmbeddingRetriever,
        KosmosHybridRetriever,
        KosmosTextEmbedder,
    )

    year = {"field": "meta.year", "operator": "<", "value": 2022}
    vector = KosmosTextEmbedder(store).run(TEXTS["travel"])["embedding"]
    (outcome,) = KosmosEmbeddingRetriever(store, top_k=1).run(vector)["documents"]
    assert (outcome.id, outcome.meta, outcome.content) == ("travel", {"year": 2021}, TEXTS["travel"])
    assert outcome.score == pytest.approx(1, abs=0.01)
    assert [item.id for item in KosmosBM25Retriever(store).run("canteen")["documents"]] == ["page"]
    assert KosmosBM25Retriever(store, filters=year).run("canteen")["documents"] == []
    both = KosmosHybridRetriever(store).run("annual leave", filters=year, top_k=9)["documents"]
    assert [item.id for item in both] == ["leave", "travel"]
    found_later = asyncio.run(KosmosHybridRetriever(store).run_async("annual leave", top_k=1))
    assert [item.id for item in found_later["documents"]] == ["leave"]
    with pytest.raises(RequestError, match="the vector has 2 dimensions"):
        KosmosEmbeddingRetriever(store).run([1.0, 0.0])


def test_pipelines__are_written_as_yaml_and_loaded(
    engine: Engine, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from haystack import Document, Pipeline
    from haystack.components.writers import DocumentWriter

    from kosmos_rag.apps.integrations import haystack
    from kosmos_rag.apps.integrations.haystack import (
        KosmosDocumentStore,
        KosmosEmbeddingRetriever,
        KosmosHybridRetriever,
        KosmosTextEmbedder,
    )

    # The settings file names a model that these tests do without.
    monkeypatch.setattr(haystack, "_engines", {"rag-config.yaml": engine})
    store = KosmosDocumentStore(
        config="rag-config.yaml",
        tenant=tenant_name,
        collection="notes",
        principals=["everyone", "team:a"],
        acl=["team:a"],
    )
    indexing = Pipeline()
    indexing.add_component("writer", DocumentWriter(store))
    query = Pipeline()
    query.add_component("embedder", KosmosTextEmbedder(store))
    query.add_component("by_vector", KosmosEmbeddingRetriever(store, top_k=1))
    query.add_component("hybrid", KosmosHybridRetriever(store, filters={"field": "id", "operator": "!=", "value": "x"}))
    query.connect("embedder.embedding", "by_vector.query_embedding")
    allowed = ["kosmos_rag.apps.integrations.haystack"]
    payload = Pipeline.loads(indexing.dumps(), allowed_modules=allowed)
    loaded = Pipeline.loads(query.dumps(), allowed_modules=allowed)
    assert loaded.dumps() == query.dumps()
    payload.run({"writer": {"documents": [Document(id=key, content=text) for key, text in TEXTS.items()]}})
    outcome = loaded.run({"embedder": {"text": TEXTS["leave"]}, "hybrid": {"query": TEXTS["leave"], "top_k": 1}})
    assert [[item.id for item in outcome[name]["documents"]] for name in ("by_vector", "hybrid")] == [
        ["leave"],
        ["leave"],
    ]
    # The readers are those that were written, and for others there is nothing.
    assert engine.tenant(tenant_name, collection="notes").documents() == []


def test_store__keeps_to_its_reader_and_deletes_exactly(store: "KosmosDocumentStore", tenant_name: str) -> None:
    assert {item.id for item in store.filter_documents()} == set(TEXTS)
    assert store.count_documents() == 3
    store.delete_documents(["leave", "LEAVE", "%"])
    assert {item.id for item in store.filter_documents()} == {"travel", "page"}


def test_store__refuses_what_it_cannot_keep(store: "KosmosDocumentStore", engine: Engine) -> None:
    from haystack import Document
    from haystack.dataclasses import ByteStream, SparseEmbedding
    from haystack.errors import FilterError

    from kosmos_rag.apps.integrations.haystack import KosmosDocumentStore, convert_filters

    for document in (
        Document(),
        Document(content="a", blob=ByteStream(b"a")),
        Document(content="a", sparse_embedding=SparseEmbedding(indices=[1], values=[1.0])),
    ):
        with pytest.raises(RequestError, match="only texts are stored"):
            store.write_documents([document])
    with pytest.raises(RequestError, match="a vector of 2 dimensions"):
        store.write_documents([Document(content="a", embedding=[1.0, 0.0])])
    with pytest.raises(ConfigError, match="cannot be serialised; create it with config"):
        store.to_dict()
    for filters in (
        {"field": "content", "operator": "==", "value": "a"},
        {"field": "meta.year", "operator": "like", "value": "a"},
        {"operator": "XOR", "conditions": []},
        {"operator": "AND", "conditions": ["a"]},
    ):
        with pytest.raises(FilterError):
            convert_filters(filters)
    assert Tenant is type(store.store.tenant)
    with pytest.raises(RequestError, match="tenant"):
        KosmosDocumentStore(engine=engine, tenant="not a name!", collection="a").count_documents()
