"""Models by address, from end to end: without PyTorch, and with another model at the address."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import EmbeddingSettings, RerankingSettings
from kosmos_rag.core.errors import EmbeddingSpaceMismatch, ModelUnavailable
from kosmos_rag.models.http import retry
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed
from tests.unit.models.embedding.embedding_server import DIMENSIONS, KEY, embeds
from tests.unit.models.llm.chat_server import ChatServer, Handler, Reply, returns, running

LEAVE = SourceDocument(source="leave.md", data=b"# Leave\n\nEmployees have twenty days of annual leave a year.")
NOTICE = SourceDocument(source="notice.md", data=b"# Notice\n\nCustomers give ninety days of notice in writing.")
QUESTION = "How many days of leave do employees have?"

BLOCKED = ("torch", "sentence_transformers", "transformers", "huggingface_hub", "tokenizers", "onnxruntime", "optimum")
PROGRAM = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None  # an import of it fails
from kosmos_rag import Engine, Settings, SourceDocument
with Engine.open(Settings.load()) as engine:
    tenant = engine.tenant({tenant!r})
    report = tenant.ingest([SourceDocument(source="leave.md", data={leave!r})])
    found = tenant.search({question!r})
    hit, answer = found.hits[0], tenant.answer({question!r})
    print(report.new, hit.source, hit.rerank_score, found.warnings, answer.text)
"""


def serves(embeds: Reply) -> Reply:
    """Embed by one protocol, and rerank as Text Embeddings Inference does: the passage about leave is the best."""

    def reply(handler: Handler) -> None:
        if not handler.path.endswith("/rerank"):
            return embeds(handler)
        texts = handler.body["texts"]
        scores = [{"index": at, "score": 0.9 if "leave" in text else 0.4} for at, text in enumerate(texts)]
        return handler.send(200, json.dumps(scores).encode())

    return reply


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(retry, "_FIRST_DELAY_S", 0.001)
    with running() as opened:
        opened.replies = [serves(embeds("openai"))]
        yield opened


@pytest.fixture
def by_address(settings: Settings, model_server: ChatServer) -> Settings:
    """Settings with both models behind the server."""
    key = SecretStr(KEY)
    embedding = EmbeddingSettings(model="m", dimensions=DIMENSIONS, url=model_server.url(), api_key=key)
    reranking = RerankingSettings(model="r", url=model_server.url(""), protocol="tei", api_key=key, deadline_ms=10_000)
    return changed(settings, {"rag.embedding": embedding, "rag.reranking": reranking})


def test_ingest__stores_the_other_documents_where_the_server_refuses_a_text(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    embed = serves(embeds("openai"))

    def refuse(handler: Handler) -> None:
        if any("forbidden" in text for text in handler.body.get("input", ())):
            return handler.send(400, b'{"error": "the input is against the rules"}')
        return embed(handler)

    model_server.replies = [refuse]
    poison = SourceDocument(source="poison.md", data=b"# Rules\n\nA forbidden sentence of several words.")
    with Engine.open(by_address) as engine:
        tenant = engine.tenant(tenant_name)
        report = tenant.ingest([LEAVE, poison, NOTICE])
        assert tenant.sources() == ["leave.md", "notice.md"]
    assert report.new == 2
    (failure,) = report.failed
    assert (failure.source, failure.code) == ("poison.md", "text_refused")
    assert "against the rules" in failure.message


def test_engine__needs_no_torch_with_models_by_address(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    """Neither PyTorch nor a library of models can be imported."""
    database = by_address.database
    assert database.worker_url is not None
    environment = {
        **os.environ,
        "KOSMOS_DATABASE__URL": database.url,
        "KOSMOS_DATABASE__WORKER_URL": database.worker_url,
        "KOSMOS_RAG__EMBEDDING__MODEL": "m",
        "KOSMOS_RAG__EMBEDDING__DIMENSIONS": str(DIMENSIONS),
        "KOSMOS_RAG__EMBEDDING__URL": model_server.url(),
        "KOSMOS_RAG__EMBEDDING__API_KEY": KEY,
        "KOSMOS_RAG__RERANKING__URL": model_server.url(""),
        "KOSMOS_RAG__RERANKING__PROTOCOL": "tei",
        "KOSMOS_RAG__RERANKING__DEADLINE_MS": "20000",
        "KOSMOS_RAG__RERANKING__TIMEOUT_S": "20",
        "KOSMOS_RAG__ANSWER__THRESHOLD": "0.0",
    }
    program = PROGRAM.format(blocked=BLOCKED, tenant=tenant_name, leave=LEAVE.data, question=QUESTION)
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("1 leave.md 0.9 ()"), process.stdout
    assert "twenty days" in process.stdout
    assert KEY not in process.stdout + process.stderr


def test_model__that_has_changed_since_ingestion_is_a_mismatch(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    with Engine(by_address) as engine:
        assert engine.tenant(tenant_name).ingest([LEAVE, NOTICE]).new == 2
        assert engine.tenant(tenant_name).search(QUESTION).hits[0].source == "leave.md"

    class Other(HashingEmbedder):
        def embed_query(self, question: str) -> object:  # type: ignore[override]
            return super().embed_query(question[::-1])

    model_server.replies = [serves(embeds("openai", Other(dimensions=DIMENSIONS).embed))]
    with Engine(by_address) as engine, pytest.raises(EmbeddingSpaceMismatch, match="embed one sentence differently"):
        engine.tenant(tenant_name).search(QUESTION)


def test_model__moves_to_a_server_without_new_embeddings(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    """The vectors are the same on every host: the name is not compared."""
    local = changed(by_address, {"rag.embedding": EmbeddingSettings(dimensions=DIMENSIONS, model="h")})
    with Engine(local, embedder=HashingEmbedder(dimensions=DIMENSIONS)) as engine:
        engine.tenant(tenant_name).ingest([LEAVE, NOTICE])
    with Engine(by_address) as engine:
        result = engine.tenant(tenant_name).search(QUESTION)
        assert result.retrievers["dense"].returned == 2
        assert result.hits[0].source == "leave.md"


def test_ingestion__while_the_server_is_away_stores_nothing_else(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    """The semantic chunker embeds sentences: it must not cut otherwise because of a failure that passes."""
    text = b"# Leave\n\n" + b" ".join(b"Employees have %d days of leave in year %d." % (at, at) for at in range(40))
    document = SourceDocument(source="long.md", data=text)
    semantic = changed(by_address, {"rag.chunking.strategy": "semantic"})

    def is_away_for_sentences(handler: Handler) -> None:
        sentences = handler.body["input"][0].startswith("Employees have")
        (returns(503) if sentences else embeds("openai"))(handler)

    model_server.replies = [is_away_for_sentences]
    with Engine(semantic) as engine, pytest.raises(ModelUnavailable, match="is busy"):
        engine.tenant(tenant_name).ingest([document])
    model_server.replies = [serves(embeds("openai"))]
    with Engine(semantic) as engine:
        tenant = engine.tenant(tenant_name)
        assert tenant.ingest([document]).new == 1
        assert tenant.search("leave in year 7").hits


def test_search__without_the_reranking_server_says_so(
    by_address: Settings, model_server: ChatServer, tenant_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Warnings of a search name no model server and repeat none of its replies; the log has both, without the key."""
    with Engine(by_address) as engine:
        tenant = engine.tenant(tenant_name)
        tenant.ingest([LEAVE, NOTICE])
        model_server.replies = [
            lambda handler: (returns(500) if "rerank" in handler.path else embeds("openai"))(handler)
        ]
        result = tenant.search(QUESTION)
    assert result.hits[0].source == "leave.md"
    # Readers get the warnings: they do not learn where the server is, nor what it replied.
    (warning,) = result.warnings
    assert warning == "not reranked, in fused order: reranking server failed; the log of the process has the error"
    assert f"reranking server {model_server.url('')}" in caplog.text
    assert KEY not in caplog.text


def test_doctor__asks_the_servers(by_address: Settings, model_server: ChatServer, tenant_name: str) -> None:
    from kosmos_rag.engine.diagnosis import diagnose

    checks = {check.name: check for check in diagnose(by_address)}
    assert checks["embedding server"].detail == "m of 64 dimensions answers at its address"
    assert checks["reranking server"].ok
    assert "embedding model" not in checks
    assert checks["backend"].detail == "none: all models are behind servers"
    model_server.replies = [returns(401)]
    checks = {check.name: check for check in diagnose(by_address)}
    assert "correct rag.embedding.api_key" in checks["embedding server"].detail
    assert not checks["reranking server"].ok


def test_prefixes__are_stored_with_the_vectors(
    by_address: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    prefixed = changed(
        by_address, {"rag.embedding.query_prefix": "query: ", "rag.embedding.passage_prefix": "passage: "}
    )
    for _ in range(2):
        with Engine(prefixed) as engine:
            assert engine.tenant(tenant_name).ingest([LEAVE]).failed == ()
            assert engine.tenant(tenant_name).search(QUESTION).hits
    with Engine(by_address) as engine, pytest.raises(EmbeddingSpaceMismatch, match="query_prefix = 'query: '"):
        engine.tenant(tenant_name).search(QUESTION)
