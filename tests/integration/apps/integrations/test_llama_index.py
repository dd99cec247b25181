"""The retriever in a query engine of LlamaIndex's own parts.

LlamaIndex is imported within the tests: every process of a run collects every module, and it is large.
"""

import asyncio

from kosmos_rag import Filter, Tenant
from tests.integration.apps.integrations.conftest import QUESTION


def test_nodes__are_the_passages_that_the_reader_may_read(tenant: Tenant) -> None:
    from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo

    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    found = tenant.search(QUESTION)
    nodes = KosmosRetriever(tenant).retrieve(QUESTION)
    assert [(one.node_id, one.text, one.score) for one in nodes] == [
        (str(hit.chunk_id), hit.text, hit.score) for hit in found.hits
    ]
    best = nodes[0].node
    assert (best.metadata["source"], best.metadata["year"], best.metadata["lines"]) == ("leave.md", 2026, [1, 5])
    document = best.relationships[NodeRelationship.SOURCE]
    assert isinstance(document, RelatedNodeInfo)
    assert document.node_id == str(found.hits[0].document_id)
    shown = best.get_content(metadata_mode=MetadataMode.LLM)
    assert shown == f"reference: leave.md | Annual | L1 to L5\n\n{found.hits[0].text}"
    assert {one.metadata["source"] for one in nodes} == {"leave.md", "expenses.md"}


def test_options__are_how_many_and_which(tenant: Tenant) -> None:
    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    assert len(KosmosRetriever(tenant, k=1).retrieve(QUESTION)) == 1
    (found,) = KosmosRetriever(tenant, filter=Filter(where={"metadata.year": 2025})).retrieve(QUESTION)
    assert found.metadata["source"] == "expenses.md"


def test_query_engine__answers_from_the_passages(tenant: Tenant) -> None:
    from llama_index.core import Settings, get_response_synthesizer
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    model = MockLLM()
    engine = RetrieverQueryEngine(KosmosRetriever(tenant, k=1), get_response_synthesizer(llm=model))
    for response in (engine.query(QUESTION), asyncio.run(engine.aquery(QUESTION))):
        assert "20 days of paid annual leave" in str(response)  # the model says what it was asked
        assert [one.metadata["source"] for one in response.source_nodes] == ["leave.md"]
    assert Settings._llm is None, "no model of anybody's was looked for"
