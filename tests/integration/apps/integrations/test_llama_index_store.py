"""The vector store under an index of LlamaIndex's own parts.

LlamaIndex is imported within the tests: every process of a run collects every module, and it is large.
"""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import Engine, Tenant
from kosmos_rag.core.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from kosmos_rag.apps.integrations.llama_index import KosmosVectorStore

TEXTS = {
    "leave": "Employees receive 20 days of paid annual leave per year.",
    "carry": "Unused days of annual leave expire on 31 March of the next year.",
    "travel": "Travel expenses are paid back within 14 days of the receipt.",
    "page": "<p>The canteen <b>opens</b> at noon.</p>",
}
QUESTION = "How many days of paid annual leave do employees receive?"


@pytest.fixture
def notes(engine: Engine, tenant_name: str) -> Tenant:
    return engine.tenant(tenant_name, collection="notes")


@pytest.fixture
def store(notes: Tenant) -> "KosmosVectorStore":
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

    from kosmos_rag.apps.integrations.llama_index import KosmosVectorStore

    nodes = [
        TextNode(
            id_=key,
            text=text,
            metadata={"year": 2020 + number, "tags": ["hr", "draft"][: number % 3]},
            embedding=list(notes.embed_query(text)) if number else None,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="handbook" if number < 2 else "office")},
        )
        for number, (key, text) in enumerate(TEXTS.items())
    ]
    store = KosmosVectorStore(notes)
    assert store.add(nodes) == list(TEXTS)
    KosmosVectorStore(notes, acl=["department:hr"]).add([TextNode(id_="secret", text="Leave of the board: 90 days.")])
    return store


def _query(store: "KosmosVectorStore", mode: str, question: str = QUESTION, **options: Any) -> list[str]:
    from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

    query = VectorStoreQuery(
        query_str=question, similarity_top_k=options.pop("k", 2), mode=VectorStoreQueryMode(mode), **options
    )
    result = store.query(query)
    assert result.similarities is not None
    assert len(result.similarities) == len(result.ids or [])
    assert [node.node_id for node in result.nodes or []] == result.ids
    return list(result.ids or [])


def test_nodes__come_back_as_they_were_given(store: "KosmosVectorStore") -> None:
    (node,) = store.get_nodes(["page", "secret", "nothing"])
    assert (node.node_id, node.get_content(), node.ref_doc_id) == ("page", TEXTS["page"], "office")
    assert node.metadata == {"year": 2023, "tags": []}
    assert {item.node_id for item in store.get_nodes()} == set(TEXTS)


def test_query__in_each_mode(store: "KosmosVectorStore", notes: Tenant) -> None:
    vector = list(notes.embed_query(TEXTS["travel"]))
    assert _query(store, "default", "", query_embedding=vector)[0] == "travel"
    assert _query(store, "default", TEXTS["travel"])[0] == "travel"
    assert _query(store, "sparse", "canteen", sparse_top_k=1) == ["page"]
    assert _query(store, "text_search", "canteen") == ["page"]
    assert _query(store, "hybrid", query_embedding=vector, hybrid_top_k=3, alpha=1.0)[0] == "travel"
    assert _query(store, "hybrid", "canteen", query_embedding=vector, alpha=0.0)[0] == "page"
    assert set(_query(store, "hybrid", "canteen", query_embedding=vector)) == {"page", "travel"}
    assert len(_query(store, "mmr", query_embedding=vector, mmr_threshold=0.1)) == 2
    with pytest.raises(RequestError, match="the mode is 'svm'; use one of default, mmr, sparse"):
        _query(store, "svm")
    with pytest.raises(RequestError, match="the vector has 2 dimensions"):
        _query(store, "default", query_embedding=[1.0, 0.0])


@pytest.mark.parametrize(
    ("operator", "key", "value", "expected"),
    [
        ("==", "year", 2021, {"carry"}),
        ("!=", "year", 2021, {"leave", "travel", "page"}),
        (">", "year", 2021, {"travel", "page"}),
        (">=", "year", 2022, {"travel", "page"}),
        ("<", "year", 2021, {"leave"}),
        ("<=", "year", 2021, {"leave", "carry"}),
        ("in", "year", [2020, 2023], {"leave", "page"}),
        ("nin", "year", [2020, 2023], {"carry", "travel"}),
        ("contains", "tags", "hr", {"carry", "travel"}),
        ("any", "tags", ["draft", "other"], {"travel"}),
        ("all", "tags", ["hr", "draft"], {"travel"}),
        ("is_empty", "owner", None, set(TEXTS)),
        ("is_empty", "tags", None, {"leave", "page"}),
        ("text_match", "tags", "raf", {"travel"}),
        ("text_match", "tags", "RAF", set()),
        ("text_match_insensitive", "tags", "RAF", {"travel"}),
    ],
)
def test_filters__are_on_metadata(
    store: "KosmosVectorStore", operator: str, key: str, value: Any, expected: set[str]
) -> None:
    from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters

    filters = MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=FilterOperator(operator))])
    assert {node.node_id for node in store.get_nodes(filters=filters)} == expected
    assert set(_query(store, "hybrid", "days of the office", k=9, filters=filters)) == expected


def test_filters__combine(store: "KosmosVectorStore") -> None:
    from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

    first, last = MetadataFilter(key="year", value=2020), MetadataFilter(key="year", value=2023)
    either = MetadataFilters(filters=[first, last], condition=FilterCondition.OR)
    neither = MetadataFilters(filters=[first, last], condition=FilterCondition.NOT)
    nested = MetadataFilters(filters=[either, MetadataFilter(key="year", value=2021, operator=FilterOperator.LT)])
    assert {node.node_id for node in store.get_nodes(filters=either)} == {"leave", "page"}
    assert {node.node_id for node in store.get_nodes(filters=neither)} == {"carry", "travel"}
    assert {node.node_id for node in store.get_nodes(filters=nested)} == {"leave"}
    assert set(_query(store, "default", k=9, doc_ids=["handbook"])) == {"leave", "carry"}
    assert set(_query(store, "default", k=9, node_ids=["page", "carry"])) == {"page", "carry"}


def test_delete__removes_exactly_the_named(store: "KosmosVectorStore", notes: Tenant) -> None:
    from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

    def left() -> set[str]:
        return {info.source for info in notes.documents()}

    store.delete("office")
    assert left() == {"leave", "carry"}
    only = MetadataFilters(filters=[MetadataFilter(key="year", value=2020)])
    store.delete_nodes(["carry"], only)
    assert left() == {"leave", "carry"}, "both conditions apply"
    store.delete_nodes(filters=only)
    store.delete_nodes(["nothing"])
    assert left() == {"carry"}
    with pytest.raises(RequestError, match="neither node_ids nor filters"):
        store.delete_nodes()
    store.clear()
    assert notes.sources() == []


def test_index__finds_and_answers_synchronously_and_not(notes: Tenant) -> None:
    from llama_index.core import Document, StorageContext, VectorStoreIndex
    from llama_index.core.schema import TextNode
    from llama_index.core.vector_stores.types import VectorStoreQueryMode

    from kosmos_rag.apps.integrations.llama_index import KosmosEmbedding, KosmosVectorStore

    store = KosmosVectorStore(notes)
    index = VectorStoreIndex.from_documents(
        [Document(text=text, id_=key) for key, text in TEXTS.items()],
        storage_context=StorageContext.from_defaults(vector_store=store),
        embed_model=KosmosEmbedding(notes),
    )
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.MMR):
        retriever = index.as_retriever(similarity_top_k=1, vector_store_query_mode=mode)
        assert [document.node.ref_doc_id for document in retriever.retrieve(TEXTS["travel"])] == ["travel"]

    async def use() -> None:
        retriever = index.as_retriever(similarity_top_k=1)
        assert [document.node.ref_doc_id for document in await retriever.aretrieve(TEXTS["travel"])] == ["travel"]
        await store.async_add([TextNode(id_="tea", text="About tea.")])
        assert [document.node_id for document in await store.aget_nodes(["tea"])] == ["tea"]
        await store.adelete_nodes(["tea"])
        await store.adelete("travel")
        assert "travel" not in {document.ref_doc_id for document in await store.aget_nodes()}
        await store.aclear()

    asyncio.run(use())
    assert notes.sources() == []


def test_store__refuses_what_does_not_fit(engine: Engine, notes: Tenant, tenant_name: str) -> None:
    from llama_index.core.schema import TextNode

    from kosmos_rag.apps.integrations.llama_index import KosmosVectorStore

    with pytest.raises(ConfigError, match="writes to one collection"):
        KosmosVectorStore(engine.tenant(tenant_name))
    with pytest.raises(RequestError, match="a vector of 3 dimensions, and the model of this collection has 64"):
        KosmosVectorStore(notes).add([TextNode(id_="a", text="a", embedding=[1.0, 2.0, 3.0])])
    assert notes.sources() == []
