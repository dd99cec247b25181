"""Documents through the queue: one version each, for who may see them, and nothing left behind."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ModelUnavailable, RequestError, SourceError
from kosmos_rag.core.types import EVERYONE, JobState
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts, LazyFunction, MaintenanceTask, WingJobs
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.handlers import EngineJobRunner
from kosmos_rag.worker.metrics import MAINTENANCE_FAILURES
from tests.integration.variants import opened
from tests.integration.worker.working import Work, assert_adds_up, open_channel, receive_all

pytestmark = pytest.mark.emptied_database


def test_upload__is_ingested_and_its_bytes_do_not_stay(engine: Engine, scope: Tenant, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling.", acl=("sales",), title="A note"))
    work()
    (result,) = engine.tenant("acme", principals=["sales"]).search("churn").hits
    assert (result.source, result.title) == ("note", "A note")
    assert engine.tenant("acme").search("churn").hits == ()
    assert _uploads(engine) == 0
    assert_adds_up(engine, scope)


def test_upload__the_same_fifty_times_at_once_is_one_version(engine: Engine, scope: Tenant, work: Work) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda _: scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling.")), range(50))
        )
    work()
    (document,) = scope.documents()
    assert document.version == 1
    uploads = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.DOCUMENT]
    assert len(uploads) == 1


def test_upload__rolled_back_leaves_neither_job_nor_bytes(engine: Engine, scope: Tenant) -> None:
    role = engine.database.worker
    document = SourceDocument(source="note", data=b"Churn is falling.")
    with pytest.raises(ZeroDivisionError), role.transaction(scope.id, [EVERYONE]) as connection:  # noqa: PT012
        scope.jobs.enqueue(document, connection=connection)
        _ = 1 / 0
    assert scope.jobs.find() == []
    assert _uploads(engine) == 0


def test_failed_upload__keeps_its_bytes_for_another_try(engine: Engine, scope: Tenant, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="broken.pdf", data=b"%PDF-1.7 nothing more"))
    work()
    (dead,) = scope.jobs.find(states=[JobState.DEAD])
    assert dead.code == "corrupt"
    assert _uploads(engine) == 1
    assert scope.jobs.retry() == [dead.id]
    work()
    assert scope.jobs.find(states=[JobState.DEAD])[0].id == dead.id


def test_listed_page_without_text__is_no_failure(engine: Engine, scope: Tenant, work: Work, folder: Path) -> None:
    page = folder / "_index.md"
    page.write_text("---\ntitle: Guides\n---\nThe guides.\n")
    scope.jobs.enqueue(folder)
    work()
    page.write_text("---\ntitle: Guides\n---\n")
    scope.jobs.enqueue(folder)
    work()
    assert scope.jobs.find(states=[JobState.DEAD]) == []
    assert not any(source.endswith("_index.md") for source in scope.sources())
    assert_adds_up(engine, scope)


def test_deletion__is_not_undone_by_a_job_that_waits_or_runs(engine: Engine, scope: Tenant, work: Work) -> None:
    document = SourceDocument(source="note", data=b"Churn is falling.")
    scope.ingest([document])
    scope.jobs.enqueue(replace(document, data=b"Churn is rising."))
    scope.jobs.enqueue(replace(document, source="other"))
    queue = Queue.open(engine.database, engine.settings.worker)
    tokens = {"other" in str(job.payload): job.token for job in queue.claim(10, kinds=[kinds.DOCUMENT], worker="w")}
    assert scope.delete("note") == 1
    assert not queue.renew([tokens[False]])
    queue.expire_leases([tokens[True]])
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now()")  # without the pause before the next attempt
    work()
    assert scope.sources() == ["other"]
    (cancelled,) = scope.jobs.find(states=[JobState.CANCELLED])
    assert cancelled.error == "the document was deleted"
    scope.jobs.enqueue(document)
    assert scope.delete("note") == 0
    work()
    assert scope.sources() == ["other"]


def test_retry__brings_no_deleted_document_back(scope: Tenant, work: Work) -> None:
    """To retry all jobs brings back no document that was deleted while its job waited, or after it had failed."""
    scope.jobs.enqueue(SourceDocument(source="broken.pdf", data=b"%PDF-1.7 nothing more"))
    work()
    scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling."))
    assert scope.delete(["broken.pdf", "note"]) == 0
    assert scope.jobs.retry() == []
    work()
    assert scope.sources() == []
    assert [job.state for job in scope.jobs.find(kinds=[kinds.DOCUMENT])] == [JobState.CANCELLED]


def test_retry__never_puts_an_old_version_over_a_newer_one(scope: Tenant, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="note.txt", data=bytes(256)))
    work()
    scope.jobs.enqueue(SourceDocument(source="note.txt", data=b"Churn is falling."))
    work()
    assert scope.jobs.retry() == []
    assert len(scope.documents()) == 1


@pytest.mark.own_database
def test_tenant__has_maintenance_from_its_first_job_on(engine: Engine, scope: Tenant, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder)
    work()
    periodic = {info.kind: info for info in scope.jobs.find(limit=100) if info.every_s is not None}
    assert set(periodic) == {kinds.MAINTAIN, kinds.RECONCILE, kinds.AUDIT}
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE every_s IS NOT NULL")
        connection.execute("INSERT INTO kosmos.uploads VALUES (%s, gen_random_uuid(), 'x', '2020-01-01')", [scope.id])
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    runner = EngineJobRunner(engine)
    # On a busy machine the runner returns jobs to the queue: their time slice is over.
    while jobs := queue.claim(10, kinds=list(periodic), worker="test"):
        runner.run(jobs, channel)
    assert _uploads(engine) == 0
    again = {info.kind: info.state for info in scope.jobs.find(limit=100) if info.every_s is not None}
    assert set(again.values()) == {JobState.SCHEDULED}


@pytest.mark.own_database
def test_maintenance__whose_handler_cannot_be_created_is_a_job_that_fails(
    engine: Engine, scope: Tenant, folder: Path
) -> None:
    scope.jobs.enqueue(folder)
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE every_s IS NOT NULL")
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    broken = MaintenanceTask(create_handler=LazyFunction("kosmos_rag.no_such_module:Handler"))
    jobs = queue.claim(10, kinds=[kinds.MAINTAIN], worker="test")
    EngineJobRunner(engine, WingJobs(maintenance=(broken,))).run(jobs, channel)
    (info,) = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.MAINTAIN]
    assert info.error is not None
    assert "no_such_module" in info.error


class FailingTask:
    """A part of maintenance that fails."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        raise ModelUnavailable(f"the model of {tenant} is away")


class CountingTask:
    """A part of maintenance that counts its runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        return {("runs", tenant): 1.0}


@pytest.mark.own_database
def test_maintenance__continues_after_a_part_that_fails(engine: Engine, scope: Tenant, folder: Path) -> None:
    scope.jobs.enqueue(folder)
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE every_s IS NOT NULL")
    queue = Queue.open(engine.database, engine.settings.worker)
    supervisor, channel = open_channel(queue)
    tasks = tuple(
        MaintenanceTask(create_handler=LazyFunction(f"{__name__}:{name}"))
        for name in ("FailingTask", "CountingTask", "FailingTask")
    )
    runner = EngineJobRunner(engine, WingJobs(maintenance=tasks))
    (job,) = queue.claim(10, kinds=[kinds.MAINTAIN], worker="test")
    runner.run([job], channel)
    counts = Counter[tuple[str, str]]()
    for message in receive_all(supervisor):
        counts.update(message.counts)
    assert counts["runs", "acme"] == 1
    assert counts[MAINTENANCE_FAILURES.name, "wings"] == 2
    (info,) = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.MAINTAIN]
    assert info.error is None


@pytest.mark.own_database
def test_months_of_the_log__without_an_administrator_are_asked_for_once(
    settings: Settings, database: DatabaseSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poor = settings.model_copy(update={"database": database.model_copy(update={"admin_url": None})})
    with opened(poor, {}) as engine:
        for name in ("acme", "beta"):
            engine.tenant(name).jobs.enqueue(folder)
        with psycopg.connect(database.admin_url or "") as connection:
            connection.execute("UPDATE kosmos.jobs SET run_at = now()")
        queue = Queue.open(engine.database, engine.settings.worker)
        _, channel = open_channel(queue)
        worker, jobs = EngineJobRunner(engine), queue.claim(10, kinds=[kinds.AUDIT], worker="test")
        assert len(jobs) == 2
        for job in jobs:
            worker.run([job], channel)
    assert sum("the months of the audit log need an administrator" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ({"kind": "carrier pigeon"}, RequestError, "kind must be one of"),
        (SourceDocument(source="", data=b"x"), SourceError, "source name ''"),
    ],
)
def test_enqueue__refuses_at_once_what_no_worker_could_do(
    scope: Tenant, item: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scope.jobs.enqueue(item)  # type: ignore[arg-type]
    assert scope.jobs.find() == []


@pytest.mark.parametrize("every", [timedelta(), timedelta(days=400)])
def test_enqueue__refuses_a_pause_that_no_clock_can_keep(scope: Tenant, folder: Path, every: timedelta) -> None:
    with pytest.raises(RequestError, match="give more than 0 seconds and at most 366 days"):
        scope.jobs.enqueue(folder, every=every)


def test_other_tenants__see_nothing_of_it(engine: Engine, scope: Tenant, work: Work, folder: Path) -> None:
    job = scope.jobs.enqueue(folder)
    work()
    other = engine.tenant("beta")
    assert other.jobs.find() == other.jobs.find(ids=[job]) == []
    assert other.jobs.runs() == []
    assert other.jobs.cancel([job]) == other.jobs.retry([job]) == []
    assert other.documents() == []


def _uploads(engine: Engine) -> int:
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        row = connection.execute("SELECT count(*) FROM kosmos.uploads").fetchone()
    assert row is not None
    return int(row[0])
