"""What the standard tests of LangChain do not test of the vector store: readers, filters, vectors, exact ids."""

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.apps.integrations.langchain import KosmosEmbeddings, KosmosVectorStore
from kosmos_rag.core.errors import ConfigError, IngestionError, RequestError

TEXTS = {
    "leave": "Employees receive 20 days of paid annual leave per year.",
    "leave/copy": "Employees receive 20 days of paid annual leave per year.",
    "carry": "Unused days of annual leave expire on 31 March of the next year.",
    "travel": "Travel expenses are paid back within 14 days of the receipt.",
    "page": "<p>The canteen <b>opens</b> at noon.</p>",
}
QUESTION = "How many days of paid annual leave do employees receive?"


@pytest.fixture
def notes(engine: Engine, tenant_name: str) -> Tenant:
    engine.tenant(f"{tenant_name}-globex", collection="notes").ingest(
        SourceDocument(source="leave", data=b"Paid annual leave is 30 days per year.")
    )
    return engine.tenant(tenant_name, collection="notes")


@pytest.fixture
def store(notes: Tenant) -> KosmosVectorStore:
    years = [{"year": 2020 + number, "tags": ["hr", "draft"][: number % 3]} for number in range(len(TEXTS))]
    store = KosmosVectorStore.from_texts(
        list(TEXTS.values()), KosmosEmbeddings(notes), years, ids=list(TEXTS), tenant=notes
    )
    KosmosVectorStore(notes, acl=("department:hr",)).add_texts(
        ["Annual leave of the board is 90 paid days per year."], ids=["secret"]
    )
    return store


def _ids(documents: list[Document]) -> list[str | None]:
    return [document.id for document in documents]


def test_documents__come_back_as_they_were_given(store: KosmosVectorStore) -> None:
    (result,) = store.get_by_ids(["page", "secret", "nothing"])
    assert result == Document(id="page", page_content=TEXTS["page"], metadata={"year": 2024, "tags": ["hr"]})
    assert set(_ids(store.similarity_search(QUESTION, 2))) == {"leave", "leave/copy"}, "equal texts have their own ids"
    assert set(_ids(store.similarity_search(QUESTION, 10))) == set(TEXTS)


def test_delete__removes_exactly_the_named(store: KosmosVectorStore, notes: Tenant) -> None:
    store.delete(["leave", "LEAVE", "nothing", "%", "carr_"])
    assert {info.source for info in notes.documents()} == set(TEXTS) - {"leave"}
    with pytest.raises(RequestError, match="no ids are given"):
        store.delete()


def test_long_document__is_found_by_its_passage_and_returned_once(store: KosmosVectorStore) -> None:
    filler = "\n\n".join(f"Paragraph {number} is about nothing in particular. " * 12 for number in range(12))
    text = f"{filler}\n\nThe quarterly audit of vendors takes place in Lisbon.\n\n{filler}"
    store.add_texts([text], ids=["long"])
    result = store.similarity_search("Where is the quarterly audit of vendors?", 3)
    assert result[0].id == "long"
    assert _ids(result).count("long") == 1
    assert "Lisbon" in result[0].page_content
    assert len(result[0].page_content) < len(text)
    assert store.get_by_ids(["long"])[0].page_content == text


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"year": 2023}, {"travel"}),
        ({"year": {"$gte": 2023}}, {"travel", "page"}),
        ({"$or": [{"year": 2020}, {"$and": [{"year": {"$gt": 2023}}, {"tags": "hr"}]}]}, {"leave", "page"}),
        ({"$not": {"year": {"$lt": 2024}}}, {"page"}),
        ({"tags": {"$in": ["draft"]}}, {"carry"}),
        ({}, set(TEXTS)),
    ],
)
def test_filter__is_on_metadata(store: KosmosVectorStore, conditions: dict, expected: set[str]) -> None:
    assert set(_ids(store.similarity_search("days at the office", 10, filter=conditions))) == expected
    retriever = store.as_retriever(search_kwargs={"filter": conditions, "k": 1})
    assert len(retriever.invoke("days at the office")) == 1


def test_scores__are_those_of_the_vectors(store: KosmosVectorStore) -> None:
    vector = store.embeddings.embed_query(TEXTS["travel"])
    assert _ids(store.similarity_search_by_vector(vector, 1)) == ["travel"]
    ((best, relevance),) = store.similarity_search_with_relevance_scores(TEXTS["travel"], 1)
    assert best.id == "travel"
    assert relevance == pytest.approx(1, abs=0.01)
    assert all(0 <= score <= 1 for _, score in store.similarity_search_with_relevance_scores(QUESTION, 9))
    scores = [score for _, score in store.similarity_search_with_score(QUESTION, 9)]
    assert scores == sorted(scores, reverse=True)
    with pytest.raises(RequestError, match="the vector has 3 dimensions"):
        store.similarity_search_by_vector([1.0, 0.0, 0.0])


def test_mmr__prefers_what_differs(store: KosmosVectorStore) -> None:
    relevant = _ids(store.max_marginal_relevance_search(QUESTION, 3, lambda_mult=1.0))
    diverse = _ids(store.max_marginal_relevance_search(QUESTION, 3, lambda_mult=0.1))
    assert relevant[0] == diverse[0]
    assert relevant != diverse
    by_vector = store.max_marginal_relevance_search_by_vector(store.embeddings.embed_query(QUESTION), 3)
    assert len(by_vector) == 3


def test_asynchronous_methods__are_those_of_the_store(store: KosmosVectorStore, notes: Tenant) -> None:
    async def use() -> None:
        result = await KosmosVectorStore.afrom_texts(["About tea."], KosmosEmbeddings(notes), ids=["tea"], tenant=notes)
        assert _ids(await result.asimilarity_search("About tea.", 1)) == ["tea"]
        assert _ids(await result.amax_marginal_relevance_search("About tea.", 1)) == ["tea"]
        ((_, relevance),) = await result.asimilarity_search_with_relevance_scores("About tea.", 1)
        assert relevance == pytest.approx(1, abs=0.01)
        await result.adelete(["tea"])
        assert await result.aget_by_ids(["tea"]) == []

    asyncio.run(use())


def test_store__refuses_what_does_not_fit(engine: Engine, notes: Tenant, tenant_name: str) -> None:
    with pytest.raises(ConfigError, match="writes to one collection"):
        KosmosVectorStore(engine.tenant(tenant_name))
    with pytest.raises(RequestError, match="has 6 dimensions, and the model of the engine has 64"):
        KosmosVectorStore(notes, embedding=DeterministicFakeEmbedding(size=6))
    with pytest.raises(RequestError, match="embeds a probe in another way"):
        KosmosVectorStore(notes, embedding=DeterministicFakeEmbedding(size=64))
    with pytest.raises(RequestError, match="no tenant is given"):
        KosmosVectorStore.from_texts(["a"], KosmosEmbeddings(notes))
    store = KosmosVectorStore(notes)
    with pytest.raises(RequestError, match="2 texts came with 1 ids"):
        store.add_texts(["a", "b"], ids=["1"])
    with pytest.raises(IngestionError, match="1 of 2 documents were not stored: blank"):
        store.add_texts([" ", "kept"], ids=["blank", "kept"])
    assert _ids(store.get_by_ids(["kept", "blank"])) == ["kept"]
