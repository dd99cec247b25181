"""What questions and documents are charged, to whom, and what happens while nothing can be written."""

import io
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from PIL import Image, ImageDraw

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable, NodeUnavailable
from kosmos_rag.core.telemetry.usage import Quantity, record
from kosmos_rag.engine.query_hooks import AuditContext, HookContext, OpenTransaction, QueryHooks, TenantRef
from kosmos_rag.metering.meter import BufferedMeter, compute_cost, create_query_hooks
from kosmos_rag.metering.settings import ModelPrice, UsageLimit
from kosmos_rag.metering.store import UsageStore
from kosmos_rag.models.embedding.sentence_transformer import SentenceTransformerEmbedder
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import changed, opened

pytestmark = pytest.mark.emptied_database

TEXT = b"Employees have twenty days of annual leave a year."
LEAVE = SourceDocument(source="leave.md", data=TEXT)
PAGE = SourceDocument(source="page.html", data=b"<h1>Notice</h1><p>Customers give ninety days of notice.</p>")


class Overlap:
    """A reranker that counts common words."""

    name = "overlap"

    def score(self, question: str, passages: list[str]) -> list[float]:
        words = set(question.lower().split())
        return [len(words & set(passage.lower().split())) / max(1, len(words)) for passage in passages]


@contextmanager
def _metered(settings: Settings, **changes: Any) -> Iterator[tuple[Engine, BufferedMeter]]:
    """Open an engine whose meter writes only when `flush` is called."""
    meters: list[BufferedMeter] = []

    def create_hooks(context: HookContext) -> QueryHooks:
        hooks = create_query_hooks(context)
        assert isinstance(hooks.meter, BufferedMeter)
        meters.append(hooks.meter)
        return hooks

    usual = {"metering.flush_s": 3600.0, "rag.chunking.min_size": 1}
    with Engine(changed(settings, usual | changes), embedder=HashingEmbedder(), query_hooks=create_hooks) as engine:
        yield engine, meters[0]


def _totals(engine: Engine, name: str = "acme", **filters: Any) -> dict[str, float]:
    report = UsageStore(engine.tenant(name)).read(**filters)
    return {row.quantity: row.amount for row in report.amounts}


def test_documents__are_charged_with_bytes_tokens_and_seconds(
    settings: Settings, minilm: SentenceTransformerEmbedder
) -> None:
    # Written at the end: what is written before the first document has no subject.
    rag = {"rag.embedding": minilm._settings, "rag.chunking.min_size": 1, "metering.flush_s": 3600}
    with opened(settings, rag, embedder=minilm) as engine:
        wiki = engine.tenant("acme", collection="wiki", subject="key:loader")
        wiki.ingest([LEAVE, PAGE])
        wiki.ingest([LEAVE, PAGE])
        chunks = [chunk for _, chunk in wiki.texts()]
    with opened(settings, {}) as engine:
        report = UsageStore(engine.tenant("acme")).read(by=["collection", "subject", "model"])
    assert {(row.collection, row.subject) for row in report.amounts} == {("wiki", "key:loader")}
    amounts = {row.quantity: row.amount for row in report.amounts}
    assert amounts["documents"] == 2
    assert amounts["bytes"] == len(LEAVE.data) + len(PAGE.data)
    assert 0 < amounts["parsing_seconds"] < 60
    assert len(chunks) == 2
    # Title and section stand before the text of a chunk; each text has two special tokens.
    assert amounts["embedded_tokens"] >= sum(minilm.tokenizer.count(chunks)) + 2 * len(chunks)
    assert amounts["embedded_tokens"] <= sum(minilm.tokenizer.count(chunks)) + 20 * len(chunks)
    assert {row.model for row in report.amounts if row.quantity == "embedded_tokens"} == {minilm.name}


def test_question__is_charged_to_its_reader_with_tokens_and_passages(
    settings: Settings, minilm: SentenceTransformerEmbedder
) -> None:
    rag = {"rag.embedding": minilm._settings, "rag.chunking.min_size": 1, "rag.reranking.enabled": True}
    with opened(settings, rag, embedder=minilm, reranker=Overlap()) as engine:
        engine.tenant("acme").ingest([LEAVE, PAGE])
        reader = engine.tenant("acme", subject="ada")
        reader.search("How many days of leave?")
        reader.search(["Who gives notice?", "Who has leave?"])
        reader.context("How many days of leave?")
    with opened(settings, {}) as engine:
        amounts = _totals(engine, subject="ada")
    questions = ["How many days of leave?", "Who gives notice?", "Who has leave?"]
    assert amounts["questions"] == 4
    assert amounts["embedded_tokens"] == sum(minilm.tokenizer.count(questions)) + 2 * len(questions)
    assert amounts["reranked_passages"] >= 4
    assert "answers" not in amounts


def test_work_without_a_caller__is_charged_to_the_collection(settings: Settings) -> None:
    with _metered(settings) as (engine, meter):
        pipeline = engine.ingest_pipeline
        pipeline.ingest(tenant("acme"), "wiki", [LEAVE], prune=False, root=None, on_progress=None)
        meter.flush()
        report = UsageStore(engine.tenant("acme")).read(by=["collection", "subject"])
        documents = [row for row in report.amounts if row.quantity == "documents"]
        assert [(row.collection, row.subject, row.amount) for row in documents] == [("wiki", None, 1)]


@pytest.mark.own_database
def test_usage__waits_for_the_database_and_is_written_once(settings: Settings, database: DatabaseSettings) -> None:
    def grant(change: str) -> None:
        with psycopg.connect(database.admin_url or "") as admin:
            admin.execute(change.encode())

    with _metered(settings) as (engine, meter):
        acme = engine.tenant("acme")
        acme.ingest(LEAVE)
        meter.flush()
        acme.search("leave")
        grant("REVOKE INSERT ON kosmos.usage FROM kosmos_app")
        meter.flush()
        assert "questions" not in _totals(engine)
        acme.search("leave")
        grant("GRANT INSERT ON kosmos.usage TO kosmos_app")
        meter.flush()
        meter.flush()
        assert _totals(engine)["questions"] == 2


def _reader(name: str, subject: str | None = None) -> AuditContext:
    return AuditContext(tenant=tenant(name), principals=(), subject=subject, collection=None)


def _name_tenants(number: int) -> list[str]:
    return [f"tenant-{index}" for index in range(number)]


@contextmanager
def _context(settings: Settings, open_transaction: OpenTransaction, **changes: Any) -> Iterator[HookContext]:
    """Replace the transactions of an engine's hooks."""
    contexts: list[HookContext] = []

    def create_hooks(context: HookContext) -> QueryHooks:
        contexts.append(replace(context, append=open_transaction, read=open_transaction))
        return QueryHooks()

    usual = {"metering.flush_s": 3600.0, "metering.limits": {"*": UsageLimit(questions=9)}}
    with Engine(changed(settings, usual | changes), embedder=HashingEmbedder(), query_hooks=create_hooks):
        yield contexts[0]


@pytest.mark.parametrize(
    ("error", "attempts"), [(DatabaseUnavailable("no connection"), 1), (NodeUnavailable("no node"), 3)]
)
def test_outage__is_waited_for_once_by_flush_and_close(
    settings: Settings, error: DatabaseUnavailable, attempts: int
) -> None:
    owners: list[TenantRef] = []

    def fail(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
        owners.append(owner)
        raise error

    with _context(settings, fail) as context:
        meter = create_query_hooks(context).meter
        assert isinstance(meter, BufferedMeter)
        for name in _name_tenants(3):
            with meter.charge(_reader(name)):
                record(Quantity.QUESTIONS, 1)
        for call in (meter.flush, meter.close):
            owners.clear()
            call()
            assert len(owners) == attempts


def test_outage__ends_the_reading_of_limits_which_close_leaves_out(settings: Settings) -> None:
    owners: list[TenantRef] = []

    def fail(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
        owners.append(owner)
        raise DatabaseUnavailable("no connection")

    with _context(settings, fail) as context:
        meter = create_query_hooks(context).meter
        assert isinstance(meter, BufferedMeter)
        for name in _name_tenants(3):
            meter.charge(_reader(name), Quantity.QUESTIONS)
        for call, attempts in ((meter.flush, 1), (meter.close, 0)):
            owners.clear()
            call()
            assert len(owners) == attempts


def test_limits__are_read_again_of_the_tenants_that_used_them(settings: Settings) -> None:
    with _metered(settings, **{"metering.limits": {"*": UsageLimit(questions=9)}}) as (engine, meter):
        assert meter.limits is not None
        names = _name_tenants(2)
        for name in names:
            engine.tenant(name).ingest(LEAVE)
            engine.tenant(name).search("leave")
        assert meter.limits.stale_owners == {tenant(name) for name in names}
        meter.flush()
        assert meter.limits.stale_owners == set()
        engine.tenant(names[0]).search("leave")
        assert meter.limits.stale_owners == {tenant(names[0])}


def test_usage__of_a_tenant_without_documents_waits_for_its_first(settings: Settings) -> None:
    with _metered(settings) as (engine, meter):
        acme = engine.tenant("acme")
        assert acme.search("leave").hits == ()
        meter.flush()
        acme.ingest(LEAVE)
        meter.flush()
        assert _totals(engine)["questions"] == 1


def test_usage__without_a_tenant_sends_no_refused_statement(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with _metered(settings) as (engine, meter):
        acme = engine.tenant("acme", subject="ann")
        with caplog.at_level(logging.DEBUG, "kosmos_rag"):
            for _ in range(3):
                acme.search("leave")
                meter.flush()
        assert [record.getMessage() for record in caplog.records if "usage" in record.getMessage()] == []
        (rows,) = meter._waiting.values()
        assert {(row.quantity, row.amount) for row in rows} >= {("questions", 3)}
        assert len(rows) == len({(row.hour, row.quantity, row.model) for row in rows})
        assert {row.subject for row in rows} == {None}  # an erased name would come back with a new tenant


def test_close__warns_of_a_failing_database_and_not_of_a_tenant_without_documents(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO, "kosmos_rag"), _metered(settings) as (engine, meter):
        engine.tenant("empty").search("leave")
        engine.tenant("acme").ingest(LEAVE)
        meter.flush()
        engine.tenant("acme").search("leave")
        append = meter._append

        def refuse_acme(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
            if owner.name == "acme":
                raise NodeUnavailable("the node of acme does not answer")
            return append(owner)

        monkeypatch.setattr(meter, "_append", refuse_acme)
    engine.close()  # a second time, which reports nothing again
    dropped = [record for record in caplog.records if getattr(record, "action", "") == "usage_dropped"]
    assert sorted((record.levelname, record.getMessage().partition(";")[0]) for record in dropped) == [
        ("INFO", "usage of tenant empty was not stored: it has no document"),
        ("WARNING", "usage of tenant acme was not stored: the node of acme does not answer"),
    ]


def test_close__warns_of_every_tenant_where_the_database_is_away(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.INFO, "kosmos_rag"), _metered(settings) as (engine, meter):
        engine.tenant("first").search("leave")
        engine.tenant("second").search("leave")
        meter.flush()

        def refuse(owner: TenantRef) -> AbstractContextManager[psycopg.Connection]:
            raise DatabaseUnavailable("the database does not answer")

        monkeypatch.setattr(meter, "_append", refuse)
    dropped = [record for record in caplog.records if getattr(record, "action", "") == "usage_dropped"]
    assert [record.getMessage().partition(";")[0] for record in dropped] == [
        "usage of tenant first was not stored: the database does not answer",
        "usage of tenant second was not stored: the database does not answer",
    ]


def test_usage__of_an_erased_tenant_is_dropped(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with _metered(settings) as (engine, meter):
        acme = engine.tenant("acme", subject="ann")
        acme.ingest(LEAVE)
        meter.flush()
        acme.search("leave")
        acme.erase_all()
        meter.flush()
        assert not meter._waiting
        assert "rows of usage were dropped: their tenant was erased" in caplog.text


def test_usage__of_tenants_without_documents_is_dropped_before_that_of_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _metered(settings) as (engine, meter):
        acme, absent = engine.tenant("acme"), engine.tenant("absent")
        acme.ingest(LEAVE)
        meter.flush()
        acme.search("leave")
        absent.search("leave")
        with monkeypatch.context() as patch:
            patch.setattr(meter, "_write_rows", lambda: None)
            meter.flush()
            rows = {owner.name: len(rows) for owner, rows in meter._waiting.items()}
            patch.setattr("kosmos_rag.metering.meter._MAX_WAITING", rows["acme"])
            meter.flush()
            assert [owner.name for owner in meter._waiting] == ["acme"]


def test_usage__of_a_tenant_without_documents_is_dropped_and_counted_after_a_day(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _metered(settings) as (engine, meter):
        two_days_ago = time.time() - 2 * 86400
        with monkeypatch.context() as patch, meter.charge(_reader("acme")):
            patch.setattr(time, "time", lambda: two_days_ago)
            record(Quantity.QUESTIONS, 1)
        with meter.charge(_reader("acme")):
            record(Quantity.QUESTIONS, 2)
        meter.flush()
        assert "1 rows of usage were dropped: their tenant was erased, or had no document for a day" in caplog.text
        engine.tenant("acme").ingest(LEAVE)
        meter.flush()
        assert _totals(engine, since=datetime.now(UTC) - timedelta(days=3))["questions"] == 2


def test_metering__that_is_off_records_nothing(settings: Settings) -> None:
    with opened(settings, {"metering.enabled": False}) as engine:
        engine.tenant("acme").ingest(LEAVE)
        engine.tenant("acme").search("leave")
    with opened(settings, {}) as engine:
        assert _totals(engine) == {}


def test_cost__is_that_of_the_price_for_each_quantity() -> None:
    prices = {"large": ModelPrice(input=2.0, output=8.0), "cross": ModelPrice(passages=1.5)}
    assert compute_cost(prices, Quantity.INPUT_TOKENS, "large", 500_000) == 1.0
    assert compute_cost(prices, Quantity.OUTPUT_TOKENS, "large", 500_000) == 4.0
    assert compute_cost(prices, Quantity.RERANKED_PASSAGES, "cross", 2000) == 3.0
    assert compute_cost(prices, Quantity.INPUT_TOKENS, "small", 1) is None
    assert compute_cost(prices, Quantity.QUESTIONS, None, 1) is None


@pytest.mark.slow  # it compares times
def test_metering__takes_less_than_a_hundredth_of_a_question(settings: Settings) -> None:
    rounds = 200
    with _metered(settings) as (engine, meter):
        acme = engine.tenant("acme", subject="ada")
        acme.ingest([SourceDocument(source=f"{number}", data=TEXT) for number in range(20)])
        acme.search("leave")
        started = time.thread_time()
        for number in range(rounds):
            acme.search(f"How many days of leave, case {number}?")
        search_s = time.thread_time() - started
        started = time.thread_time()
        for _ in range(rounds):
            # What a search adds: an account, the question, its tokens and its passages.
            with meter.charge(_reader("acme", "ada")):
                record(Quantity.QUESTIONS, 1)
                record(Quantity.EMBEDDED_TOKENS, 12, "model")
                record(Quantity.RERANKED_PASSAGES, 30, "cross")
        metering_s = time.thread_time() - started
    assert metering_s <= 0.01 * search_s, f"{metering_s / search_s:.4f}"


def test_ocr__is_charged_in_seconds(settings: Settings) -> None:
    pytest.importorskip("rapidocr")
    picture = Image.new("RGB", (800, 200), "white")
    ImageDraw.Draw(picture).text((40, 60), "Employees have twenty days of leave", fill="black", font_size=36)
    data = io.BytesIO()
    picture.save(data, "PNG")
    with _metered(settings, **{"ingestion.parsing.ocr": True, "ingestion.parsing.memory_mb": 2048}) as (engine, meter):
        report = engine.tenant("acme").ingest(SourceDocument(source="scan.png", data=data.getvalue()))
        assert report.failed == ()
        meter.flush()
        amounts = _totals(engine)
    assert 0 < amounts["ocr_seconds"] <= amounts["parsing_seconds"]
