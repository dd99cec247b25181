"""A document store and retrievers for Haystack: `pip install 'kosmos-rag[haystack]'`."""

import asyncio
import atexit
import math
import threading
from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from typing import Any, NoReturn, Self

from kosmos_rag.apps.integrations.metadata import build_metadata
from kosmos_rag.apps.integrations.store import CollectionStore, StoredText
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.types import EVERYONE, Filter
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.tenant import Tenant

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.document_stores.errors import DuplicateDocumentError
    from haystack.document_stores.types import DuplicatePolicy
    from haystack.errors import FilterError
except ImportError as error:
    raise missing_extra("haystack", "the adapter", "haystack-ai") from error

_NOT_SERIALISABLE = (
    "a KosmosRetriever has an open engine and cannot be serialised; create it in code, or use a retriever over a "
    "KosmosDocumentStore"
)
_OPERATORS = {
    "==": "$eq",
    "!=": "$ne",
    ">": "$gt",
    ">=": "$gte",
    "<": "$lt",
    "<=": "$lte",
    "in": "$in",
    "not in": "$nin",
}
_NOTHING: Mapping[str, Any] = {"source": {"$in": []}}
"""A condition that no document meets."""

_engines: dict[str | None, Engine] = {}
_lock = threading.Lock()


def _open_engine(config: str | None) -> Engine:
    """Return the engine of a settings file, one for the process.

    A pipeline that is loaded has a store in each of its components. The engine is closed when the process ends.
    """
    with _lock:
        if config not in _engines:
            _engines[config] = Engine.open(config)
            atexit.register(_engines[config].close)
        return _engines[config]


@component
class KosmosRetriever:
    """Retrieves the passages that the tenant's reader may see, best first."""

    def __init__(self, tenant: Tenant, *, k: int | None = None, filter: Filter | None = None) -> None:  # noqa: A002
        """Create a retriever.

        Args:
            k: number of passages; None for the configured number.
            filter: search only documents that match.
        """
        self._tenant = tenant
        self._k = k
        self._filter = filter

    @component.output_types(documents=list[Document])
    def run(self, query: str, k: int | None = None) -> dict[str, list[Document]]:
        """Return the passages for a query as `documents`. Raises as `Tenant.search` does."""
        result = self._tenant.search(query, self._k if k is None else k, self._filter)
        return {
            "documents": [
                Document(id=str(hit.chunk_id), content=hit.text, meta=build_metadata(hit), score=hit.score)
                for hit in result.hits
            ]
        }

    def to_dict(self) -> NoReturn:
        """Raise ConfigError: an open engine cannot be serialised."""
        raise ConfigError(_NOT_SERIALISABLE)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> NoReturn:
        """Raise ConfigError, as `to_dict`."""
        del data
        raise ConfigError(_NOT_SERIALISABLE)


class KosmosDocumentStore:
    """Stores documents in a collection of a tenant. Thread-safe.

    Asynchronous methods run in threads. Errors are those of kosmos_rag, and those that Haystack's protocol names.
    """

    def __init__(
        self,
        *,
        tenant: str,
        collection: str,
        config: str | None = None,
        principals: Sequence[str] = (EVERYONE,),
        subject: str | None = None,
        acl: Sequence[str] = (EVERYONE,),
        engine: Engine | None = None,
    ) -> None:
        """Create a store; its engine opens on first use.

        Args:
            config: Settings file; None for the default locations. The stores of a process share an engine for each.
            principals: What the reader holds.
            subject: Reader for the audit log.
            acl: Principals that may read what is written.
            engine: An open engine instead of `config`; such a store cannot be serialised.
        """
        self._parameters: dict[str, Any] = {
            "tenant": tenant,
            "collection": collection,
            "config": config,
            "principals": list(principals),
            "subject": subject,
            "acl": list(acl),
        }
        self._engine = engine
        self._opened: CollectionStore | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters: names and the path of the settings, no passwords.

        Raises ConfigError for a store over an open engine.
        """
        if self._engine is not None:
            raise ConfigError("this store has an open engine and cannot be serialised; create it with config='…'")
        # Copies: YAML would write a list of several components once, with references.
        return default_to_dict(self, **deepcopy(self._parameters))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Create the store that `to_dict` describes."""
        store: Self = default_from_dict(cls, data)
        return store

    @property
    def store(self) -> CollectionStore:
        """The collection; opened on first use. Raises as `Engine.open`."""
        if self._opened is None:
            parameters = self._parameters
            engine = self._engine or _open_engine(parameters["config"])
            tenant = engine.tenant(
                parameters["tenant"],
                principals=parameters["principals"],
                collection=parameters["collection"],
                subject=parameters["subject"],
            )
            self._opened = CollectionStore(tenant, parameters["acl"])
        return self._opened

    def count_documents(self) -> int:
        """Count the documents that the reader may read."""
        return self.store.tenant.count_documents()

    def count_documents_by_filter(self, filters: dict[str, Any]) -> int:
        """Count the readable documents that match. Raises FilterError."""
        return self.store.tenant.count_documents(convert_filters(filters))

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Return the readable documents that match, by id. Raises FilterError."""
        return [_document(stored) for stored in self.store.read(condition=convert_filters(filters))]

    def write_documents(self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE) -> int:
        """Store documents, and return how many were written.

        Raises ValueError for other objects, DuplicateDocumentError, RequestError for documents without text or with a
        vector of other dimensions, IngestionError.

        Args:
            policy: For ids that exist; NONE is FAIL.
        """
        if not isinstance(documents, list) or not all(isinstance(document, Document) for document in documents):
            raise ValueError("documents is not a list of haystack.Document; give one")
        for document in documents:
            if document.content is None or document.blob is not None or document.sparse_embedding is not None:
                raise RequestError(
                    f"document {document.id[:60]} has no content, or a blob or sparse embedding; only texts are "
                    "stored: convert files first"
                )
        self.store.check_vectors(document.embedding for document in documents)
        new_documents = documents
        if policy is not DuplicatePolicy.OVERWRITE:
            new_documents = self._drop_existing(documents, skip=policy is DuplicatePolicy.SKIP)
        self.store.write(
            [
                StoredText(id=document.id, text=document.content or "", metadata=document.meta)
                for document in new_documents
            ]
        )
        return len(new_documents)

    def _drop_existing(self, documents: Sequence[Document], *, skip: bool) -> list[Document]:
        tenant = self.store.tenant
        ids = tenant.document_ids(document.id for document in documents)
        existing = {info.source for info in tenant.documents(ids=ids)}
        new: dict[str, Document] = {}
        for document in documents:
            if document.id in existing or document.id in new:
                if skip:
                    continue
                raise DuplicateDocumentError(f"document {document.id} exists; choose the policy OVERWRITE or SKIP")
            new[document.id] = document
        return list(new.values())

    def update_by_filter(self, filters: dict[str, Any], meta: dict[str, Any]) -> int:
        """Change metadata of the readable documents that match; return how many match.

        Raises FilterError, RequestError.
        """
        tenant = self.store.tenant
        sources = [info.source for info in tenant.documents(filter=convert_filters(filters))]
        tenant.update_metadata(sources, meta)
        return len(sources)

    def delete_documents(self, document_ids: list[str]) -> None:
        """Delete exactly the documents with these ids; unknown ids are ignored."""
        self.store.delete(document_ids)

    def delete_by_filter(self, filters: dict[str, Any]) -> int:
        """Delete the readable documents that match; return how many. Raises FilterError."""
        return self.store.delete([info.source for info in self.store.tenant.documents(filter=convert_filters(filters))])

    def delete_all_documents(self) -> None:
        """Delete all documents of the collection."""
        self.store.delete(self.store.tenant.sources())

    async def count_documents_async(self) -> int:
        """Do what `count_documents` does, in a thread."""
        return await asyncio.to_thread(self.count_documents)

    async def filter_documents_async(self, filters: dict[str, Any] | None = None) -> list[Document]:
        """Do what `filter_documents` does, in a thread."""
        return await asyncio.to_thread(self.filter_documents, filters)

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Do what `write_documents` does, in a thread."""
        return await asyncio.to_thread(self.write_documents, documents, policy)

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """Do what `delete_documents` does, in a thread."""
        await asyncio.to_thread(self.delete_documents, document_ids)


class _StoreRetriever:
    """What the retrievers over a document store share."""

    def __init__(
        self, document_store: KosmosDocumentStore, *, filters: dict[str, Any] | None = None, top_k: int = 10
    ) -> None:
        """Create a retriever.

        Args:
            filters: Haystack's filters; those of a run replace them.
            top_k: Number of documents.
        """
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters. Raises ConfigError for a store over an open engine."""
        return default_to_dict(
            self, document_store=self.document_store.to_dict(), filters=self.filters, top_k=self.top_k
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Create the retriever that `to_dict` describes."""
        parameters = dict(data["init_parameters"])
        if isinstance(parameters["document_store"], dict):
            parameters["document_store"] = KosmosDocumentStore.from_dict(parameters["document_store"])
        retriever: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return retriever

    def _find(
        self, query: str, filters: dict[str, Any] | None, top_k: int | None, **retrieval: Any
    ) -> dict[str, list[Document]]:
        condition = convert_filters(self.filters if filters is None else filters)
        hits = self.document_store.store.search(
            query, self.top_k if top_k is None else top_k, condition=condition, **retrieval
        )
        return {"documents": [_document(hit) for hit in hits]}


@component
class KosmosEmbeddingRetriever(_StoreRetriever):
    """Finds documents by the vector of a query."""

    @component.output_types(documents=list[Document])
    def run(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the nearest documents. Raises RequestError for other dimensions, FilterError.

        Args:
            query_embedding: The vector.
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return self._find("", filters, top_k, vector=query_embedding)

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query_embedding: list[float], filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Do what `run` does, in a thread.

        Args:
            query_embedding: The vector.
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return await asyncio.to_thread(self._find, "", filters, top_k, vector=query_embedding)


@component
class KosmosBM25Retriever(_StoreRetriever):
    """Finds documents by the words of a query."""

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the best documents by BM25. Raises FilterError, RequestError.

        Args:
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return self._find(query, filters, top_k, semantic_weight=0.0)

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Do what `run` does, in a thread.

        Args:
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return await asyncio.to_thread(self._find, query, filters, top_k, semantic_weight=0.0)


@component
class KosmosHybridRetriever(_StoreRetriever):
    """Finds documents by words and vectors, fused; the engine embeds the query."""

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Return the best documents. Raises FilterError, RequestError.

        Args:
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return self._find(query, filters, top_k)

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Do what `run` does, in a thread.

        Args:
            filters: Haystack's filters.
            top_k: Number of documents.
        """
        return await asyncio.to_thread(self._find, query, filters, top_k)


@component
class KosmosTextEmbedder:
    """Embeds a query by the model of the engine, for `KosmosEmbeddingRetriever`."""

    def __init__(self, document_store: KosmosDocumentStore) -> None:
        self.document_store = document_store

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, list[float]]:
        """Return the vector as `embedding`. Raises ModelError."""
        return {"embedding": list(self.document_store.store.tenant.embed_query(text))}

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters. Raises ConfigError for a store over an open engine."""
        return default_to_dict(self, document_store=self.document_store.to_dict())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "KosmosTextEmbedder":
        """Create the component that `to_dict` describes."""
        return cls(KosmosDocumentStore.from_dict(data["init_parameters"]["document_store"]))


def convert_filters(filters: dict[str, Any] | None) -> Filter | None:
    """Return Haystack's filters as a filter on documents. Raises FilterError."""
    return Filter(where=_where(filters)) if filters else None


def _where(filters: Any) -> Mapping[str, Any]:
    if not isinstance(filters, Mapping):
        raise FilterError(f"a filter is {type(filters).__name__}; give a dictionary")
    if "field" in filters:
        return _comparison(filters)
    if "operator" not in filters or "conditions" not in filters:
        raise FilterError("a filter has no field, or no operator with conditions; see Haystack's metadata filtering")
    parts = [_where(condition) for condition in filters["conditions"]]
    if filters["operator"] == "NOT":
        return {"$not": {"$and": parts}}
    if filters["operator"] not in ("AND", "OR"):
        raise FilterError(f"the operator is {filters['operator']!r}; use AND, OR or NOT")
    return {f"${filters['operator'].lower()}": parts}


def _comparison(filters: Mapping[str, Any]) -> Mapping[str, Any]:
    if "operator" not in filters or "value" not in filters:
        raise FilterError(f"the filter on {filters['field']!r} has no operator or no value; give both")
    field, operator, value = _field(filters["field"]), filters["operator"], filters["value"]
    if operator not in _OPERATORS:
        raise FilterError(f"the operator is {operator!r}; use one of {', '.join(_OPERATORS)}")
    if operator in ("in", "not in") and not isinstance(value, list):
        raise FilterError(f"the value of {operator!r} is {type(value).__name__}; give a list")
    if operator in (">", ">=", "<", "<="):
        if value is None:
            return _NOTHING
        _check_ordered(value)
    if value is None:
        missing = {"$or": [{field: {"$exists": False}}, {field: None}]}
        return missing if operator == "==" else {"$not": missing}
    return {field: {_OPERATORS[operator]: value}}


def _field(name: Any) -> str:
    if name == "id":
        return "source"
    if name in ("content", "blob", "embedding", "score"):
        raise FilterError(f"documents cannot be filtered by {name}; use id or a key of meta")
    return f"metadata.{str(name).removeprefix('meta.')}"


def _check_ordered(value: Any) -> None:
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise FilterError(f"{value[:60]!r} has no order; compare numbers or dates in ISO 8601") from None
    elif isinstance(value, bool) or not isinstance(value, int | float | datetime):
        raise FilterError(f"the value is {type(value).__name__}; compare numbers or dates in ISO 8601")


def _document(stored: StoredText) -> Document:
    score = None if math.isnan(stored.score) else stored.score
    return Document(id=stored.id, content=stored.text, meta=dict(stored.metadata), score=score)
