"""Attributes of spans for retrieval, embeddings, reranking and chat.

They follow two conventions at once: the OpenTelemetry semantic conventions for generative AI (0.1,
https://github.com/open-telemetry/semantic-conventions-genai) and OpenInference (https://github.com/Arize-ai/openinference).
Ids, scores, names of models and counts are always recorded. Texts are recorded only where the variable
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT asks for them, as with other instrumentations of the process.
A span that nothing records gets only attributes that cost nothing.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span

from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import Passage, SearchResult

Attributes = dict[str, str | int | float | bool | Sequence[str]]

CAPTURE_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURING = frozenset({"true", "span_only", "span_and_event"})

SPAN_KIND = "openinference.span.kind"
RETRIEVER, EMBEDDING, RERANKER, LLM = "RETRIEVER", "EMBEDDING", "RERANKER", "LLM"
RETRIEVAL_SPAN: tracing.Attributes = {"gen_ai.operation.name": "retrieval", SPAN_KIND: RETRIEVER}
CHAIN_SPAN: tracing.Attributes = {SPAN_KIND: "CHAIN"}
"""Attributes of a span that joins others: a context, an answer."""

_MAX_ITEMS = 20
"""Documents or texts of a span. An SDK keeps 128 attributes of a span by default, and drops the first ones."""


def captures_texts() -> bool:
    """Whether the environment asks for texts in spans."""
    return os.environ.get(CAPTURE_VARIABLE, "").strip().lower() in _CAPTURING


def record_retrieval(span: Span, collection: str | None, model: str, result: SearchResult) -> None:
    """Complete the span of a retrieval by its result.

    Args:
        collection: the data source; None for all collections.
        result: the hits and the question.
    """
    attributes: Attributes = {
        "gen_ai.request.model": model,
        "gen_ai.retrieval.top_k": result.requested,
        **_documents("retrieval.documents", result.hits),
    }
    if collection is not None:
        span.update_name(f"retrieval {collection}")
        attributes["gen_ai.data_source.id"] = collection
    if captures_texts():
        documents = [{"id": str(hit.chunk_id), "score": hit.score} for hit in result.hits[:_MAX_ITEMS]]
        attributes |= _input(result.question)
        attributes["gen_ai.retrieval.query.text"] = result.question
        attributes["gen_ai.retrieval.documents"] = json.dumps(documents)
    span.set_attributes(attributes)


@contextmanager
def start_embeddings(model: str, dimensions: int, provider: str, texts: Sequence[str]) -> Iterator[Span]:
    """Make a span of a call of an embedding model.

    Args:
        dimensions: length of each vector.
        provider: who computes the vectors, `gen_ai.provider.name`.
    """
    attributes: Attributes = {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.embeddings.dimension.count": dimensions,
        SPAN_KIND: EMBEDDING,
        "embedding.model_name": model,
    }
    with tracing.start_span(f"embeddings {model}", attributes) as span:
        if span.is_recording() and captures_texts():
            span.set_attributes(
                {f"embedding.embeddings.{i}.embedding.text": text for i, text in enumerate(texts[:_MAX_ITEMS])}
            )
        yield span


@contextmanager
def start_rerank(model: str, question: str, passages: Sequence[Passage]) -> Iterator[Span]:
    """Make a span of a reranking; `rerank_attributes` of the result complete it.

    The conventions for generative AI know no such operation yet. Its name follows their pattern.

    Args:
        question: what the passages are scored for.
        passages: in the order of the fusion.
    """
    attributes: Attributes = {
        "gen_ai.operation.name": "rerank",
        "gen_ai.request.model": model,
        SPAN_KIND: RERANKER,
        "reranker.model_name": model,
    }
    with tracing.start_span(f"rerank {model}", attributes) as span:
        if span.is_recording():
            span.set_attributes(_documents("reranker.input_documents", passages, scored=False))
            if captures_texts():
                span.set_attributes({**_input(question), "reranker.query": question})
        yield span


def rerank_attributes(passages: Sequence[Passage]) -> Attributes:
    """Return the attributes of reranked passages, best first."""
    return _documents("reranker.output_documents", passages, texts=False)


def chat_attributes(model: str, provider: str, address: str, port: int, max_tokens: int) -> Attributes:
    """Return the attributes of a request to a language model.

    Args:
        provider: `gen_ai.provider.name`.
        address: host of the server.
    """
    parameters = {"temperature": 0.0, "max_tokens": max_tokens}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": max_tokens,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.stream": True,
        "server.address": address,
        "server.port": port,
        SPAN_KIND: LLM,
        "llm.model_name": model,
        "llm.provider": provider,
        "llm.invocation_parameters": json.dumps(parameters),
    }


def chat_usage(input_tokens: int | None, output_tokens: int | None) -> Attributes:
    """Return the token counts that a server reported.

    The result is None where it reported none.
    """
    counts = {
        "gen_ai.usage.input_tokens": input_tokens,
        "llm.token_count.prompt": input_tokens,
        "gen_ai.usage.output_tokens": output_tokens,
        "llm.token_count.completion": output_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def input_messages(messages: Iterable[tuple[str, str]]) -> Attributes:
    """Return the texts of a conversation: role and text of each message."""
    pairs = list(messages)
    objects = [_message(role, text) for role, text in pairs]
    return {"gen_ai.input.messages": json.dumps(objects, ensure_ascii=False)} | _messages("llm.input_messages", pairs)


def output_message(text: str, finish_reason: str) -> Attributes:
    """Return the text that a language model wrote."""
    message = _message("assistant", text) | {"finish_reason": finish_reason}
    return {
        "gen_ai.output.messages": json.dumps([message], ensure_ascii=False),
        **_messages("llm.output_messages", [("assistant", text)]),
    }


def _documents(prefix: str, hits: Sequence[Passage], *, scored: bool = True, texts: bool = True) -> Attributes:
    attributes: Attributes = {}
    captures = texts and captures_texts()
    for index, hit in enumerate(hits[:_MAX_ITEMS]):
        name = f"{prefix}.{index}.document"
        attributes[f"{name}.id"] = str(hit.chunk_id)
        if scored:
            attributes[f"{name}.score"] = hit.score
        if captures:
            attributes[f"{name}.content"] = hit.text
            attributes[f"{name}.metadata"] = json.dumps(_metadata(hit), ensure_ascii=False, default=str)
    return attributes


def _metadata(hit: Passage) -> Mapping[str, Any]:
    return {
        **hit.metadata,
        "document_id": str(hit.document_id),
        "version": hit.version,
        "collection": hit.collection,
        "source": hit.source,
        "title": hit.title,
        "location": hit.location,
    }


def _input(text: str) -> Attributes:
    return {"input.value": text, "input.mime_type": "text/plain"}


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _messages(prefix: str, messages: Sequence[tuple[str, str]]) -> Attributes:
    attributes: Attributes = {}
    for index, (role, text) in enumerate(messages[-_MAX_ITEMS:]):
        attributes[f"{prefix}.{index}.message.role"] = role
        attributes[f"{prefix}.{index}.message.content"] = text
    return attributes
