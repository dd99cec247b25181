"""The standard tests of LangChain, all of them, unmodified.

They are imported within one module: every process of a run collects every module.
"""

import uuid
from typing import Any

import pytest
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests.retrievers import RetrieversIntegrationTests
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

from kosmos_rag import Engine
from kosmos_rag.apps.integrations.langchain import KosmosRetriever, KosmosVectorStore
from tests.integration.apps.integrations.conftest import DOCUMENTS, QUESTION


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, engine: Engine, tenant_name: str) -> VectorStore:
        return KosmosVectorStore(engine.tenant(tenant_name, collection="notes"))


@pytest.mark.anyio
class TestRetriever(RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def tenant(self, shared_engine: Engine) -> None:
        self._tenant = shared_engine.tenant(f"t-{uuid.uuid4().hex}", principals=["everyone", "department:hr"])
        self._tenant.ingest(DOCUMENTS)

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return KosmosRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"tenant": self._tenant}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION
