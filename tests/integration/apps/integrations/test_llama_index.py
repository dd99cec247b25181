"""The retriever in a query engine of LlamaIndex's own parts.

LlamaIndex is imported within the tests: every process of a run collects every module, and it is large.
"""

import asyncio

from kosmos_rag import Filter, Tenant
from tests.integration.apps.integrations.conftest import QUESTION


def test_nodes__are_the_passages_that_the_reader_may_read(tenant: Tenant) -> None:
    from llama_index.core.schema import MetadataMode, NodeRelationship, RelatedNodeInfo

    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    result = tenant.search(QUESTION)
    nodes = KosmosRetriever(tenant).retrieve(QUESTION)
    assert [(node.node_id, node.text, node.score) for node in nodes] == [
        (str(hit.chunk_id), hit.text, hit.score) for hit in result.hits
    ]
    best = nodes[0].node
    assert (best.metadata["source"], best.metadata["year"], best.metadata["lines"]) == ("leave.md", 2026, [1, 5])
    document = best.relationships[NodeRelationship.SOURCE]
    assert isinstance(document, RelatedNodeInfo)
    assert document.node_id == str(result.hits[0].document_id)
    content = best.get_content(metadata_mode=MetadataMode.LLM)
    assert content == f"reference: leave.md | Annual | L1 to L5\n\n{result.hits[0].text}"
    assert {node.metadata["source"] for node in nodes} == {"leave.md", "expenses.md"}


def test_options__are_how_many_and_which(tenant: Tenant) -> None:
    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    assert len(KosmosRetriever(tenant, k=1).retrieve(QUESTION)) == 1
    (result,) = KosmosRetriever(tenant, filter=Filter(where={"metadata.year": 2025})).retrieve(QUESTION)
    assert result.metadata["source"] == "expenses.md"


def test_query_engine__answers_from_the_passages(tenant: Tenant) -> None:
    from llama_index.core import Settings, get_response_synthesizer
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import RetrieverQueryEngine

    from kosmos_rag.apps.integrations.llama_index import KosmosRetriever

    model = MockLLM()
    engine = RetrieverQueryEngine(KosmosRetriever(tenant, k=1), get_response_synthesizer(llm=model))
    for response in (engine.query(QUESTION), asyncio.run(engine.aquery(QUESTION))):
        assert "20 days of paid annual leave" in str(response)  # the model says what it was asked
        assert [source_node.metadata["source"] for source_node in response.source_nodes] == ["leave.md"]
    assert Settings._llm is None, "no model of anybody's was looked for"
