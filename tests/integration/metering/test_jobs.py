"""Jobs: what they are charged to, and what maintenance keeps of usage."""

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta

import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.telemetry.metrics import Metric
from kosmos_rag.core.types import Job
from kosmos_rag.engine.job_kinds import JobCounts
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.metering.jobs import UsageMaintenance
from kosmos_rag.metering.limits import begin_period
from kosmos_rag.metering.records import UsageAmount
from kosmos_rag.metering.store import UsageRow, UsageStore, insert_rows
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.variants import changed
from tests.integration.worker.conftest import work
from tests.integration.worker.working import Work

pytestmark = pytest.mark.emptied_database

__all__ = ["work"]

DATA = b"Churn is falling."


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """An engine whose meter writes at once."""
    with Engine(changed(settings, {"metering.flush_s": 0.02}), embedder=HashingEmbedder()) as opened:
        yield opened


class _Silent:
    """A channel of a task that takes no time to report."""

    def report_progress(self) -> None:
        raise AssertionError

    def heartbeat(self, limit_s: float) -> AbstractContextManager[None]:
        raise AssertionError(limit_s)

    def report_gauges(self, tenant: str, values: Mapping[Metric, float], *, hold_s: float) -> None:
        raise AssertionError(tenant, values, hold_s)

    def report_counts(self, counts: JobCounts) -> None:
        raise AssertionError(counts)

    def require_running(self, job: Job) -> None:
        raise AssertionError(job)

    def finish(self, job: Job) -> None:
        raise AssertionError(job)


def _read(engine: Engine, quantity: str, *dimensions: str) -> list[UsageAmount]:
    """Return the amounts of a quantity as soon as there are some."""
    for _ in range(200):
        report = UsageStore(engine.tenant("acme")).read(by=dimensions)
        if rows := [row for row in report.amounts if row.quantity == quantity]:
            return rows
        time.sleep(0.05)
    return []


@pytest.mark.parametrize(("uploader", "charged_to"), [("key:loader", "key:loader"), ("ada", None)])
def test_upload__is_charged_to_its_key_and_to_no_person(
    engine: Engine, work: Work, uploader: str, charged_to: str | None
) -> None:
    tenant = engine.tenant("acme", collection="wiki", subject=uploader)
    writer = tenant.uploads.open()
    writer.write(DATA)
    tenant.uploads.enqueue(SourceDocument(source="note.md", data=b""), writer.finish())
    work()
    rows = _read(engine, "bytes", "collection", "subject")
    assert [(row.collection, row.subject, row.amount) for row in rows] == [("wiki", charged_to, len(DATA))]


def test_upload__of_an_erased_key_is_charged_to_the_collection_alone(engine: Engine, work: Work) -> None:
    tenant = engine.tenant("acme", collection="wiki", subject="key:loader")
    writer = tenant.uploads.open()
    writer.write(DATA)
    tenant.uploads.enqueue(SourceDocument(source="note.md", data=b""), writer.finish())
    assert tenant.erase(subject="key:other").erased == {}
    assert tenant.erase(subject="key:loader").erased == {"jobs": 1}
    work()
    rows = _read(engine, "bytes", "collection", "subject")
    assert [(row.collection, row.subject, row.amount) for row in rows] == [("wiki", None, len(DATA))]


def test_maintenance__records_what_is_stored(engine: Engine) -> None:
    engine.tenant("acme").ingest(SourceDocument(source="note.md", data=DATA))
    maintenance = UsageMaintenance(engine)
    for _ in range(2):
        assert maintenance.run("acme", _Silent()) == {}
    rows = _read(engine, "stored_bytes", "collection")
    assert [(row.collection, row.amount) for row in rows] == [("default", len(DATA))]


def _store_twice(tenant: Tenant, *days: int) -> None:
    """Store two rows of one account in an hour of each age."""
    hours = [begin_period("hour", datetime.now(UTC)) - timedelta(days=number) for number in days]
    rows = [
        UsageRow(
            id=uuid.uuid4(), hour=hour, collection="wiki", subject=None, quantity="questions", model=None, amount=1.0,
            cost=None,
        )
        for hour in hours
        for _ in range(2)
    ]  # fmt: skip
    with tenant.sessions.write() as connection:
        insert_rows(connection, tenant.id, rows)


def _count_rows(tenant: Tenant) -> list[int]:
    """Return the number of rows in each hour, the newest first."""
    with tenant.sessions.write() as connection:
        rows = connection.execute(
            "SELECT count(*) FROM kosmos.usage WHERE tenant_id = %s AND quantity = 'questions' "
            "GROUP BY hour ORDER BY hour DESC",
            [tenant.id],
        ).fetchall()
    return [count for (count,) in rows]


def test_maintenance__joins_all_hours_once_a_day_and_those_of_a_week_each_time(engine: Engine) -> None:
    """After an outage of the worker the hours before it stayed apart."""
    tenant = engine.tenant("acme")
    tenant.ingest(SourceDocument(source="note.md", data=DATA))
    maintenance = UsageMaintenance(engine)
    _store_twice(tenant, 5, 100)
    maintenance.run("acme", _Silent())
    assert _count_rows(tenant) == [1, 1]
    _store_twice(tenant, 6, 8)
    maintenance.run("acme", _Silent())
    assert _count_rows(tenant) == [1, 1, 2, 1]
    UsageMaintenance(engine).run("acme", _Silent())
    assert _count_rows(tenant) == [1, 1, 1, 1]
