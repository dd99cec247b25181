"""Routes of search in vector stores, of embeddings and of models."""

import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from kosmos_rag.apps.http.toolkit.bodies import RequestBody
from kosmos_rag.apps.http.toolkit.concurrency import SEARCH, question_cost
from kosmos_rag.apps.http.toolkit.dependencies import Caller, Reader
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import Passage, storable
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.openai.access import open_vector_stores
from kosmos_rag.openai.filters import to_filter
from kosmos_rag.openai.search import SearchPage, SearchResultObject, SearchStoreRequest, merge_hits

router = APIRouter(prefix="/openai/v1")

_MAX_INPUTS = 2048
_TEXTS_OF_ONE_SLOT = 64


@router.post("/vector_stores/{vector_store_id}/search", tags=["openai: vector stores"])
async def search(vector_store_id: str, body: SearchStoreRequest, caller: Reader) -> SearchPage:
    """Find the best passages of a vector store for a query."""
    cost = sum(question_cost(SEARCH, query) for query in body.queries)
    results = await caller.run_at_cost(cost, _search, caller, vector_store_id, body)
    hits = merge_hits(results, limit=body.limit, threshold=body.threshold)
    return SearchPage(
        search_query=body.queries, data=[SearchResultObject.from_record(hit, score) for hit, score in hits]
    )


def _search(caller: Caller, collection: str, body: SearchStoreRequest) -> list[tuple[Passage, ...]]:
    open_vector_stores(caller).require(collection)
    tenant, conditions = caller.tenant(collection), to_filter(body.filters)
    hybrid = body.ranking_options.hybrid_search if body.ranking_options else None
    dense, lexical = (hybrid.embedding_weight, hybrid.text_weight) if hybrid else (None, None)
    return [
        tenant.search(query, body.limit, conditions, semantic_weight=dense, keyword_weight=lexical).hits
        for query in body.queries
    ]


class EmbeddingRequest(RequestBody):
    """Texts to embed."""

    model: str = Field(description="The embedding model of the service.", examples=["all-mpnet-base-v2"])
    input: str | Annotated[list[str | list[int] | int], Field(min_length=1, max_length=_MAX_INPUTS)] = Field(
        description="A text or several; no tokens."
    )
    encoding_format: Literal["float", "base64"] | None = Field(default=None, description="`float` without it.")
    dimensions: int | None = Field(default=None, description="That of the model.")
    user: str | None = None


class EmbeddingObject(BaseModel):
    """The vector of a text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens of the texts, as the embedding model counts them."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """The vectors of texts, in their order."""

    object: Literal["list"] = "list"
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingUsage


@router.post("/embeddings", tags=["openai: models"])
async def embeddings(body: EmbeddingRequest, caller: Reader) -> EmbeddingList:
    """Embed texts with the embedding model of the service."""
    tenant = caller.tenant()
    if body.model != tenant.embedding_model:
        raise NotFound(f"the embedding model {body.model[:100]!r} is not served here; use {tenant.embedding_model}")
    if body.dimensions not in (None, tenant.dimensions):
        raise RequestError(f"dimensions: {tenant.embedding_model} has {tenant.dimensions}; leave dimensions out")
    inputs = [body.input] if isinstance(body.input, str) else body.input
    texts = [text for text in inputs if isinstance(text, str) and text]
    if len(texts) < len(inputs):
        raise RequestError("input: token numbers and empty texts cannot be embedded; send texts")
    cost = question_cost(SEARCH, "".join(texts)) + len(texts) // _TEXTS_OF_ONE_SLOT
    vectors, tokens = await caller.run_at_cost(cost, _embed, tenant, texts)
    return EmbeddingList(
        data=[
            EmbeddingObject(index=index, embedding=_encode(vector, body.encoding_format))
            for index, vector in enumerate(vectors)
        ],
        model=tenant.embedding_model,
        usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


def _embed(tenant: Tenant, texts: list[str]) -> tuple[Vectors, int]:
    texts = [storable(text) for text in texts]  # as those of documents; tokenizers take no lone surrogates
    return tenant.embed(texts), sum(map(tenant.count_tokens, texts))


def _encode(vector: Any, encoding: str | None) -> list[float] | str:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    values: list[float] = vector.tolist()
    return values


class ModelObject(BaseModel):
    """A model of the service."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["kosmos-rag"] = "kosmos-rag"


class ModelList(BaseModel):
    """The models of the service."""

    object: Literal["list"] = "list"
    data: list[ModelObject]


@router.get("/models", tags=["openai: models"])
async def models(caller: Reader) -> ModelList:
    """List the embedding model and, where one is configured, the language model."""
    tenant = caller.tenant()
    names = (tenant.embedding_model, tenant.language_model)
    return ModelList(data=[ModelObject(id=name) for name in names if name is not None])


@router.get("/models/{model:path}", tags=["openai: models"])
async def model(model: str, caller: Reader) -> ModelObject:
    """Return a model."""
    for entry in (await models(caller)).data:
        if entry.id == model:
            return entry
    raise NotFound(f"the model {model[:100]!r} is not served here")
