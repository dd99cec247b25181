"""The retriever in a chain of LangChain's own parts."""

import asyncio

import pytest
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnablePassthrough

from kosmos_rag import Filter, Tenant
from kosmos_rag.apps.integrations.langchain import KosmosRetriever
from kosmos_rag.core.errors import RequestError
from tests.integration.apps.integrations.conftest import QUESTION


def test_documents__are_the_passages_that_the_reader_may_read(tenant: Tenant) -> None:
    result = tenant.search(QUESTION)
    documents = KosmosRetriever(tenant=tenant).invoke(QUESTION)
    assert [(document.id, document.page_content) for document in documents] == [
        (str(hit.chunk_id), hit.text) for hit in result.hits
    ]
    best = documents[0].metadata
    assert (best["source"], best["year"], best["lines"], best["pages"]) == ("leave.md", 2026, [1, 5], None)
    assert best["reference"] == "leave.md | Annual | L1 to L5"
    assert (best["document_id"], best["score"]) == (str(result.hits[0].document_id), result.hits[0].score)
    assert {document.metadata["source"] for document in documents} == {"leave.md", "expenses.md"}


def test_options__are_how_many_and_which(tenant: Tenant) -> None:
    assert len(KosmosRetriever(tenant=tenant, k=1).invoke(QUESTION)) == 1
    only = Filter(where={"metadata.year": 2025})
    (result,) = KosmosRetriever(tenant=tenant, filter=only).invoke(QUESTION)
    assert result.metadata["source"] == "expenses.md"


def test_chain__answers_from_the_passages(tenant: Tenant) -> None:
    strings: list[str] = []

    def joined(documents: list[Document]) -> str:
        return "\n".join(document.page_content for document in documents)

    def watched(prompt: PromptValue) -> PromptValue:
        strings.append(prompt.to_string())
        return prompt

    chain = (
        {"context": KosmosRetriever(tenant=tenant, k=1) | RunnableLambda(joined), "question": RunnablePassthrough()}
        | ChatPromptTemplate.from_template("{context}\n\n{question}")
        | RunnableLambda(watched)
        | FakeListChatModel(responses=["20 days", "20 days"])
        | StrOutputParser()
    )
    assert chain.invoke(QUESTION) == "20 days"
    assert asyncio.run(chain.ainvoke(QUESTION)) == "20 days"
    assert all("20 days of paid annual leave" in prompt and QUESTION in prompt for prompt in strings)
    assert len(strings) == 2


def test_question__that_cannot_be_asked_is_refused(tenant: Tenant) -> None:
    with pytest.raises(RequestError, match="the question is empty"):
        KosmosRetriever(tenant=tenant).invoke(" ")
