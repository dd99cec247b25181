"""Protocols of embedding servers.

Each is one class, which builds requests and reads responses.

Sources: the API references of OpenAI (`/embeddings`), vLLM (OpenAI-compatible server), Text
Embeddings Inference (`/embed`), Ollama (`/api/embed`), Cohere (`/v2/embed`), Jina and Voyage (`/v1/embeddings`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from kosmos_rag.core.config import EmbeddingSettings

Purpose = Literal["query", "passage"]
"""What a text is embedded as. Models with two encodings distinguish it."""


class EmbeddingProtocol(Protocol):
    """Builds requests and reads responses of one kind of server."""

    path: str
    """Path of the endpoint, after the base address."""
    example: str
    """Example of a base address."""

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:
        """Build the body of a request.

        Args:
            texts: the texts, prefixes included.
            settings: model, dimensions, normalisation.
        """
        ...

    def read_vectors(self, response: Any) -> list[Any]:
        """Return the vectors in the order of the texts.

        Raises LookupError, TypeError, ValueError or AttributeError if the response is malformed.
        """
        ...

    def read_tokens(self, response: Any) -> int | None:
        """Return how many tokens the server has counted; None where it reports none."""
        ...


class OpenAI:
    """`input` in, `data` with `index` out, in any order."""

    path = "/embeddings"
    example = "http://localhost:8000/v1"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:  # noqa: ARG002
        """Build the body of a request."""
        return {"model": settings.model, "input": list(texts), "encoding_format": "float"} | _build_dimension_field(
            "dimensions", settings
        )

    def read_vectors(self, response: Any) -> list[Any]:
        """Return the vectors by their `index`."""
        return _sort_by_index(response["data"])

    def read_tokens(self, response: Any) -> int | None:
        """Return the tokens of the usage."""
        return _find_count(response, "usage", "total_tokens")


class VLLM(OpenAI):
    """OpenAI's, with vLLM's option to truncate a text that is too long."""

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {**super().build_request(texts, purpose, settings), "truncate_prompt_tokens": -1}


class TextEmbeddingsInference:
    """`inputs` in, a list of vectors out.

    The server has one model, which no request names.
    """

    path = "/embed"
    example = "http://localhost:8080"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:  # noqa: ARG002
        """Build the body of a request."""
        body = {"inputs": list(texts), "normalize": settings.normalize, "truncate": True}
        return body | _build_dimension_field("dimensions", settings)

    def read_vectors(self, response: Any) -> list[Any]:
        """Return the vectors as they come."""
        return _list(response)

    def read_tokens(self, response: Any) -> int | None:  # noqa: ARG002
        """Return None: the response has vectors alone."""
        return None


class Ollama:
    """`input` in, `embeddings` out."""

    path = "/api/embed"
    example = "http://localhost:11434"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:  # noqa: ARG002
        """Build the body of a request."""
        body = {"model": settings.model, "input": list(texts), "truncate": True}
        return body | _build_dimension_field("dimensions", settings)

    def read_vectors(self, response: Any) -> list[Any]:
        """Return the vectors as they come."""
        return _list(response["embeddings"])

    def read_tokens(self, response: Any) -> int | None:
        """Return the tokens of the prompts."""
        return _find_count(response, "prompt_eval_count")


class Cohere:
    """`texts` and `input_type` in, `embeddings` by number type out."""

    path = "/embed"
    example = "https://api.cohere.com/v2"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {
            "model": settings.model,
            "texts": list(texts),
            "input_type": {"query": "search_query", "passage": "search_document"}[purpose],
            "embedding_types": ["float"],
            "truncate": "END",
        } | _build_dimension_field("output_dimension", settings)

    def read_vectors(self, response: Any) -> list[Any]:
        """Return the vectors as they come."""
        return _list(response["embeddings"]["float"])

    def read_tokens(self, response: Any) -> int | None:
        """Return the billed tokens."""
        return _find_count(response, "meta", "billed_units", "input_tokens")


class Jina(OpenAI):
    """OpenAI's, with the purpose as `task`."""

    example = "https://api.jina.ai/v1"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {
            "model": settings.model,
            "input": list(texts),
            "task": f"retrieval.{purpose}",
            "truncate": True,
            "embedding_type": "float",
        } | _build_dimension_field("dimensions", settings)


class Voyage(OpenAI):
    """OpenAI's, with the purpose as `input_type`."""

    example = "https://api.voyageai.com/v1"

    def build_request(self, texts: Sequence[str], purpose: Purpose, settings: EmbeddingSettings) -> dict[str, Any]:
        """Build the body of a request."""
        return {
            "model": settings.model,
            "input": list(texts),
            "input_type": {"query": "query", "passage": "document"}[purpose],
            "truncation": True,
        } | _build_dimension_field("output_dimension", settings)


PROTOCOLS: Mapping[str, EmbeddingProtocol] = {
    "openai": OpenAI(),
    "vllm": VLLM(),
    "tei": TextEmbeddingsInference(),
    "ollama": Ollama(),
    "cohere": Cohere(),
    "jina": Jina(),
    "voyage": Voyage(),
}


def _build_dimension_field(field: str, settings: EmbeddingSettings) -> dict[str, int]:
    """Return the field that requests shorter vectors.

    The result is empty unless they are requested: servers of other models refuse the field.
    """
    return {field: settings.dimensions} if settings.matryoshka == "server" else {}


def _sort_by_index(items: list[dict[str, Any]]) -> list[Any]:
    vectors = {item["index"]: item["embedding"] for item in items}
    if sorted(vectors) != list(range(len(items))):
        raise ValueError("the indexes are not those of the texts")
    return [vectors[index] for index in range(len(items))]


def _find_count(response: Any, *path: str) -> int | None:
    """Return the number at a path of a response; None without one."""
    for name in path:
        response = response.get(name) if isinstance(response, dict) else None
    return response if isinstance(response, int) and response >= 0 else None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError("a list is needed")
    return value
