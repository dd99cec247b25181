"""Usage in the database: who sees it, what an hour becomes, and what erasure leaves."""

import csv
import io
import json
import uuid
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.metering import store as store_module
from kosmos_rag.metering.limits import begin_period
from kosmos_rag.metering.records import LimitState, format_amount, format_limit, format_rule
from kosmos_rag.metering.store import UsageRow, UsageStore, insert_rows
from kosmos_rag.metering.tables import write_csv

pytestmark = pytest.mark.emptied_database

NOW = datetime(2026, 11, 20, 9, 40, tzinfo=UTC)
SINCE, UNTIL = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)


@pytest.fixture
def acme(engine: Engine) -> Tenant:
    tenant = engine.tenant("acme")
    tenant.ingest(SourceDocument(source="a.md", data=b"Churn is the share of customers that leave."))
    return tenant


def _store(
    tenant: Tenant,
    amount: float,
    *,
    quantity: str = "questions",
    at: datetime = NOW,
    subject: str | None = None,
    model: str | None = None,
    cost: float | None = None,
    key: uuid.UUID | None = None,
) -> None:
    row = UsageRow(
        id=key or uuid.uuid4(), hour=begin_period("hour", at), collection=tenant.collection, subject=subject,
        quantity=quantity, model=model, amount=amount, cost=cost,
    )  # fmt: skip
    with tenant.sessions.write() as connection:
        insert_rows(connection, tenant.id, [row])


def test_read__sums_by_interval_and_dimension(acme: Tenant) -> None:
    _store(acme, 2, subject="ada")
    _store(acme, 3, subject="key:site")
    _store(acme, 4, subject="ada", at=NOW + timedelta(days=1))
    _store(acme.with_collection("wiki"), 1, subject="ada")
    _store(acme, 70, quantity="input_tokens", model="large", cost=0.7)
    _store(acme, 30, quantity="input_tokens", model="small")
    store = UsageStore(acme)
    report = store.read(since=SINCE, until=UNTIL)
    assert (report.total("questions"), report.total("input_tokens"), report.cost) == (10, 100, 0.7)
    days = store.read(since=SINCE, until=UNTIL, every="day", by=["subject"])
    assert [(row.start.day, row.subject, row.amount) for row in days.amounts if row.start and row.subject] == [
        (20, "ada", 3), (20, "key:site", 3), (21, "ada", 4)
    ]  # fmt: skip
    models = store.read(since=SINCE, until=UNTIL, by=["model"])
    assert {row.model: row.cost for row in models.amounts if row.model} == {"large": 0.7, "small": None}
    collections = store.read(since=SINCE, until=UNTIL, by=["collection"])
    assert {row.collection: row.amount for row in collections.amounts if row.quantity == "questions"} == {
        None: 9, "wiki": 1
    }  # fmt: skip
    assert store.read(since=SINCE, until=UNTIL, subject="key:site").total("questions") == 3


def test_read__leaves_out_the_end_and_refuses_what_it_does_not_know(acme: Tenant) -> None:
    _store(acme, 1)
    _store(acme, 1, at=NOW + timedelta(hours=1))
    store = UsageStore(acme)
    assert store.read(since=NOW, until=begin_period("hour", NOW) + timedelta(hours=1)).total("questions") == 1
    with pytest.raises(RequestError, match="the interval is 'week'; use hour, day, month"):
        store.read(every="week")
    with pytest.raises(RequestError, match="not listed by 'reader'; use collection, subject, model"):
        store.read(by=["reader"])
    with pytest.raises(RequestError, match="before it begins"):
        store.read(since=UNTIL, until=SINCE)


def test_read__refuses_more_rows_than_a_process_should_hold(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    for subject in ("ada", "bob", "eve"):
        _store(acme, 1, subject=subject)
    monkeypatch.setattr(store_module, "_MAX_ROWS", 3)
    assert len(UsageStore(acme).read(since=SINCE, until=UNTIL, by=["subject"]).amounts) == 3
    monkeypatch.setattr(store_module, "_MAX_ROWS", 2)
    with pytest.raises(RequestError, match="more than 2 rows; ask for a shorter time"):
        UsageStore(acme).read(since=SINCE, until=UNTIL, by=["subject"])


def test_join_hours__keeps_the_sums_and_leaves_the_open_hour(acme: Tenant) -> None:
    for amount in (1, 2, 3):
        _store(acme, amount, subject="ada", cost=amount / 10)
        _store(acme, amount, subject="bob")
        _store(acme, amount, subject="ada", at=NOW + timedelta(hours=1))
    store = UsageStore(acme)
    before = store.read(since=SINCE, until=UNTIL, every="hour", by=["subject", "collection", "model"])
    assert store.join_hours(NOW + timedelta(hours=1)) == 4
    after = store.read(since=SINCE, until=UNTIL, every="hour", by=["subject", "collection", "model"])
    assert [(row.subject, row.amount) for row in after.amounts] == [(row.subject, row.amount) for row in before.amounts]
    assert after.cost == pytest.approx(before.cost)
    assert store.join_hours(NOW + timedelta(hours=1)) == 0


def test_join_hours__looks_back_some_days_or_over_the_whole_retention(acme: Tenant) -> None:
    for _ in range(2):
        _store(acme, 1)
    store = UsageStore(acme)
    assert store.join_hours(NOW + timedelta(days=8), days=7) == 0
    assert store.join_hours(NOW + timedelta(days=401)) == 0
    assert store.join_hours(NOW + timedelta(days=400)) == 1


def test_insert__of_the_same_batch_again_changes_nothing(acme: Tenant) -> None:
    key = uuid.uuid4()
    _store(acme, 5, key=key)
    _store(acme, 5, key=key)
    assert UsageStore(acme).read(since=SINCE, until=UNTIL).total("questions") == 5


def test_record_stored__keeps_one_amount_an_hour_and_reads_the_last(acme: Tenant, engine: Engine) -> None:
    store = UsageStore(acme)
    store.record_stored(NOW)
    acme.ingest(SourceDocument(source="b.md", data=b"Revenue is what customers pay."))
    engine.tenant("acme", collection="new").ingest(SourceDocument(source="c.md", data=b"Margin."))
    store.record_stored(NOW)
    first = store.read(since=SINCE, until=UNTIL, by=["collection"])
    assert [(row.collection, row.quantity, row.amount) for row in first.amounts if row.quantity == "stored_chunks"] == [
        ("default", "stored_chunks", 1)
    ]
    store.record_stored(NOW + timedelta(hours=1))
    report = store.read(since=SINCE, until=UNTIL)
    assert (report.total("stored_chunks"), report.total("stored_bytes")) == (3, 80)
    assert store.read(since=SINCE, until=UNTIL, every="hour").total("stored_chunks") == 4


def test_record_stored__of_what_was_deleted_is_zero_once(acme: Tenant, engine: Engine) -> None:
    engine.tenant("acme", collection="new").ingest(SourceDocument(source="c.md", data=b"Margin."))
    store, hours = UsageStore(acme), [NOW + timedelta(hours=number) for number in range(4)]
    store.record_stored(hours[0])
    engine.tenant("acme", collection="new").delete("c.md")
    store.record_stored(hours[1])
    report = store.read(since=SINCE, until=UNTIL, by=["collection"])
    stored = {row.collection: row.amount for row in report.amounts if row.quantity == "stored_chunks"}
    assert stored == {"default": 1, "new": 0}
    for document in acme.documents():
        acme.delete(document.source)
    for hour in hours[2:]:
        store.record_stored(hour)
    assert store.read(since=SINCE, until=UNTIL).total("stored_bytes") == 0
    by_hour = store.read(since=SINCE, until=UNTIL, every="hour")
    assert [row.amount for row in by_hour.amounts if row.quantity == "stored_chunks"] == [2, 1, 0]


def test_prune__deletes_old_usage(acme: Tenant) -> None:
    _store(acme, 1)
    store = UsageStore(acme)
    assert store.prune(NOW + timedelta(days=399)) == 0
    assert store.prune(NOW + timedelta(days=401)) == 1


def test_other_tenants__see_nothing_and_change_nothing(
    engine: Engine, acme: Tenant, database: DatabaseSettings
) -> None:
    _store(acme, 1)
    other = engine.tenant("other")
    assert UsageStore(other).read(since=SINCE, until=UNTIL).amounts == ()
    with psycopg.connect(database.url) as reader:
        reader.execute("SELECT kosmos.set_tenant_context(%s, %s)", (other.id, [EVERYONE]))
        assert reader.execute("SELECT count(*) FROM kosmos.usage").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("UPDATE kosmos.usage SET amount = 0")
    with psycopg.connect(database.url, options="-c default_transaction_read_only=off") as reader:
        reader.execute("SELECT kosmos.set_tenant_context(%s, %s)", (other.id, [EVERYONE]))
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            reader.execute(
                "INSERT INTO kosmos.usage (tenant_id, id, hour, quantity, amount) VALUES (%s, %s, %s, 'questions', 1)",
                (acme.id, uuid.uuid4(), NOW),
            )


def test_erasure__of_a_subject_removes_the_name_and_of_a_tenant_all(acme: Tenant) -> None:
    _store(acme, 4, subject="ada")
    assert acme.erase(subject="ada").erased == {"usage": 1}
    report = UsageStore(acme).read(since=SINCE, until=UNTIL, by=["subject"])
    assert [(row.subject, row.amount) for row in report.amounts] == [(None, 4)]
    assert acme.erase_all().erased["usage"] == 1
    assert UsageStore(acme).read(since=SINCE, until=UNTIL).amounts == ()


def test_csv__has_the_columns_and_no_formulas(acme: Tenant) -> None:
    _store(acme, 2.5, subject="=1+1", quantity="parsing_seconds")
    report = UsageStore(acme).read(since=SINCE, until=UNTIL, by=["subject"], every="day")
    rows = list(csv.reader(io.StringIO(write_csv(report, ["subject"], every="day"))))
    assert rows == [
        ["start", "subject", "quantity", "amount", "cost", "currency"],
        ["2026-11-20 00:00", "'=1+1", "parsing_seconds", "2.5", "", "USD"],
    ]


def test_command__prints_a_table_json_and_csv(acme: Tenant, settings: Settings) -> None:
    _store(acme, 1_500_000, quantity="input_tokens", model="large", cost=1.5)
    options = ["-t", "acme", "--since", "2026-11-01", "--until", "2026-12-01", "--by", "model"]
    options += [f"--set=database.{name}={getattr(settings.database, name)}" for name in ("url", "worker_url")]
    runner = CliRunner()
    result = runner.invoke(app, ["usage", *options])
    assert result.exit_code == 0, result.output
    assert "large  input_tokens  1500000   1.5" in result.output
    assert "cost: 1.50 USD" in result.output
    report = json.loads(runner.invoke(app, ["usage", *options, "--json"]).output)
    assert (report["cost"], report["amounts"][0]["amount"]) == (1.5, 1_500_000)
    assert "model,quantity,amount,cost,currency" in runner.invoke(app, ["usage", *options, "--csv"]).output
    assert "use one of them" in runner.invoke(app, ["usage", *options, "--csv", "--json"]).output


def test_format_limit__names_the_currency_and_keeps_large_numbers_readable() -> None:
    money = LimitState(subject=None, per="day", quantity="cost", amount=20.0, total=0.0035575)
    size = LimitState(subject=None, per="month", quantity="bytes", amount=1_000_000_000, total=70_902.0)
    assert format_rule("questions", 3, "hour", "EUR") == "3 questions an hour"
    assert format_limit(money, "EUR") == "0.0036 of 20 EUR a day"
    assert format_limit(size, "EUR") == "70,902 of 1,000,000,000 bytes a month"


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "0"), (0.00001, "1e-05"), (0.0000456, "4.6e-05"), (0.0000999, "0.0001"), (0.0001, "0.0001"), (0.3, "0.3")],
)
def test_format_amount__shows_that_there_is_a_little(amount: float, text: str) -> None:
    assert format_amount(amount) == text
