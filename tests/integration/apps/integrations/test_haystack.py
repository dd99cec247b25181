"""The retriever in a pipeline of Haystack's own parts.

Haystack is imported within the tests: every process of a run collects every module, and it brings torch along.
"""

import pytest

from kosmos_rag import Filter, Tenant
from kosmos_rag.core.errors import ConfigError
from tests.integration.apps.integrations.conftest import QUESTION


def test_documents__are_the_passages_that_the_reader_may_read(tenant: Tenant) -> None:
    from kosmos_rag.apps.integrations.haystack import KosmosRetriever

    outcome = tenant.search(QUESTION)
    documents = KosmosRetriever(tenant).run(QUESTION)["documents"]
    assert [(document.id, document.content, document.score) for document in documents] == [
        (str(hit.chunk_id), hit.text, hit.score) for hit in outcome.hits
    ]
    best = documents[0].meta
    assert (best["source"], best["year"], best["reference"]) == ("leave.md", 2026, "leave.md | Annual | L1 to L5")
    assert {document.meta["source"] for document in documents} == {"leave.md", "expenses.md"}


def test_options__are_how_many_and_which(tenant: Tenant) -> None:
    from kosmos_rag.apps.integrations.haystack import KosmosRetriever

    assert len(KosmosRetriever(tenant, k=1).run(QUESTION)["documents"]) == 1
    assert len(KosmosRetriever(tenant, k=1).run(QUESTION, k=2)["documents"]) == 2
    (outcome,) = KosmosRetriever(tenant, filter=Filter(where={"metadata.year": 2025})).run(QUESTION)["documents"]
    assert outcome.meta["source"] == "expenses.md"


def test_pipeline__makes_a_prompt_of_the_passages(tenant: Tenant) -> None:
    from haystack import Pipeline
    from haystack.components.builders import PromptBuilder

    from kosmos_rag.apps.integrations.haystack import KosmosRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", KosmosRetriever(tenant, k=1))
    template = "{% for one in documents %}{{ one.content }} ({{ one.meta.reference }}){% endfor %} {{ question }}"
    pipeline.add_component("prompt", PromptBuilder(template, required_variables=["documents", "question"]))
    pipeline.connect("retriever.documents", "prompt.documents")
    result = pipeline.run({"retriever": {"query": QUESTION}, "prompt": {"question": QUESTION}})
    prompt = result["prompt"]["prompt"]
    assert "20 days of paid annual leave" in prompt
    assert "(leave.md | Annual | L1 to L5)" in prompt


def test_pipeline__is_not_written_as_yaml(tenant: Tenant) -> None:
    from haystack import Pipeline

    from kosmos_rag.apps.integrations.haystack import KosmosRetriever

    pipeline = Pipeline()
    pipeline.add_component("retriever", KosmosRetriever(tenant))
    with pytest.raises(ConfigError, match="create it in code"):
        pipeline.dumps()
    with pytest.raises(ConfigError, match="create it in code"):
        KosmosRetriever.from_dict({})
