"""Documents through the queue: sources in, ledgers that add up, one version each, and nothing left behind."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument, TenantScope
from kosmos_rag.config import DatabaseSettings
from kosmos_rag.errors import RequestError, SourceError
from kosmos_rag.jobs import kinds
from kosmos_rag.jobs.ledger import Ledgers
from kosmos_rag.jobs.queue import Queue
from kosmos_rag.records import EVERYONE, JobState, RunInfo
from kosmos_rag.testing import HashingEmbedder
from kosmos_rag.worker.desk import Desk
from kosmos_rag.worker.maintenance import orphans
from kosmos_rag.worker.work import EngineWork
from tests.integration.variants import opened


class CountingEmbedder(HashingEmbedder):
    """Counts the texts that it is given."""

    texts = 0

    def embed(self, texts):
        self.texts += len(texts)
        return super().embed(texts)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def engine(settings: Settings, embedder: CountingEmbedder) -> Iterator[Engine]:
    with Engine(settings, embedder=embedder) as engine:
        yield engine


@pytest.fixture
def scope(engine: Engine) -> TenantScope:
    return engine.tenant("acme")


Work = Callable[[], None]


@pytest.fixture
def work(engine: Engine) -> Iterator[Work]:
    """Do all that is in the queue, as a worker's process does."""
    ours, theirs = multiprocessing.Pipe()
    queue = Queue.open(engine.parts.database, engine.settings.worker)
    desk = Desk(theirs, queue)
    working = EngineWork(engine)

    def run() -> None:
        while queue.unfinished([kinds.DOCUMENT, kinds.SYNC]):
            working.run(queue.take(64, kinds=kinds.ALL, worker="test"), desk)
            while ours.poll():
                ours.recv()
        Ledgers(engine.parts.database.worker).close()

    yield run
    working.close()
    # The desk takes the end of its pipe for the end of its supervisor, and exits: it must not see one.
    os.set_inheritable(ours.fileno(), True)
    _KEPT.append(ours)


_KEPT: list[object] = []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    folder.mkdir()
    for number in range(12):
        (folder / f"page-{number}.md").write_text(f"# Page {number}\n\nWhat page {number} says about churn{number}.\n")
    return folder


def _run(scope: TenantScope) -> RunInfo:
    return scope.jobs.runs()[0]


def _counts(run: RunInfo) -> dict[str, int]:
    assert run.state == "finished"
    assert run.seen == run.new + run.changed + run.unchanged + run.removed + run.failed
    names = ("new", "changed", "unchanged", "removed", "failed")
    return {name: getattr(run, name) for name in names if getattr(run, name)}


def _assert_adds_up(engine: Engine, scope: TenantScope) -> None:
    assert set(orphans(engine.parts.database, scope._tenant).values()) == {0}


def test_folder__is_mirrored_and_its_ledger_adds_up(
    engine: Engine, scope: TenantScope, work: Work, folder: Path
) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"new": 12, "failed": 1}
    assert _run(scope).failures[0].code == "corrupt"
    assert len(scope.documents()) == 12
    assert scope.retrieve("churn7").hits[0].source.endswith("page-7.md")

    (folder / "page-0.md").write_text("# Page 0\n\nIt says something else now.\n")
    (folder / "page-1.md").unlink()
    (folder / "page-12.md").write_text("# Page 12\n\nNew.\n")
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"new": 1, "changed": 1, "unchanged": 10, "removed": 1, "failed": 1}
    assert len(scope.documents()) == 12
    _assert_adds_up(engine, scope)


def test_unchanged__is_neither_loaded_nor_embedded_again(
    scope: TenantScope, work: Work, folder: Path, embedder: CountingEmbedder
) -> None:
    scope.jobs.enqueue(folder)
    work()
    embedded = embedder.texts
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"unchanged": 12}
    assert embedder.texts == embedded
    assert sum(info.kind == kinds.DOCUMENT for info in scope.jobs.find(limit=100)) == 12


def test_touched__is_loaded_found_unchanged_and_not_loaded_again(
    scope: TenantScope, work: Work, folder: Path, embedder: CountingEmbedder
) -> None:
    scope.jobs.enqueue(folder)
    work()
    embedded = embedder.texts
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    for jobs in (24, 24):
        scope.jobs.enqueue(folder)
        work()
        assert _counts(_run(scope)) == {"unchanged": 12}
        assert sum(info.kind == kinds.DOCUMENT for info in scope.jobs.find(limit=100)) == jobs
    assert embedder.texts == embedded


def test_ingested_directly__is_unchanged_for_the_worker(scope: TenantScope, work: Work, folder: Path) -> None:
    scope.ingest(folder)
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"unchanged": 12}


def test_lost_mount__removes_nothing(scope: TenantScope, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder)
    work()
    for file in folder.iterdir():
        file.unlink()
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"failed": 1}
    assert _run(scope).failures[0].code == "empty_folder"
    assert len(scope.documents()) == 12


def test_keep_missing__removes_nothing(scope: TenantScope, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder, prune=False)
    work()
    (folder / "page-1.md").unlink()
    scope.jobs.enqueue(folder, prune=False)
    work()
    assert _counts(_run(scope)) == {"unchanged": 11}
    assert len(scope.documents()) == 12


def test_upload__is_ingested_and_its_bytes_do_not_stay(engine: Engine, scope: TenantScope, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling.", readers=("sales",), title="A note"))
    work()
    (found,) = engine.tenant("acme", principals=["sales"]).retrieve("churn").hits
    assert (found.source, found.title) == ("note", "A note")
    assert engine.tenant("acme").retrieve("churn").hits == ()
    assert _uploads(engine) == 0
    _assert_adds_up(engine, scope)


def test_upload__the_same_fifty_times_at_once_is_one_version(engine: Engine, scope: TenantScope, work: Work) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda _: scope.jobs.enqueue(SourceDocument(source="note", data=b"Churn is falling.")), range(50))
        )
    work()
    (document,) = scope.documents()
    assert document.version == 1
    done = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.DOCUMENT]
    assert len(done) == 1


def test_upload__rolled_back_leaves_neither_job_nor_bytes(engine: Engine, scope: TenantScope) -> None:
    role = engine.parts.database.worker
    document = SourceDocument(source="note", data=b"Churn is falling.")
    with pytest.raises(ZeroDivisionError), role.transaction(scope.id, [EVERYONE]) as connection:  # noqa: PT012
        scope.jobs.enqueue(document, connection=connection)
        _ = 1 / 0
    assert scope.jobs.find() == []
    assert _uploads(engine) == 0


def test_failed_upload__keeps_its_bytes_for_another_try(engine: Engine, scope: TenantScope, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="broken.pdf", data=b"%PDF-1.7 nothing more"))
    work()
    (dead,) = scope.jobs.find(states=[JobState.DEAD])
    assert dead.code == "corrupt"
    assert _uploads(engine) == 1
    assert scope.jobs.retry() == [dead.id]
    work()
    assert scope.jobs.find(states=[JobState.DEAD])[0].id == dead.id


def test_broken_file__is_not_read_again_until_it_changes(scope: TenantScope, work: Work, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    for _ in range(3):
        scope.jobs.enqueue(folder)
        work()
        assert _run(scope).failures[0].code == "corrupt"
    assert len(scope.jobs.find(states=[JobState.DEAD])) == 1
    assert _counts(_run(scope)) == {"unchanged": 12, "failed": 1}
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more, and longer")
    scope.jobs.enqueue(folder)
    work()
    assert len(scope.jobs.find(states=[JobState.DEAD])) == 1
    (folder / "broken.pdf").write_text("It was no PDF after all.")
    scope.jobs.enqueue(folder)
    work()
    assert _counts(_run(scope)) == {"new": 1, "unchanged": 12}
    assert scope.jobs.find(states=[JobState.DEAD]) == []


def test_retry__never_puts_an_old_version_over_a_newer_one(scope: TenantScope, work: Work) -> None:
    scope.jobs.enqueue(SourceDocument(source="note.pdf", data=b"%PDF-1.7 nothing more"))
    work()
    scope.jobs.enqueue(SourceDocument(source="note.pdf", data=b"Churn is falling."))
    work()
    assert scope.jobs.retry() == []
    assert len(scope.documents()) == 1


def test_pass__that_lost_its_lease_changes_nothing(
    engine: Engine, scope: TenantScope, work: Work, folder: Path
) -> None:
    scope.jobs.enqueue(folder)
    work()
    (folder / "page-1.md").unlink()
    (folder / "page-13.md").write_text("New.")
    scope.jobs.enqueue(folder)
    queue = Queue.open(engine.parts.database, engine.settings.worker)
    (sync,) = queue.take(1, kinds=[kinds.SYNC], worker="zombie")
    queue.cancel(scope._tenant, [sync.id])
    ours, theirs = multiprocessing.Pipe()
    _KEPT.append(ours)
    EngineWork(engine).run([sync], Desk(theirs, queue))
    assert len(scope.documents()) == 12
    assert queue.unfinished([kinds.DOCUMENT]) == 0


def test_names_that_json_cannot_hold__fail_alone(scope: TenantScope, work: Work, tmp_path: Path) -> None:
    lines = ['{"id": "a\\u0000b", "text": "one"}', '{"id": "a\\u0000b", "text": "two"}', '{"id": "c", "text": "three"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    scope.jobs.enqueue({"kind": "json_lines", "path": tmp_path / "rows.jsonl", "id_field": "id", "text_field": "text"})
    work()
    run = _run(scope)
    assert (run.state, run.new) == ("finished", 1)
    assert run.seen == run.new + run.failed


def test_every__looks_again(scope: TenantScope, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder, every=timedelta(minutes=5))
    work()
    (sync,) = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.SYNC]
    assert (sync.state, sync.every_s) == (JobState.SCHEDULED, 300.0)


def test_tenant__has_maintenance_from_its_first_job_on(
    engine: Engine, scope: TenantScope, work: Work, folder: Path
) -> None:
    scope.jobs.enqueue(folder)
    work()
    periodic = {info.kind: info for info in scope.jobs.find(limit=100) if info.every_s is not None}
    assert set(periodic) == {kinds.MAINTAIN, kinds.RECONCILE, kinds.AUDIT}
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        connection.execute("UPDATE kosmos.jobs SET run_at = now() WHERE every_s IS NOT NULL")
        connection.execute("INSERT INTO kosmos.uploads VALUES (%s, gen_random_uuid(), 'x', '2020-01-01')", [scope.id])
    queue = Queue.open(engine.parts.database, engine.settings.worker)
    ours, theirs = multiprocessing.Pipe()
    _KEPT.append(ours)
    desk = Desk(theirs, queue)
    EngineWork(engine).run(queue.take(10, kinds=list(periodic), worker="test"), desk)
    assert _uploads(engine) == 0
    again = {info.kind: info.state for info in scope.jobs.find(limit=100) if info.every_s is not None}
    assert set(again.values()) == {JobState.SCHEDULED}


def test_months_of_the_log__without_an_administrator_are_asked_for_once(
    settings: Settings, database: DatabaseSettings, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poor = settings.model_copy(update={"database": database.model_copy(update={"admin_url": None})})
    with opened(poor, {}) as engine:
        for name in ("acme", "beta"):
            engine.tenant(name).jobs.enqueue(folder)
        with psycopg.connect(database.admin_url or "") as connection:
            connection.execute("UPDATE kosmos.jobs SET run_at = now()")
        queue = Queue.open(engine.parts.database, engine.settings.worker)
        ours, theirs = multiprocessing.Pipe()
        _KEPT.append(ours)
        worker, jobs = EngineWork(engine), queue.take(10, kinds=[kinds.AUDIT], worker="test")
        assert len(jobs) == 2
        for job in jobs:
            worker.run([job], Desk(theirs, queue))
    assert sum("the months of the audit log need an administrator" in record.message for record in caplog.records) == 1


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ({"kind": "carrier pigeon"}, RequestError, "kind must be one of"),
        (SourceDocument(source="", data=b"x"), SourceError, "source name ''"),
    ],
)
def test_enqueue__refuses_at_once_what_no_worker_could_do(
    scope: TenantScope, item: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scope.jobs.enqueue(item)  # type: ignore[arg-type]
    assert scope.jobs.find() == []


def test_other_tenants__see_nothing_of_it(engine: Engine, scope: TenantScope, work: Work, folder: Path) -> None:
    job = scope.jobs.enqueue(folder)
    work()
    other = engine.tenant("beta")
    assert other.jobs.find() == other.jobs.find(ids=[job]) == other.jobs.runs() == []
    assert other.jobs.cancel([job]) == other.jobs.retry([job]) == []
    assert other.documents() == []


def test_collection__is_chunked_by_its_preset_by_workers_too(engine: Engine, work: Work, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("First.\n\nSecond.\n\nThird.\n")
    engine.tenant("acme").collections.create("kb", preset="keyword")
    scope = engine.tenant("acme", collection="kb")
    scope.jobs.enqueue(tmp_path)
    work()
    assert _counts(_run(scope)) == {"new": 1}
    [document] = scope.documents()
    assert (document.chunks, document.language) == (3, "simple")
    # To the library the same document is the same: both go by the preset.
    assert scope.ingest([tmp_path]).unchanged == 1
    scope.jobs.enqueue(tmp_path)
    work()
    assert _counts(_run(scope)) == {"unchanged": 1}


def test_departments__that_begin_to_decide_leave_nothing_open(engine: Engine, work: Work, tmp_path: Path) -> None:
    (tmp_path / "hr").mkdir()
    (tmp_path / "hr" / "leave.md").write_text("Leave is twenty days.\n")
    (tmp_path / "loose.md").write_text("Salaries.\n")
    scope = engine.tenant("acme", collection="kb")
    scope.jobs.enqueue(tmp_path)
    work()
    assert len(scope.documents()) == 2
    scope.collections.create("kb", preset="corporate-enforced")
    scope.jobs.enqueue(tmp_path)
    work()
    assert _counts(_run(scope)) == {"changed": 1, "failed": 1}
    assert scope.documents() == []
    assert scope.sources() == [str(tmp_path / "hr" / "leave.md")]


def _uploads(engine: Engine) -> int:
    with psycopg.connect(engine.settings.database.admin_url or "") as connection:
        row = connection.execute("SELECT count(*) FROM kosmos.uploads").fetchone()
    assert row is not None
    return int(row[0])
