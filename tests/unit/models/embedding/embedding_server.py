"""Embedding servers as the protocols' documentation describes them: a request with a field that it lacks is refused."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kosmos_rag.core.protocols import Vectors
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.models.llm.chat_server import Handler, Reply

KEY = "sk-secret-0123456789"
DIMENSIONS = 64
HASHING = HashingEmbedder(dimensions=DIMENSIONS)
Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """A protocol as its server sees it."""

    base: str
    """Path of the base address."""
    path: str
    texts: str
    """Field of the texts."""
    fields: frozenset[str]
    dimensions: str | None
    answer: Callable[[list[list[float]]], object]
    names_model: bool = True


def _openai(vectors: list[list[float]]) -> object:
    """The last vector first: clients have to sort by `index`."""
    data = [{"object": "embedding", "index": number, "embedding": vector} for number, vector in enumerate(vectors)]
    return {"object": "list", "data": data[::-1], "model": "m", "usage": {"prompt_tokens": 1, "total_tokens": 1}}


def _dialect(path: str, texts: str, fields: str, answer: Callable[..., object], **options: Any) -> Dialect:
    base, _, endpoint = path.rpartition("#")
    return Dialect(
        base=base, path=base + endpoint, texts=texts, fields=frozenset(fields.split()), answer=answer, **options
    )


DIALECTS = {
    "openai": _dialect(
        "/v1#/embeddings", "input", "model input encoding_format dimensions user", _openai, dimensions="dimensions"
    ),
    "vllm": _dialect(
        "/v1#/embeddings",
        "input",
        "model input encoding_format dimensions user truncate_prompt_tokens",
        _openai,
        dimensions="dimensions",
    ),
    "tei": _dialect(
        "#/embed",
        "inputs",
        "inputs normalize truncate truncation_direction prompt_name dimensions",
        list,
        dimensions="dimensions",
        names_model=False,
    ),
    "ollama": _dialect(
        "#/api/embed",
        "input",
        "model input truncate options keep_alive dimensions",
        lambda vectors: {"model": "m", "embeddings": vectors, "total_duration": 1},
        dimensions="dimensions",
    ),
    "cohere": _dialect(
        "/v2#/embed",
        "texts",
        "model texts input_type embedding_types truncate output_dimension max_tokens",
        lambda vectors: {"id": "1", "embeddings": {"float": vectors}, "texts": [], "meta": {}},
        dimensions="output_dimension",
    ),
    "jina": _dialect(
        "/v1#/embeddings",
        "input",
        "model input task dimensions truncate normalized embedding_type late_chunking",
        _openai,
        dimensions="dimensions",
    ),
    "voyage": _dialect(
        "/v1#/embeddings",
        "input",
        "model input input_type truncation output_dimension output_dtype encoding_format",
        _openai,
        dimensions="output_dimension",
    ),
}


def embeds(protocol: str, embed: Embed = HASHING.embed) -> Reply:
    """Answer as the server of a protocol that has the key `KEY`."""
    dialect = DIALECTS[protocol]

    def reply(handler: Handler) -> None:
        body = handler.body
        if handler.headers["Authorization"] != f"Bearer {KEY}":
            return handler.send(401, b'{"error": {"message": "Incorrect API key provided"}}')
        if handler.path != dialect.path:
            return handler.send(404, b"not found")
        wrong = body.keys() - dialect.fields or ({"model"} if dialect.names_model else set()) - body.keys()
        if wrong or "" in body[dialect.texts]:
            return handler.send(422, json.dumps({"error": f"fields {sorted(wrong)}, or an empty text"}).encode())
        vectors = embed(body[dialect.texts])
        if dialect.dimensions in body:
            vectors = vectors[:, : body[dialect.dimensions]]
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return handler.send(200, json.dumps(dialect.answer(vectors.tolist())).encode())

    return reply
