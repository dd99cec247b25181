"""A retriever for LlamaIndex: `pip install 'kosmos-rag[llama-index]'`."""

import asyncio

from kosmos_rag.apps.integrations.metadata import metadata_of
from kosmos_rag.core.errors import ConfigError
from kosmos_rag.core.types import Filter, Passage
from kosmos_rag.engine.tenant import Tenant

try:
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
except ImportError as error:
    raise ConfigError("the adapter needs llama-index-core: pip install 'kosmos-rag[llama-index]'") from error

_LLM_FIELD = "reference"
"""The metadata field that language models see with the text."""


class KosmosRetriever(BaseRetriever):
    """Retrieves the passages that the tenant's reader may see, best first.

    Raises as `search`.
    """

    def __init__(self, tenant: Tenant, *, k: int | None = None, filter: Filter | None = None) -> None:  # noqa: A002
        """Create a retriever.

        Args:
            tenant: an open tenant.
            k: number of passages; None for the configured number.
            filter: search only documents that match.
        """
        super().__init__()
        self._tenant = tenant
        self._k = k
        self._filter = filter

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        result = self._tenant.search(query_bundle.query_str, self._k, self._filter)
        return [NodeWithScore(node=_node(hit), score=hit.score) for hit in result.hits]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # The base class would block the event loop.
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _node(hit: Passage) -> TextNode:
    metadata = metadata_of(hit)
    excluded = [name for name in metadata if name != _LLM_FIELD]
    return TextNode(
        id_=str(hit.chunk_id),
        text=hit.text,
        metadata=metadata,
        start_char_idx=hit.start,
        end_char_idx=hit.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=str(hit.document_id))},
        excluded_llm_metadata_keys=excluded,
        excluded_embed_metadata_keys=list(metadata),
    )
