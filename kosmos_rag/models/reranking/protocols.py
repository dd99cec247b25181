"""Protocols of reranking servers.

Each is one class, which builds requests and reads responses.

Sources: the API references of Jina (`/v1/rerank`, which llama.cpp, LiteLLM and others follow),
vLLM (`/v1/rerank`), Text Embeddings Inference (`/rerank`), Cohere (`/v2/rerank`) and Voyage (`/v1/rerank`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kosmos_rag.core.config import RerankingSettings


class RerankingProtocol(Protocol):
    """Builds requests and reads responses of one kind of server."""

    path: str
    """Path of the endpoint, after the base address."""
    example: str
    """Example of a base address."""

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request.

        Args:
            passages: the passages; the scores of all of them are requested.
            settings: model, and whether raw scores are wanted.
        """
        ...

    def read_scores(self, response: Any) -> list[tuple[int, float]]:
        """Return pairs of a passage's number, from 0, and its score.

        Raises LookupError, TypeError, ValueError or AttributeError if the response is malformed.
        """
        ...


class Jina:
    """`documents` in, `results` with `relevance_score` out."""

    path = "/rerank"
    example = "https://api.jina.ai/v1"

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {
            "model": settings.model,
            "query": question,
            "documents": list(passages),
            "top_n": len(passages),
            "return_documents": False,
        }

    def read_scores(self, response: Any) -> list[tuple[int, float]]:
        """Return number and score of each result."""
        return _pairs(response["results"], "relevance_score")


class VLLM(Jina):
    """Jina's, with vLLM's option to truncate a passage that is too long."""

    example = "http://localhost:8000/v1"

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        body = super().build_request(question, passages, settings)
        del body["return_documents"]  # vLLM has no such field
        return {**body, "truncate_prompt_tokens": -1}


class Cohere(Jina):
    """Jina's without `return_documents`, which version 2 no longer has."""

    example = "https://api.cohere.com/v2"

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        body = super().build_request(question, passages, settings)
        del body["return_documents"]
        return {**body, "max_tokens_per_doc": settings.max_tokens}


class Voyage:
    """`documents` and `top_k` in, `data` with `relevance_score` out."""

    path = "/rerank"
    example = "https://api.voyageai.com/v1"

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {
            "model": settings.model,
            "query": question,
            "documents": list(passages),
            "top_k": len(passages),
            "return_documents": False,
            "truncation": True,
        }

    def read_scores(self, response: Any) -> list[tuple[int, float]]:
        """Return number and score of each result."""
        return _pairs(response["data"], "relevance_score")


class TextEmbeddingsInference:
    """`texts` in, a list of `index` and `score` out.

    The server has one model, which no request names.
    """

    path = "/rerank"
    example = "http://localhost:8080"

    def build_request(self, question: str, passages: Sequence[str], settings: RerankingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {"query": question, "texts": list(passages), "raw_scores": settings.raw_scores, "truncate": True}

    def read_scores(self, response: Any) -> list[tuple[int, float]]:
        """Return number and score of each result."""
        return _pairs(response, "score")


PROTOCOLS: Mapping[str, RerankingProtocol] = {
    "jina": Jina(),
    "vllm": VLLM(),
    "tei": TextEmbeddingsInference(),
    "cohere": Cohere(),
    "voyage": Voyage(),
}


def _pairs(items: list[dict[str, Any]], field: str) -> list[tuple[int, float]]:
    return [(item["index"], float(item[field])) for item in items]
