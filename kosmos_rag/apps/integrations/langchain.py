"""A vector store and a retriever for LangChain: `pip install 'kosmos-rag[langchain]'`."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from kosmos_rag.apps.integrations.metadata import build_metadata
from kosmos_rag.apps.integrations.store import CollectionStore, StoredText, metadata_filter
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.types import EVERYONE, Filter
from kosmos_rag.engine.tenant import Tenant

try:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    raise missing_extra("langchain", "the adapter", "langchain-core") from error

_PROBE = "annual leave"
_SAME_MODEL = 0.99
"""Least cosine of two embeddings of one text by one model; backends and precisions differ by less."""

_Conditions = Filter | Mapping[str, Any] | None


class KosmosRetriever(BaseRetriever):
    """Retrieves the passages that the tenant's reader may see, best first.

    `ainvoke` runs in a thread. Raises as `Tenant.search`.
    """

    tenant: Tenant
    k: int | None = None
    """Number of passages; None for the configured number. `invoke(question, k=3)` overrides it."""
    filter: Filter | None = None

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        del run_manager  # for callbacks of nested runs; there are none
        result = self.tenant.search(query, self.k if k is None else k, self.filter)
        return [Document(id=str(hit.chunk_id), page_content=hit.text, metadata=build_metadata(hit)) for hit in result]


class KosmosEmbeddings(Embeddings):
    """The embedding model of a tenant's engine."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed documents. Raises ModelError."""
        vectors: list[list[float]] = self._tenant.embed(texts).tolist()
        return vectors

    def embed_query(self, text: str) -> list[float]:
        """Embed a question. Raises ModelError."""
        return list(self._tenant.embed_query(text))


class KosmosVectorStore(VectorStore):
    """Stores documents in a collection and finds them by words and vectors.

    Asynchronous methods run in threads. Errors are those of kosmos_rag.
    """

    def __init__(
        self, tenant: Tenant, *, embedding: Embeddings | None = None, acl: Sequence[str] = (EVERYONE,)
    ) -> None:
        """Create a store.

        Args:
            tenant: An open tenant with a collection.
            embedding: None, or the model of the engine: one probe shows whether it is. Documents and questions are
                embedded by the engine.
            acl: Principals that may read what is added.

        Raises ConfigError without a collection, RequestError for another model.
        """
        self._store = CollectionStore(tenant, acl)
        self._embeddings = KosmosEmbeddings(tenant)
        if embedding is not None and not isinstance(embedding, KosmosEmbeddings):
            self._require_same_model(embedding)

    @property
    def embeddings(self) -> Embeddings:
        """The embedding model of the engine."""
        return self._embeddings

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,  # noqa: ARG002 — part of the interface
    ) -> list[str]:
        """Store texts and return their ids; an existing id is replaced.

        Raises RequestError if the lists differ in length, IngestionError for texts that cannot be stored.

        Args:
            ids: Ids of the texts; random where there is none.
            kwargs: Ignored.
        """
        contents = list(texts)
        text_ids = [text_id or str(uuid.uuid4()) for text_id in ids or [None] * len(contents)]
        metadata_list = [dict(metadata) for metadata in metadatas or [{}] * len(contents)]
        if not len(contents) == len(text_ids) == len(metadata_list):
            raise RequestError(
                f"{len(contents)} texts came with {len(text_ids)} ids and {len(metadata_list)} metadatas; give one "
                "for each"
            )
        self._store.write(
            [
                StoredText(id=key, text=text, metadata=metadata)
                for key, text, metadata in zip(text_ids, contents, metadata_list, strict=True)
            ]
        )
        return text_ids

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:  # noqa: ARG002
        """Delete the documents with these ids.

        Unknown ids are ignored. Raises RequestError without ids.

        Args:
            ids: Ids of the documents.
            kwargs: Ignored.
        """
        if ids is None:
            raise RequestError("no ids are given; delete a whole collection with Tenant.collections")
        self._store.delete(ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return whole documents; unknown ids are left out."""
        return [_document(stored) for stored in self._store.read(list(dict.fromkeys(ids)))]

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the best documents for a question.

        Args:
            k: Number of documents.
            kwargs: `filter`, and weights of the retrievers as `Tenant.search` takes them.
        """
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self,
        query: str,
        k: int = 4,
        filter: _Conditions = None,  # noqa: A002
        *,
        semantic_weight: float | None = None,
        keyword_weight: float | None = None,
    ) -> list[tuple[Document, float]]:
        """Return the best documents with their scores, higher is better.

        Args:
            k: Number of documents.
            filter: A `Filter`, or conditions on metadata: `{"year": {"$gte": 2024}}`.
            semantic_weight: Weight of the dense retriever; None for the setting.
            keyword_weight: Weight of the lexical retriever; None for the setting.
        """
        hits = self._store.search(
            query,
            k,
            condition=metadata_filter(filter),
            semantic_weight=semantic_weight,
            keyword_weight=keyword_weight,
        )
        return [(_document(hit), hit.score) for hit in hits]

    def similarity_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        *,
        filter: _Conditions = None,  # noqa: A002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Document]:
        """Return the documents nearest to a vector. Raises RequestError for other dimensions.

        Args:
            embedding: Vector by the model of the engine.
            k: Number of documents.
            filter: As in `similarity_search_with_score`.
            kwargs: Ignored.
        """
        return [
            _document(hit) for hit in self._store.search("", k, condition=metadata_filter(filter), vector=embedding)
        ]

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,  # noqa: ARG002
        lambda_mult: float = 0.5,
        *,
        filter: _Conditions = None,  # noqa: A002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Document]:
        """Return documents that are relevant and differ from each other.

        Args:
            k: Number of documents.
            fetch_k: Ignored: all candidates of the search are compared.
            lambda_mult: 1 for relevance alone, 0 for diversity alone.
            filter: As in `similarity_search_with_score`.
            kwargs: Ignored.
        """
        hits = self._store.search(query, k, condition=metadata_filter(filter), mmr=lambda_mult)
        return [_document(hit) for hit in hits]

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,  # noqa: ARG002
        lambda_mult: float = 0.5,
        *,
        filter: _Conditions = None,  # noqa: A002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Document]:
        """Return documents near to a vector that differ from each other.

        Args:
            embedding: Vector by the model of the engine.
            k: Number of documents.
            fetch_k: Ignored: all candidates of the search are compared.
            lambda_mult: 1 for relevance alone, 0 for diversity alone.
            filter: As in `similarity_search_with_score`.
            kwargs: Ignored.
        """
        hits = self._store.search("", k, condition=metadata_filter(filter), vector=embedding, mmr=lambda_mult)
        return [_document(hit) for hit in hits]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Create a store and add texts.

        Args:
            embedding: `KosmosEmbeddings(tenant)`, or the same model.
            ids: Ids of the texts; random where there is none.
            kwargs: `tenant`, and `acl`, as the constructor takes them.

        Raises RequestError without a tenant, and as `add_texts`.
        """
        if not isinstance(kwargs.get("tenant"), Tenant):
            raise RequestError("no tenant is given; call from_texts(…, tenant=engine.tenant(name, collection='notes'))")
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Search by vectors alone.

        A cosine is comparable between questions, a fused score is not.
        """
        scored_documents = self.similarity_search_with_score(query, k, **{**kwargs, "keyword_weight": 0.0})
        return [(document, min(1.0, max(0.0, score))) for document, score in scored_documents]

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        scored_documents = await self.asimilarity_search_with_score(query, k, **{**kwargs, "keyword_weight": 0.0})
        return [(document, min(1.0, max(0.0, score))) for document, score in scored_documents]

    def _require_same_model(self, embedding: Embeddings) -> None:
        vector, engine_vector = np.array(embedding.embed_query(_PROBE)), np.array(self._embeddings.embed_query(_PROBE))
        if vector.shape != engine_vector.shape:
            reason = f"has {vector.size} dimensions, and the model of the engine has {engine_vector.size}"
        elif np.dot(vector, engine_vector) < _SAME_MODEL * np.linalg.norm(vector) * np.linalg.norm(engine_vector):
            reason = "embeds a probe in another way than the model of the engine"
        else:
            return
        raise RequestError(
            f"{type(embedding).__name__} {reason}; give KosmosEmbeddings(tenant), or name its model in rag.embedding"
        )


def _document(stored: StoredText) -> Document:
    return Document(id=stored.id, page_content=stored.text, metadata=dict(stored.metadata))
