"""Spans as the SDK of OpenTelemetry exports them, by the conventions for generative AI and by OpenInference."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import pytest
from openinference.semconv.trace import (
    DocumentAttributes,
    EmbeddingAttributes,
    MessageAttributes,
    OpenInferenceSpanKindValues,
    RerankerAttributes,
    SpanAttributes,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.trace import SpanKind, StatusCode

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import LanguageModelSettings
from kosmos_rag.core.errors import ModelUnavailable
from kosmos_rag.core.protocols import Message, Reranker
from kosmos_rag.core.telemetry import genai, tracing
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.llm.client import ChatModel
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed
from tests.unit.models.llm.chat_server import ChatServer, Handler, running, writes, writes_and_then
from tests.waiting import eventually

QUESTION = "What is churn in the yearly report?"
SECRET = "the share of customers who leave"
DOCUMENTS = [
    SourceDocument(source=f"page-{number}.md", data=f"# Page {number}\n\nChurn is {SECRET}, part {number}.".encode())
    for number in range(25)
]


class Lengths(Reranker):
    """A model that prefers what ends in a small number."""

    name = "lengths"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [1 / (1 + len(passage)) for passage in passages]


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The SDK with its default limits, where each span is exported as it ends."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "_TRACER", provider.get_tracer("kosmos_rag"))
    monkeypatch.delenv(genai.CAPTURE_VARIABLE, raising=False)
    return exporter


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    changes = {
        "rag.reranking.enabled": True,
        "rag.reranking.deadline_ms": 30_000,
        "rag.reranking.threshold": 0.0,
        "rag.retrieval.result_cache": 10,
    }
    with Engine(changed(settings, changes), embedder=HashingEmbedder(), reranker=Lengths()) as opened:
        yield opened


def _find_span(exporter: InMemorySpanExporter, name: str) -> tuple[ReadableSpan, dict[str, Any]]:
    (span,) = (span for span in exporter.get_finished_spans() if span.name == name)
    return span, dict(span.attributes or {})


def _documents(attributes: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return the objects of a flattened list."""
    outcome: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            index, _, member = name.removeprefix(f"{prefix}.").partition(".")
            outcome.setdefault(int(index), {})[member] = value
    return [outcome[index] for index in sorted(outcome)]


def test_retrieval__is_exported_with_its_hits_and_without_texts(
    engine: Engine, tenant_name: str, exporter: InMemorySpanExporter
) -> None:
    scope = engine.tenant(tenant_name, collection="handbook")
    scope.ingest(DOCUMENTS)
    exporter.clear()
    result = scope.search(QUESTION, k=25)
    span, attributes = _find_span(exporter, "retrieval handbook")
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is StatusCode.UNSET
    assert attributes[gen_ai.GEN_AI_OPERATION_NAME] == "retrieval"
    assert attributes[gen_ai.GEN_AI_DATA_SOURCE_ID] == "handbook"
    assert attributes[gen_ai.GEN_AI_REQUEST_MODEL] == HashingEmbedder().name
    assert attributes["gen_ai.retrieval.top_k"] == 25
    assert attributes[SpanAttributes.OPENINFERENCE_SPAN_KIND] == OpenInferenceSpanKindValues.RETRIEVER.value
    documents = _documents(attributes, SpanAttributes.RETRIEVAL_DOCUMENTS)
    assert documents == [
        {DocumentAttributes.DOCUMENT_ID: str(hit.chunk_id), DocumentAttributes.DOCUMENT_SCORE: hit.score}
        for hit in result.hits[:20]
    ]
    rerank, attributes = _find_span(exporter, "rerank lengths")
    assert rerank.parent is not None
    assert rerank.parent.span_id == span.context.span_id
    assert attributes[gen_ai.GEN_AI_OPERATION_NAME] == "rerank"
    assert attributes[SpanAttributes.OPENINFERENCE_SPAN_KIND] == OpenInferenceSpanKindValues.RERANKER.value
    assert attributes[RerankerAttributes.RERANKER_MODEL_NAME] == "lengths"
    inputs = _documents(attributes, RerankerAttributes.RERANKER_INPUT_DOCUMENTS)
    outputs = _documents(attributes, RerankerAttributes.RERANKER_OUTPUT_DOCUMENTS)
    assert outputs == documents
    assert len(inputs) == 20
    assert all(document.keys() == {DocumentAttributes.DOCUMENT_ID} for document in inputs)
    exported = "".join(span.to_json() for span in exporter.get_finished_spans())
    for text in (SECRET, QUESTION, "page-1", "Page 1"):
        assert text not in exported

    exporter.clear()
    assert scope.search(QUESTION, k=25).cached
    _, attributes = _find_span(exporter, "retrieval handbook")
    assert _documents(attributes, SpanAttributes.RETRIEVAL_DOCUMENTS) == documents


@pytest.mark.parametrize("value", ["true", "SPAN_ONLY", "span_and_event"])
def test_texts__are_exported_where_the_environment_asks(
    engine: Engine, tenant_name: str, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv(genai.CAPTURE_VARIABLE, value)
    scope = engine.tenant(tenant_name)
    scope.ingest(DOCUMENTS)
    exporter.clear()
    scope.ingest(SourceDocument(source="one.md", data=b"# One\n\nAnother text.", metadata={"year": 2026}))
    result = scope.search(QUESTION, k=25)
    span, attributes = _find_span(exporter, "retrieval")
    assert span.dropped_attributes == 0
    assert attributes[gen_ai.GEN_AI_RETRIEVAL_QUERY_TEXT] == QUESTION
    assert attributes[SpanAttributes.INPUT_VALUE] == QUESTION
    retrieved = json.loads(attributes[gen_ai.GEN_AI_RETRIEVAL_DOCUMENTS])
    assert [document["id"] for document in retrieved] == [str(hit.chunk_id) for hit in result.hits[:20]]
    for document, hit in zip(_documents(attributes, SpanAttributes.RETRIEVAL_DOCUMENTS), result.hits[:20], strict=True):
        assert document[DocumentAttributes.DOCUMENT_CONTENT] == hit.text
        metadata = json.loads(document[DocumentAttributes.DOCUMENT_METADATA])
        assert (metadata["source"], metadata["document_id"]) == (hit.source, str(hit.document_id))
    span, attributes = _find_span(exporter, "rerank lengths")
    assert span.dropped_attributes == 0
    assert attributes[RerankerAttributes.RERANKER_QUERY] == QUESTION
    inputs = _documents(attributes, RerankerAttributes.RERANKER_INPUT_DOCUMENTS)
    assert all(SECRET in document[DocumentAttributes.DOCUMENT_CONTENT] for document in inputs)


@pytest.mark.parametrize("value", ["", "false", "NO_CONTENT", "event_only"])
def test_texts__are_not_exported_where_the_environment_asks_for_none(
    engine: Engine, tenant_name: str, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """Spans have no texts of documents or questions unless the environment asks for them."""
    monkeypatch.setenv(genai.CAPTURE_VARIABLE, value)
    scope = engine.tenant(tenant_name)
    scope.ingest(DOCUMENTS[:2])
    scope.answer(QUESTION)
    exported = "".join(span.to_json() for span in exporter.get_finished_spans())
    assert '"retrieval"' in exported
    assert SECRET not in exported
    assert QUESTION not in exported
    for name in ("kosmos.context", "kosmos.answer"):
        _, attributes = _find_span(exporter, name)
        assert attributes == {SpanAttributes.OPENINFERENCE_SPAN_KIND: OpenInferenceSpanKindValues.CHAIN.value}


@pytest.mark.model
def test_embeddings__are_exported_with_model_and_dimensions(
    minilm: SentenceTransformerEmbedder, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    minilm.embed([SECRET])
    _, attributes = _find_span(exporter, f"embeddings {minilm.name}")
    assert attributes == {
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.EMBEDDINGS.value,
        gen_ai.GEN_AI_PROVIDER_NAME: "sentence_transformers",
        gen_ai.GEN_AI_REQUEST_MODEL: minilm.name,
        gen_ai.GEN_AI_EMBEDDINGS_DIMENSION_COUNT: 384,
        SpanAttributes.OPENINFERENCE_SPAN_KIND: OpenInferenceSpanKindValues.EMBEDDING.value,
        SpanAttributes.EMBEDDING_MODEL_NAME: minilm.name,
    }
    exporter.clear()
    monkeypatch.setenv(genai.CAPTURE_VARIABLE, "true")
    minilm.embed([SECRET] * 30)
    _, attributes = _find_span(exporter, f"embeddings {minilm.name}")
    texts = _documents(attributes, SpanAttributes.EMBEDDING_EMBEDDINGS)
    assert texts == [{EmbeddingAttributes.EMBEDDING_TEXT: SECRET}] * 20


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


def _count(handler: Handler) -> None:
    """End an answer with the counts of its tokens."""
    if handler.path.endswith("/api/chat"):
        end = {"message": {"content": ""}, "done": True, "done_reason": "stop"}
        handler.line(end | {"prompt_eval_count": 11, "eval_count": 7})
    else:
        usage = {"prompt_tokens": 11, "completion_tokens": 7}
        handler.line({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})


def _write(server: ChatServer, protocol: str) -> None:
    settings = LanguageModelSettings.model_validate(
        {"protocol": protocol, "url": server.url("/v1" if protocol == "openai" else ""), "model": "small"}
    )
    model = ChatModel(settings)
    messages = [Message(role="system", text="Be brief."), Message(role="user", text=QUESTION)]
    try:
        assert "".join(model.stream(messages, max_tokens=9)) == SECRET
    finally:
        model.close()


@pytest.mark.parametrize("protocol", ["openai", "ollama"])
def test_chat__is_exported_with_its_parameters_and_texts_on_request(
    chat: ChatServer, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    chat.replies = [writes(SECRET)]
    _write(chat, protocol)
    eventually(lambda: bool(exporter.get_finished_spans()))
    span, attributes = _find_span(exporter, "chat small")
    assert span.kind is SpanKind.CLIENT
    assert attributes == {
        gen_ai.GEN_AI_OPERATION_NAME: gen_ai.GenAiOperationNameValues.CHAT.value,
        gen_ai.GEN_AI_PROVIDER_NAME: protocol,
        gen_ai.GEN_AI_REQUEST_MODEL: "small",
        gen_ai.GEN_AI_REQUEST_MAX_TOKENS: 9,
        gen_ai.GEN_AI_REQUEST_TEMPERATURE: 0.0,
        gen_ai.GEN_AI_REQUEST_STREAM: True,
        gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: ("stop",),
        server_attributes.SERVER_ADDRESS: "127.0.0.1",
        server_attributes.SERVER_PORT: int(chat.url("").rpartition(":")[2]),
        SpanAttributes.OPENINFERENCE_SPAN_KIND: OpenInferenceSpanKindValues.LLM.value,
        SpanAttributes.LLM_MODEL_NAME: "small",
        SpanAttributes.LLM_PROVIDER: protocol,
        SpanAttributes.LLM_INVOCATION_PARAMETERS: '{"temperature": 0.0, "max_tokens": 9}',
    }
    exporter.clear()
    monkeypatch.setenv(genai.CAPTURE_VARIABLE, "true")
    chat.replies = [writes_and_then(_count, SECRET)]
    _write(chat, protocol)
    eventually(lambda: bool(exporter.get_finished_spans()))
    _, attributes = _find_span(exporter, "chat small")
    assert attributes[gen_ai.GEN_AI_USAGE_INPUT_TOKENS] == attributes[SpanAttributes.LLM_TOKEN_COUNT_PROMPT] == 11
    assert attributes[gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS] == attributes[SpanAttributes.LLM_TOKEN_COUNT_COMPLETION] == 7
    role, content = MessageAttributes.MESSAGE_ROLE, MessageAttributes.MESSAGE_CONTENT
    assert _documents(attributes, SpanAttributes.LLM_INPUT_MESSAGES) == [
        {role: "system", content: "Be brief."},
        {role: "user", content: QUESTION},
    ]
    assert _documents(attributes, SpanAttributes.LLM_OUTPUT_MESSAGES) == [{role: "assistant", content: SECRET}]
    assert json.loads(attributes[gen_ai.GEN_AI_OUTPUT_MESSAGES]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": SECRET}], "finish_reason": "stop"}
    ]
    assert json.loads(attributes[gen_ai.GEN_AI_INPUT_MESSAGES])[1]["parts"] == [{"type": "text", "content": QUESTION}]


def test_error__is_exported_by_its_type_and_not_its_message(
    engine: Engine, tenant_name: str, exporter: InMemorySpanExporter
) -> None:
    class Breaks(HashingEmbedder):
        def embed_query(self, question: str) -> NoReturn:
            raise ModelUnavailable(f"cannot embed {SECRET}")

    with Engine(engine.settings, embedder=Breaks()) as broken, pytest.raises(ModelUnavailable):
        broken.tenant(tenant_name).search(QUESTION)
    span, attributes = _find_span(exporter, "retrieval")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes[error_attributes.ERROR_TYPE] == "ModelUnavailable"
    assert SECRET not in span.to_json()
