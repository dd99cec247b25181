"""What is metered against the bill of servers that count, and what the rest of the work is charged."""

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import EmbeddingSettings
from kosmos_rag.core.errors import ModelError, RequestError
from kosmos_rag.core.telemetry.usage import Quantity
from kosmos_rag.core.types import Turn
from kosmos_rag.metering.records import UsageReport
from kosmos_rag.metering.settings import ModelPrice
from kosmos_rag.metering.store import UsageStore
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed, opened
from tests.unit.models.llm.chat_server import ChatServer, Handler, Reply, hangs, hangs_up, running, writes_and_then

pytestmark = pytest.mark.emptied_database

DOCUMENTS = [
    SourceDocument(source="leave.md", data=b"Employees have twenty days of annual leave a year."),
    SourceDocument(source="notice.md", data=b"Customers give ninety days of notice in writing."),
]
PRICES = {"llama3.2": ModelPrice(input=2.0, output=8.0), "m": ModelPrice(input=0.1)}


class Biller:
    """A chat and embedding server that writes a bill, in tokens of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bill: Counter[str] = Counter()

    def __call__(self, handler: Handler) -> None:
        if handler.path.endswith("/embeddings"):
            return self._embed(handler)
        read = sum(len(message["content"]) // 3 for message in handler.body["messages"])
        words = [f"word{number} " for number in range(read % 17 + 1)]
        with self.lock:
            self.bill["requests"] += 1
            self.bill["input_tokens"] += read
            self.bill["output_tokens"] += len(words) + 2
        handler.begin()
        for word in words:
            handler.piece(word)
        handler.line({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None})
        if handler.body.get("stream_options", {}).get("include_usage"):
            usage = {"prompt_tokens": read, "completion_tokens": len(words) + 2}
            handler.line({"choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")
        return None

    def _embed(self, handler: Handler) -> None:
        texts = handler.body["input"]
        tokens = sum(len(text) // 4 + 1 for text in texts)
        with self.lock:
            self.bill["embedded_tokens"] += tokens
        vectors = HashingEmbedder().embed(texts).tolist()
        data = [{"index": number, "embedding": vector} for number, vector in enumerate(vectors)]
        body = json.dumps({"data": data, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
        handler.send(200, body.encode())


@pytest.fixture
def chat_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


def _open(
    settings: Settings, chat_server: ChatServer, models: Mapping[str, Any] = MappingProxyType({}), **changes: Any
) -> AbstractContextManager[Engine]:
    usual = {
        "language_model.url": chat_server.url(), "rag.answer.mode": "generative", "rag.answer.threshold": 0.0,
        "rag.chunking.min_size": 1, "metering.prices": PRICES,
    }  # fmt: skip
    return opened(settings, usual | changes, **models)


def _read(settings: Settings, tenant: str, *by: str) -> UsageReport:
    with opened(settings, {}) as engine:
        return UsageStore(engine.tenant(tenant)).read(by=by)


def test_sum__equals_the_bill_of_the_model_servers(settings: Settings, chat_server: ChatServer) -> None:
    biller = Biller()
    chat_server.replies = [biller]
    embedding = EmbeddingSettings(model="m", dimensions=64, url=chat_server.url())
    changes = {"rag.answer.history_turns": 2, "rag.expansion.queries": 1, "metering.flush_s": 0.05}
    configured = changed(settings, {"rag.embedding": embedding})
    with _open(configured, chat_server, {"embedder": None}, **changes) as engine:
        tenants = [engine.tenant(name, subject=subject) for name in ("acme", "beta") for subject in ("ada", "key:b")]
        for tenant in tenants[::2]:
            tenant.ingest(DOCUMENTS)

        def ask(number: int) -> None:
            tenant, question = tenants[number % 4], f"How many days of leave or notice, case {number}?"
            if number % 3 == 0:
                tenant.answer(question, history=[Turn(question="What is leave?", answer="Days without work.")])
            elif number % 3 == 1:
                for _ in tenant.stream_answer(question):
                    pass
            else:
                tenant.search(question, effort="high")
                tenant.complete(f"Prompt {number}", max_tokens=20)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(ask, range(24)))
    reports = [_read(settings, name) for name in ("acme", "beta")]
    metered = {name: sum(report.total(name) for report in reports) for name in Quantity}
    assert biller.bill["requests"] > 24
    for quantity in (Quantity.INPUT_TOKENS, Quantity.OUTPUT_TOKENS, Quantity.EMBEDDED_TOKENS):
        assert metered[quantity] == biller.bill[quantity] > 0, quantity
    bill = biller.bill["input_tokens"] * 2e-6 + biller.bill["output_tokens"] * 8e-6
    bill += biller.bill["embedded_tokens"] * 1e-7
    assert sum(report.cost for report in reports) == pytest.approx(bill, rel=1e-9)
    assert (metered[Quantity.QUESTIONS], metered[Quantity.ANSWERS]) == (24, 16)


def test_tokens__are_estimated_where_the_server_reports_none(settings: Settings, chat_server: ChatServer) -> None:
    with _open(settings, chat_server) as engine:
        engine.tenant("acme").ingest(DOCUMENTS)
        engine.tenant("acme").complete("How many days of leave are there?", max_tokens=20)
    report = _read(settings, "acme", "model")
    amounts = {(row.quantity, row.model): row.amount for row in report.amounts if row.model == "llama3.2"}
    assert amounts == {("input_tokens", "llama3.2"): 10, ("output_tokens", "llama3.2"): 1}


def test_cancelled_answer__is_charged_for_what_the_server_has_begun(
    settings: Settings, chat_server: ChatServer
) -> None:
    chat_server.replies = [writes_and_then(hangs, "twenty days ")]
    with _open(settings, chat_server) as engine:
        engine.tenant("acme").ingest(DOCUMENTS)
        stream = engine.tenant("acme", subject="ada").stream_answer("How many days of leave?")
        for _, _event in zip(range(2), stream, strict=False):
            pass
        stream.close()
    report = _read(settings, "acme", "subject")
    amounts = {row.quantity: row.amount for row in report.amounts if row.subject == "ada"}
    assert amounts["input_tokens"] > 10
    assert amounts["output_tokens"] == 3
    assert (amounts["questions"], amounts["answers"]) == (1, 1)


@pytest.mark.parametrize("reply", [hangs, hangs_up])
def test_stream__without_text_of_the_model_is_charged_no_question(
    settings: Settings, chat_server: ChatServer, reply: Reply
) -> None:
    chat_server.replies = [reply]
    with _open(settings, chat_server) as engine:
        engine.tenant("acme").ingest(DOCUMENTS)
        stream = engine.tenant("acme").stream_answer("How many days of leave?")
        next(stream)
        if reply is hangs_up:
            with pytest.raises(ModelError):
                next(stream)
        stream.close()
    report = _read(settings, "acme")
    assert (report.total("questions"), report.total("answers")) == (0, 0)


def test_questions__of_a_search_that_fails_are_charged_nothing(settings: Settings, chat_server: ChatServer) -> None:
    with _open(settings, chat_server) as engine:
        engine.tenant("acme").ingest(DOCUMENTS)
        with pytest.raises(RequestError):
            engine.tenant("acme").search(["Who gives notice?", "Who has leave?", ""])
    assert _read(settings, "acme").total("questions") == 0


def test_refused_connection__is_charged_nothing(settings: Settings, chat_server: ChatServer) -> None:
    unreachable: dict[str, Any] = {"language_model.url": "http://127.0.0.1:9/v1"}
    with _open(settings, chat_server, {}, **unreachable) as engine:
        tenant = engine.tenant("acme")
        tenant.ingest(DOCUMENTS)
        with pytest.raises(Exception, match="language model server"):
            tenant.complete("A prompt", max_tokens=20)
    assert _read(settings, "acme").total("input_tokens") == 0
