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
    """Passages that a scope's reader may read, best first; `ainvoke` asks from a thread. Raises as `search` does."""

    scope: Tenant
    k: int | None = None
    """How many; as configured where it is None."""
    filter: Filter | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        del run_manager  # tells of a run's children, and there are none
        found = self.scope.search(query, self.k, self.filter)
        return [Document(id=str(hit.chunk_id), page_content=hit.text, metadata=metadata_of(hit)) for hit in found.hits]
