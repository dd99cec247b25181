"""Questions with high effort: what a language model plans is searched for, within bounds."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.errors import RequestError
from tests.integration.variants import opened
from tests.unit.models.llm.chat_server import ChatServer, Reply, plays, running, sends, writes

QUESTION = "Which of churn and revenue grew?"
TEXTS = {
    "churn": "Churn grew by three percent in each month of the year.",
    "revenue": "Revenue fell in spring, and stayed below the plan.",
    "invoices": "Invoices are paid late by many customers.",
}


@pytest.fixture
def model_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


def _open(settings: Settings, model_server: ChatServer | None, tenant_name: str, **keys: Any) -> Any:
    model = {} if model_server is None else {"language_model.url": model_server.url()}
    overrides = {"rag.reranking.enabled": False, "rag.chunking.min_size": 1, **model}
    return opened(settings, overrides | {f"rag.expansion.{key}": value for key, value in keys.items()})


def _ingest(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).ingest(
        SourceDocument(source=source, data=text.encode()) for source, text in TEXTS.items()
    )


def _searched(settings: Settings, model_server: ChatServer, tenant_name: str, reply: Reply, **keys: Any) -> Any:
    model_server.replies = [reply]
    with _open(settings, model_server, tenant_name, **keys) as engine:
        _ingest(engine, tenant_name)
        return engine.tenant(tenant_name).search(QUESTION, 3, effort="high")


def test_planned_searches__are_fused_and_listed(settings: Settings, model_server: ChatServer, tenant_name: str) -> None:
    plan = f"1. How did churn grow?\n2. {QUESTION}\n- Did revenue grow?\n"
    result = _searched(settings, model_server, tenant_name, writes(plan))
    assert [item.question for item in result.activity] == [QUESTION, "How did churn grow?", "Did revenue grow?"]
    assert {hit.source for hit in result.hits[:2]} == {"churn", "revenue"}
    assert result.warnings == ()
    [(_, _, body)] = model_server.requests
    assert QUESTION in body["messages"][-1]["content"]


def test_searches__are_six_at_most(settings: Settings, model_server: ChatServer, tenant_name: str) -> None:
    plan = "\n".join(f"What is said about part {number}?" for number in range(20))
    result = _searched(settings, model_server, tenant_name, writes(plan))
    assert len(result.activity) == 6


def test_the_deadline__leaves_planned_searches_out(
    settings: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    def think(_messages: Any) -> list[str]:
        time.sleep(0.2)
        return ["churn\nrevenue"]

    result = _searched(settings, model_server, tenant_name, plays(think), planning_deadline_ms=100)
    assert [item.question for item in result.activity] == [QUESTION]
    assert result.warnings == ("0 of 2 planned searches ran: rag.expansion.planning_deadline_ms of 100 is over",)


def test_a_model_that_fails__costs_the_plan_alone(
    settings: Settings, model_server: ChatServer, tenant_name: str
) -> None:
    result = _searched(settings, model_server, tenant_name, sends(b"no such protocol"))
    assert len(result.hits) == 3
    assert result.warnings[0].startswith("no planned searches: ")


def test_low_effort__asks_no_model(settings: Settings, model_server: ChatServer, tenant_name: str) -> None:
    with _open(settings, model_server, tenant_name) as engine:
        _ingest(engine, tenant_name)
        assert engine.tenant(tenant_name).search(QUESTION).activity == ()
    assert model_server.requests == []


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        (QUESTION, {"effort": "high"}, "needs a language model"),
        (QUESTION, {"effort": "medium"}, "give one of low, high"),
        ([QUESTION], {"effort": "high"}, "ask one question"),
        (QUESTION, {"effort": "high", "mmr": 0.5}, "with effort low"),
    ],
)
def test_other_requests__are_refused(
    settings: Settings, tenant_name: str, question: Any, options: dict[str, Any], message: str
) -> None:
    with _open(settings, None, tenant_name) as engine, pytest.raises(RequestError, match=message):
        engine.tenant(tenant_name).search(question, **options)
