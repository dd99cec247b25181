"""GET /v1/usage, the client's call, the page and its CSV: of one tenant, for its administrators."""

import re
import uuid
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.apps.client import Client
from kosmos_rag.core.errors import RequestError
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.metering import store as store_module
from kosmos_rag.metering.limits import begin_period
from kosmos_rag.metering.records import UsageReport
from kosmos_rag.metering.settings import UsageLimit
from kosmos_rag.metering.sql import statement
from kosmos_rag.metering.store import UsageRow, insert_rows
from kosmos_rag.metering.times import parse_time
from kosmos_rag.metering.views import build_view
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving, with_tokens
from tests.integration.variants import changed
from tests.statements import recorded_statements

HOSTILE = "<script>alert(1)</script>"


def _store(tenant: Tenant, quantity: str, amount: float, *, subject: str = "ada", cost: float | None = None) -> None:
    with tenant.sessions.write() as connection:
        tenant.sessions.create_tenant(connection)
        row = UsageRow(
            id=uuid.uuid4(), hour=begin_period("hour", datetime.now(UTC)), collection=None, subject=subject,
            quantity=quantity, model="large" if cost else None, amount=amount, cost=cost,
        )  # fmt: skip
        insert_rows(connection, tenant.id, [row])


@pytest.fixture
def served(running: Running, tenant_name: str) -> Running:
    _store(running.tenant(), "questions", 1200)
    _store(running.tenant(), "questions", 3, subject="key:site")
    _store(running.tenant(), "input_tokens", 2_000_000, cost=4.0)
    _store(running.tenant(), "stored_bytes", 2_500_000)
    return running


def test_route__returns_usage_of_the_tenant_to_administrators(served: Running) -> None:
    with served.client(served.key("ops", "admin")) as client:
        since = (datetime.now(UTC) - timedelta(days=1)).isoformat()
        response = client.get("/v1/usage", params={"since": since, "by": ["subject", "model"], "every": "day"})
        assert response.status_code == 200, response.text
        report = response.json()
        assert (report["tenant"], report["cost"], report["currency"]) == (served.tenant_name, 4.0, "USD")
        rows = {(row["subject"], row["quantity"]): row["amount"] for row in report["amounts"]}
        assert rows["key:site", "questions"] == 3
        assert rows["ada", "questions"] == 1200
        key_report = client.get("/v1/usage", params={"since": since, "subject": "key:site"}).json()
        assert [(row["quantity"], row["amount"]) for row in key_report["amounts"]] == [("questions", 3)]
        for parameters in ({"by": "reader"}, {"every": "week"}, {"since": "soon"}, {"until": "2020-01-01"}, {"day": 1}):
            assert client.get("/v1/usage", params=parameters).status_code == 422, parameters


def test_route__is_refused_to_readers_and_shows_no_other_tenant(served: Running) -> None:
    for scope in ("read", "ingest"):
        with served.client(served.key(scope, scope)) as client:
            assert client.get("/v1/usage").status_code == 403
    other = f"{served.tenant_name}-other"
    with served.client(served.key("ops", "admin", tenant_name=other)) as client:
        assert client.get("/v1/usage").json()["amounts"] == []
        assert client.get("/v1/usage", params={"tenant": served.tenant_name}).status_code == 422


def test_client__reads_the_report(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Client(served.url, served.key("ops", "admin")) as client:
        report = client.usage(since=datetime.now(UTC) - timedelta(days=1), by=["model"])
    assert isinstance(report, UsageReport)
    assert (report.total("input_tokens"), report.cost) == (2_000_000, 4.0)


def test_page__shows_totals_a_plot_and_a_table_and_gives_csv(served: Running) -> None:
    _store(served.tenant(), "questions", 7, subject=HOSTILE)
    with visitor(served, "admin") as client:
        page = client.get("/usage", params={"days": 7, "by": "subject"})
        assert page.status_code == 200
        assert "unsafe" not in page.headers["content-security-policy"]
        assert HOSTILE not in page.text
        assert "style=" not in page.text
        text = extract_text(page)
        for expected in (HOSTILE, "key:site", "2.5 MB", "4.00", "1\u202f210", "cost in USD by day"):
            assert expected in text, expected
        bars = re.findall(r'class="bar" x="[\d.]+" y="[\d.]+" width="[\d.]+" height="([\d.]+)"', page.text)
        assert [float(height) for height in bars] == [0.0] * 6 + [100.0]
        table = client.get("/usage.csv", params={"days": 7, "by": "subject"})
        assert table.headers["content-type"].startswith("text/csv")
        assert "attachment" in table.headers["content-disposition"]
        today = f"{datetime.now(UTC):%Y-%m-%d} 00:00"
        assert f"{today},key:site,questions,3,,USD" in table.text.splitlines()
    with visitor(served, "read") as client:
        assert client.get("/usage").status_code == 403
        assert client.get("/usage.csv").status_code == 403


def test_page__reads_each_limit_once(settings: Settings, signer: Signer) -> None:
    limits = {"metering.limits": {"*": UsageLimit(questions=4), "*/key:site": UsageLimit(questions=3)}}
    configured = with_tokens(changed(settings, limits), signer)
    with Engine(configured, embedder=HashingEmbedder()) as engine, serving(engine, signer) as limited:
        _store(limited.tenant(), "questions", 3, subject="key:site")
        with visitor(limited, "admin") as client:
            with recorded_statements() as statements:
                page = client.get("/usage")
            assert "key:site" in extract_text(page)
            assert statements.count(statement("read_totals")) == 2
            with recorded_statements() as statements:
                client.get("/usage.csv")
            assert statement("read_totals") not in statements


def test_table__is_named_after_today_in_the_last_hour_too(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    last_hour = datetime.now(UTC).replace(hour=23, minute=30)

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(last_hour.timestamp(), tz)

    monkeypatch.setattr(store_module, "datetime", Clock)
    with visitor(running, "admin") as client:
        disposition = client.get("/usage.csv").headers["content-disposition"]
    assert disposition == f'attachment; filename="usage-{last_hour:%Y-%m-%d}.csv"'


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-05:00", "soon"])
def test_parse_time__refuses_what_is_no_time_in_utc(text: str) -> None:
    with pytest.raises(RequestError, match=f"since '{re.escape(text)}' is not a day or time"):
        parse_time("since", text)


def test_page__without_usage_says_so(running: Running, tenant_name: str) -> None:
    with visitor(running, "admin") as client:
        assert "Nothing was used in this time" in client.get("/usage").text


@pytest.mark.parametrize(("cost", "plotted"), [(0.004, "questions"), (0.005, "cost in USD")])
def test_page__shows_costs_from_a_hundredth_on(running: Running, tenant_name: str, cost: float, plotted: str) -> None:
    _store(running.tenant(), "input_tokens", 1200, cost=cost)
    with visitor(running, "admin") as client:
        text = extract_text(client.get("/usage"))
    assert f"{plotted} by day" in text
    assert ("0.01" in text) == (plotted != "questions")


@pytest.mark.parametrize(("until", "days"), [(timedelta(days=3, hours=5), 4), (timedelta(days=3), 3)])
def test_view__has_a_bar_for_each_day_also_without_usage(until: timedelta, days: int) -> None:
    since = datetime(2026, 11, 1, tzinfo=UTC)
    report = UsageReport(tenant="acme", since=since, until=since + until, currency="USD", cost=0.0, amounts=())
    view = build_view(report, report, report, "model")
    assert [bar.day.day for bar in view.bars] == [1, 2, 3, 4][:days]
    assert (view.plotted, view.highest) == ("questions", 0.0)
