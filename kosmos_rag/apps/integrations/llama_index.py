"""A vector store and a retriever for LlamaIndex: `pip install 'kosmos-rag[llama-index]'`."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kosmos_rag.apps.integrations.metadata import build_metadata
from kosmos_rag.apps.integrations.store import CollectionStore, StoredText
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.types import EVERYONE, Filter, Passage
from kosmos_rag.engine.tenant import Tenant

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        BaseNode,
        MetadataMode,
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ImportError as error:
    raise missing_extra("llama-index", "the adapter", "llama-index-core") from error

_LLM_FIELD = "reference"
"""The metadata field that language models see with the text."""
_DENSE = (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR)
_LEXICAL = (VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.TEXT_SEARCH)
_HYBRID = (VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.SEMANTIC_HYBRID)
_MMR = 0.5
_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.ANY: "$in",
    FilterOperator.CONTAINS: "$eq",
    FilterOperator.TEXT_MATCH: "$contains",
    FilterOperator.TEXT_MATCH_INSENSITIVE: "$icontains",
}
"""A condition on a list in the metadata holds if it holds for one of its values."""


class KosmosRetriever(BaseRetriever):
    """Retrieves the passages that the tenant's reader may see, best first.

    Raises as `search`.
    """

    def __init__(self, tenant: Tenant, *, k: int | None = None, filter: Filter | None = None) -> None:  # noqa: A002
        """Create a retriever.

        Args:
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


class KosmosEmbedding(BaseEmbedding):
    """The embedding model of a tenant's engine."""

    _tenant: Tenant = PrivateAttr()

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(model_name=f"kosmos-rag-{tenant.dimensions}")
        self._tenant = tenant

    def _get_query_embedding(self, query: str) -> list[float]:
        return list(self._tenant.embed_query(query))

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        vectors: list[list[float]] = self._tenant.embed(texts).tolist()
        return vectors

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)


class KosmosVectorStore(BasePydanticVectorStore):
    """Stores nodes in a collection and finds them by words and vectors.

    The engine embeds the nodes: embeddings that come with them are checked for their length and not stored.
    Asynchronous methods run in threads. Errors are those of kosmos_rag.
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    _store: CollectionStore = PrivateAttr()

    def __init__(self, tenant: Tenant, *, acl: Sequence[str] = (EVERYONE,)) -> None:
        """Create a store.

        Args:
            tenant: An open tenant with a collection.
            acl: Principals that may read what is added.

        Raises ConfigError without a collection.
        """
        super().__init__(stores_text=True)
        self._store = CollectionStore(tenant, acl)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in serialised objects."""
        return "KosmosVectorStore"

    @property
    def client(self) -> Tenant:
        """The tenant."""
        return self._store.tenant

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Store nodes and return their ids; an existing id is replaced.

        Raises RequestError for embeddings of other dimensions, IngestionError for nodes that cannot be stored.

        Args:
            kwargs: Ignored.
        """
        del kwargs
        self._store.check_vectors(node.embedding for node in nodes)
        self._store.write(
            [
                StoredText(
                    id=node.node_id,
                    text=node.get_content(metadata_mode=MetadataMode.NONE),
                    metadata=node_to_metadata_dict(node, remove_text=True),
                )
                for node in nodes
            ]
        )
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document.

        Args:
            ref_doc_id: Id of the document.
            delete_kwargs: Ignored.
        """
        del delete_kwargs
        self._delete_matching(Filter(where={"metadata.ref_doc_id": ref_doc_id}))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete nodes by id, by filter, or those to which both apply.

        Raises RequestError if neither is given.

        Args:
            filters: Conditions on metadata.
            delete_kwargs: Ignored.
        """
        del delete_kwargs
        if node_ids is None and filters is None:
            raise RequestError("neither node_ids nor filters are given; clear() deletes all nodes")
        if filters is None:
            self._store.delete(node_ids or [])
        else:
            self._delete_matching(_conditions(filters, node_ids=node_ids))

    def clear(self) -> None:
        """Delete all documents of the collection."""
        self._store.delete(self._store.tenant.sources())

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return nodes with their whole text; unknown ids are left out.

        Args:
            node_ids: Ids of nodes; None for all.
            filters: Conditions on metadata.
        """
        return [_build_node(stored) for stored in self._store.read(node_ids, _conditions(filters))]

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the best nodes for a query.

        The modes are default, sparse, text_search, hybrid, semantic_hybrid and mmr. Raises RequestError for others, and
        for embeddings of other dimensions.

        Args:
            query: The query; `alpha` is the weight of the vectors in hybrid modes.
            kwargs: Ignored.
        """
        del kwargs
        hits = self._store.search(
            query.query_str or "",
            _number_of_results(query),
            # An index passes empty lists for no restriction.
            condition=_conditions(query.filters, node_ids=query.node_ids or None, doc_ids=query.doc_ids or None),
            **_retrieval(query),
        )
        nodes = [_build_node(hit) for hit in hits]
        return VectorStoreQueryResult(
            nodes=nodes, similarities=[hit.score for hit in hits], ids=[hit.id for hit in hits]
        )

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Do what `add` does, in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Do what `delete` does, in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Do what `delete_nodes` does, in a thread.

        Args:
            filters: Conditions on metadata.
            delete_kwargs: Ignored.
        """
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """Do what `clear` does, in a thread."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Do what `get_nodes` does, in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Do what `query` does, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def _delete_matching(self, condition: Filter | None) -> None:
        self._store.delete([info.source for info in self._store.tenant.documents(filter=condition)])


def _number_of_results(query: VectorStoreQuery) -> int:
    if query.mode in _HYBRID and query.hybrid_top_k is not None:
        return query.hybrid_top_k
    if query.mode in _LEXICAL and query.sparse_top_k is not None:
        return query.sparse_top_k
    return query.similarity_top_k


def _retrieval(query: VectorStoreQuery) -> dict[str, Any]:
    """Return the arguments of a search for the mode of a query."""
    if query.mode in _LEXICAL:
        return {"semantic_weight": 0.0}
    if query.mode in _DENSE:
        options: dict[str, Any] = {"vector": query.query_embedding, "keyword_weight": 0.0}
        if query.mode is VectorStoreQueryMode.MMR:
            options["mmr"] = _MMR if query.mmr_threshold is None else query.mmr_threshold
        return options
    if query.mode not in _HYBRID:
        modes = ", ".join(mode.value for mode in (*_DENSE, *_LEXICAL, *_HYBRID))
        raise RequestError(f"the mode is {query.mode.value!r}; use one of {modes}")
    if query.alpha is None:
        return {"vector": query.query_embedding}
    return {
        "vector": query.query_embedding if query.alpha else None,
        "semantic_weight": float(query.alpha),
        "keyword_weight": 1.0 - query.alpha,
    }


def _conditions(
    filters: MetadataFilters | None, *, node_ids: Sequence[str] | None = None, doc_ids: Sequence[str] | None = None
) -> Filter | None:
    parts: list[Mapping[str, Any]] = []
    if node_ids is not None:
        parts.append({"source": {"$in": list(node_ids)}})
    if doc_ids is not None:
        parts.append({"metadata.ref_doc_id": {"$in": list(doc_ids)}})
    if filters is not None and filters.filters:
        parts.append(_combination(filters))
    return Filter(where={"$and": parts}) if parts else None


def _combination(filters: MetadataFilters) -> Mapping[str, Any]:
    parts = [
        _combination(condition) if isinstance(condition, MetadataFilters) else _condition(condition)
        for condition in filters.filters
    ]
    if filters.condition == FilterCondition.NOT:
        return {"$not": {"$or": parts}}
    return {"$or" if filters.condition == FilterCondition.OR else "$and": parts}


def _condition(condition: MetadataFilter) -> Mapping[str, Any]:
    field = f"metadata.{condition.key}"
    if condition.operator is FilterOperator.ALL:
        values = condition.value if isinstance(condition.value, list) else [condition.value]
        return {"$and": [{field: value} for value in values]}
    if condition.operator is FilterOperator.IS_EMPTY:
        return {field: {"$empty": True}}
    return {field: {_OPERATORS[condition.operator]: condition.value}}


def _build_node(stored: StoredText) -> BaseNode:
    if "_node_content" in stored.metadata:
        return metadata_dict_to_node(dict(stored.metadata), text=stored.text)
    # A document that was not added as a node.
    return TextNode(id_=stored.id, text=stored.text, metadata=dict(stored.metadata))


def _node(hit: Passage) -> TextNode:
    metadata = build_metadata(hit)
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
