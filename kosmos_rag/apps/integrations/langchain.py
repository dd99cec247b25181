"""A retriever for LangChain: `pip install 'kosmos-rag[langchain]'`."""

from kosmos_rag.apps.integrations.metadata import metadata_of
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import Filter
from kosmos_rag.engine.tenant import Tenant

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise ConfigError("the adapter needs langchain-core: pip install 'kosmos-rag[langchain]'") from error


class KosmosRetriever(BaseRetriever):
    """Retrieves the passages that the tenant's reader may see, best first.

    `ainvoke` runs in a thread. Raises as `Tenant.search`.
    """

    tenant: Tenant
    k: int | None = None
    """Number of passages; None for the configured number."""
    filter: Filter | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager  # for callbacks of nested runs; there are none
        result = self.tenant.search(query, self.k, self.filter)
        return [Document(id=str(hit.chunk_id), page_content=hit.text, metadata=metadata_of(hit)) for hit in result.hits]
