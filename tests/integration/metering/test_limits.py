"""Limits: what is refused, when, and in the shape of each interface."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, Self

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import BudgetReached, ConfigError, LimitReached
from kosmos_rag.core.telemetry.usage import Quantity
from kosmos_rag.core.types import AnswerDone
from kosmos_rag.engine.query_hooks import HookContext, QueryHooks
from kosmos_rag.metering import limits as limits_module
from kosmos_rag.metering.limits import LimitCounter, LimitKeeper, begin_period, end_period, list_limits
from kosmos_rag.metering.settings import ModelPrice, UsageLimit
from kosmos_rag.metering.store import UsageStore
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed, opened
from tests.threads import refused_threads
from tests.unit.models.llm.chat_server import ChatServer, running, writes
from tests.waiting import eventually

pytestmark = pytest.mark.emptied_database

LEAVE = SourceDocument(source="leave.md", data=b"Employees have twenty days of annual leave a year.")
NOTICE = SourceDocument(source="notice.md", data=b"Customers give ninety days of notice in writing.")
AT = datetime(2026, 12, 31, 23, 40, tzinfo=UTC)


def _limits(**limits: dict[str, Any]) -> dict[str, Any]:
    return {"metering.limits": {key.replace("__", "/"): UsageLimit(**values) for key, values in limits.items()}}


def test_questions__are_refused_at_the_limit_of_the_tenant(settings: Settings) -> None:
    with opened(settings, _limits(acme={"questions": 3, "per": "day"})) as engine:
        acme = engine.tenant("acme")
        acme.ingest(LEAVE)
        acme.search("leave")
        engine.tenant("acme", subject="ada").context("leave")
        acme.answer("leave")
        for call in (acme.search, acme.context, acme.answer, acme.stream_answer):
            with pytest.raises(LimitReached, match=r"the tenant has used up its limit of 3 questions a day; ask again"):
                call("leave")
        acme.ingest(NOTICE)
        engine.tenant("other").search("leave")


def test_limit__counts_what_other_processes_have_used(settings: Settings) -> None:
    limits = _limits(acme={"questions": 2}) | {"metering.flush_s": 0.05}
    with opened(settings, limits) as engine:
        engine.tenant("acme").ingest(LEAVE)
        engine.tenant("acme").search("leave")
        with opened(settings, limits) as second:
            second.tenant("acme").search("leave")
        with opened(settings, limits) as third, pytest.raises(LimitReached):
            third.tenant("acme").search("leave")


def test_usage__is_written_although_the_thread_that_does_it_could_not_start_at_first(settings: Settings) -> None:
    with opened(settings, {"metering.flush_s": 0.05}) as engine:
        acme = engine.tenant("acme")
        with refused_threads("kosmos-rag-metering"):
            acme.ingest(LEAVE)
        acme.search("leave")
        since, until = (datetime.now(UTC) + timedelta(days=days) for days in (-1, 1))
        eventually(lambda: UsageStore(acme).read(since=since, until=until).total("documents") == 1)


def test_limit__of_a_key_leaves_the_others_alone(settings: Settings) -> None:
    with opened(settings, {"metering.limits": {"acme/key:site": UsageLimit(questions=1)}}) as engine:
        engine.tenant("acme").ingest(LEAVE)
        site, ada = (engine.tenant("acme", subject=subject) for subject in ("key:site", "ada"))
        site.search("leave")
        with pytest.raises(LimitReached, match="key:site has used up its limit of 1 questions a month"):
            site.search("leave")
        for _ in range(3):
            ada.search("leave")


def test_documents_and_bytes__are_refused_and_questions_are_not(settings: Settings) -> None:
    for tenant_name, limit in (("acme", UsageLimit(documents=1)), ("beta", UsageLimit(bytes=len(LEAVE.data)))):
        with opened(settings, {"metering.limits": {tenant_name: limit}}) as engine:
            tenant = engine.tenant(tenant_name)
            assert tenant.ingest(LEAVE).new == 1
            with pytest.raises(LimitReached):
                tenant.ingest(NOTICE)
            with pytest.raises(LimitReached):
                tenant.uploads.open()
            assert tenant.search("leave").returned == 1


def test_tokens_and_money__are_refused_before_the_model_is_asked(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as chat_server:
        prices = {"llama3.2": ModelPrice(input=1e6)}
        for limit, error in (({"tokens": 5}, LimitReached), ({"cost": 5.0}, BudgetReached)):
            chat_server.requests.clear()
            changes = {"language_model.url": chat_server.url(), "metering.prices": prices}
            name = f"acme-{next(iter(limit))}"
            with opened(settings, changes | {"metering.limits": {name: UsageLimit(**limit)}}) as engine:
                engine.tenant(name).ingest(LEAVE)
                engine.tenant(name).complete("How many days of leave are there?", max_tokens=20)
                engine.background.drain(5)
                with pytest.raises(error):
                    engine.tenant(name).complete("And of notice?", max_tokens=20)
            assert len(chat_server.requests) == 1


def test_stream__that_has_begun_ends_though_the_limit_is_reached(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as chat_server:
        chat_server.replies = [writes("twenty ", "days ", "of leave")]
        changes = {
            "language_model.url": chat_server.url(), "rag.answer.mode": "generative", "rag.answer.threshold": 0.0,
        }  # fmt: skip
        with opened(settings, changes | _limits(acme={"questions": 1, "tokens": 1})) as engine:
            engine.tenant("acme").ingest(LEAVE)
            *_, last = engine.tenant("acme").stream_answer("How many days of leave?")
            assert isinstance(last, AnswerDone)
            assert last.answer.text == "twenty days of leave"
            with pytest.raises(LimitReached):
                engine.tenant("acme").stream_answer("How many days of leave?")


def test_warning__is_logged_once_at_the_share(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with opened(settings, _limits(acme={"questions": 5})) as engine, caplog.at_level(logging.WARNING):
        engine.tenant("acme").ingest(LEAVE)
        for _ in range(5):
            engine.tenant("acme").search("leave")
        warnings = [record.getMessage() for record in caplog.records if "its 5 questions" in record.getMessage()]
    assert warnings == ["acme has used 80 % of its 5 questions a month"]


def test_report__shows_what_is_used_of_each_limit(settings: Settings) -> None:
    limits = _limits(acme={"questions": 5, "documents": 9}) | {"metering.flush_s": 3600.0}
    with opened(settings, limits) as engine:
        engine.tenant("acme").ingest(LEAVE)
        engine.tenant("acme").search("leave")
    with opened(settings, limits) as engine:
        states = UsageStore(engine.tenant("acme")).read().limits
    assert [(state.quantity, state.total, state.amount) for state in states] == [
        ("questions", 1, 5),
        ("documents", 1, 9),
    ]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("Acme", "tenant name 'Acme' is malformed"),
        ("key:site", "tenant name 'key:site' is malformed"),
        ("/ada", "tenant name '' is malformed"),
        ("acme/", "names no reader after '/'"),
    ],
)
def test_settings__refuse_a_limit_that_no_tenant_has(key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings.load(overrides={"metering.limits": {key: {"questions": 1}}})


def test_periods__begin_and_end_in_utc() -> None:
    assert [begin_period(per, AT).isoformat()[:16] for per in ("hour", "day", "month")] == [
        "2026-12-31T23:00", "2026-12-31T00:00", "2026-12-01T00:00"
    ]  # fmt: skip
    assert {end_period(per, AT) for per in ("hour", "day", "month")} == {datetime(2027, 1, 1, tzinfo=UTC)}


@pytest.fixture
def later_hour(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after which limits are in a later hour."""
    later = datetime.now(UTC) + timedelta(hours=2)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(later.timestamp(), tz)

    return lambda: monkeypatch.setattr(limits_module, "datetime", Clock)


def test_counter__ignores_totals_of_a_period_that_is_over(later_hour: Callable[[], None]) -> None:
    counter = LimitCounter(tenant("acme"), None, UsageLimit(questions=1, per="hour"), "EUR")
    start = counter.start
    later_hour()
    counter.check(Quantity.QUESTIONS, 1.0)
    counter.replace_stored(Counter(questions=1), start)
    counter.check(Quantity.QUESTIONS, 1.0)
    counter.replace_stored(Counter(questions=1), counter.start)
    with pytest.raises(LimitReached):
        counter.check(Quantity.QUESTIONS, 1.0)


def test_counters__that_nobody_used_for_a_period_are_dropped(
    settings: Settings, later_hour: Callable[[], None]
) -> None:
    contexts: list[HookContext] = []

    def create_hooks(context: HookContext) -> QueryHooks:
        contexts.append(context)
        return QueryHooks()

    per_hour = {"metering.limits": {"*": UsageLimit(questions=1, per="hour")}}
    with Engine(changed(settings, per_hour), embedder=HashingEmbedder(), query_hooks=create_hooks):
        keeper = LimitKeeper(contexts[0])
        for name in ("acme", "beta"):
            keeper.admit(tenant(name), None, Quantity.QUESTIONS)
        later_hour()
        keeper.admit(tenant("beta"), None, Quantity.QUESTIONS)
        keeper.move()
        assert keeper.stale_owners == {tenant("beta")}


def test_limits__of_every_tenant_hold_where_it_has_none_of_its_own() -> None:
    default, acme, key = UsageLimit(questions=1), UsageLimit(questions=2), UsageLimit(questions=3)
    limits = {"*": default, "acme": acme, "*/key:site": key, "other/key:b": acme}
    assert dict(list_limits(limits, "acme")) == {None: acme, "key:site": key}
    assert dict(list_limits(limits, "beta")) == {None: default, "key:site": key}


@contextmanager
def _served(settings: Settings, signer: Signer, limit: UsageLimit, chat_server: ChatServer) -> Iterator[Running]:
    changes = {
        "metering.limits": {"acme": limit}, "metering.prices": {"llama3.2": ModelPrice(output=1e6)},
        "metering.flush_s": 0.05,
        "language_model.url": chat_server.url(), "rag.answer.mode": "generative", "rag.answer.threshold": 0.0,
    }  # fmt: skip
    with (
        Engine(changed(with_tokens(settings, signer), changes), embedder=HashingEmbedder()) as engine,
        serving(engine, signer) as served,
    ):
        engine.tenant("acme").ingest(LEAVE)
        yield served


@pytest.mark.parametrize(
    ("limit", "status", "name"),
    [(UsageLimit(questions=1, per="hour"), 429, "limit-reached"), (UsageLimit(cost=0.5), 402, "budget-reached")],
)
def test_interfaces__refuse_in_their_own_shape(
    settings: Settings, signer: Signer, monkeypatch: pytest.MonkeyPatch, limit: UsageLimit, status: int, name: str
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as chat_server, _served(settings, signer, limit, chat_server) as served:
        with served.client() as client:
            assert client.post("/v1/answer", json={"question": "How many days of leave?"}).status_code == 200
            for path, accept in (("/v1/search", "application/json"), ("/v1/answer", "text/event-stream")):
                refused = client.post(path, json={"question": "leave"}, headers={"accept": accept})
                assert refused.status_code == status, refused.text
                problem = refused.json()
                assert problem["type"].endswith(name)
                assert "has used up its limit" in problem["detail"]
                assert 0 < int(refused.headers["retry-after"]) <= 31 * 86_400
            body = {"model": "llama3.2", "messages": [{"role": "user", "content": "leave"}], "stream": True}
            openai = client.post("/openai/v1/chat/completions", json=body)
            assert openai.status_code == 429, openai.text
            error = json.loads(openai.text)["error"]
            assert error["code"] == ("rate_limit_exceeded" if status == 429 else "insufficient_quota")
        with Client(served.url, served.token(), retries=0) as client:
            with pytest.raises(BudgetReached if status == 402 else LimitReached) as failure:
                client.search("leave")
            assert failure.value.retry_after_s > 0
        notice = "More is refused until the next"
        with visitor(served, "admin") as visit:
            eventually(lambda: notice in extract_text(visit.get("/usage")))
