"""Passes over sources by workers: mirrored, not read twice, never emptied by accident, with ledgers that add up."""

import json
import os
import shutil
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from fpdf import FPDF

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import PERMISSION_FEED, IngestFailure, JobState
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.storage.events import record_events
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.handlers import EngineJobRunner, run_job
from kosmos_rag.worker.handlers.permissions import PermissionsHandler
from tests.integration.worker.working import (
    CountingEmbedder,
    Work,
    assert_adds_up,
    counts,
    last_run,
    open_channel,
    run_listing,
)
from tests.waiting import eventually

pytestmark = pytest.mark.emptied_database


def test_folder__is_mirrored_and_its_ledger_adds_up(engine: Engine, scope: Tenant, work: Work, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"new": 12, "failed": 1}
    assert last_run(scope).failures[0].code == "corrupt"
    assert len(scope.documents()) == 12
    assert scope.search("churn7").hits[0].source.endswith("page-7.md")

    (folder / "page-0.md").write_text("# Page 0\n\nIt says something else now.\n")
    (folder / "page-1.md").unlink()
    (folder / "page-12.md").write_text("# Page 12\n\nNew.\n")
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"new": 1, "changed": 1, "unchanged": 10, "removed": 1, "failed": 1}
    assert len(scope.documents()) == 12
    assert_adds_up(engine, scope)


def test_files_that_vanish_during_a_pass__are_no_failures(
    engine: Engine, scope: Tenant, work: Work, folder: Path
) -> None:
    """Files that are deleted during a pass are no failures and leave no dead jobs."""
    scope.jobs.enqueue(folder)
    work()
    (folder / "page-0.md").write_text("# Page 0\n\nIt says something else now.\n")
    (folder / "page-12.md").write_text("# Page 12\n\nNew.\n")
    scope.jobs.enqueue(folder)
    run_listing(engine)
    for name in ("page-0.md", "page-12.md"):
        (folder / name).unlink()
    work()
    assert counts(last_run(scope)) == {"unchanged": 11}
    assert last_run(scope).failures == ()
    assert scope.jobs.find(states=[JobState.DEAD]) == []
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"unchanged": 11, "removed": 1}


@pytest.mark.parametrize(("silence_s", "is_alive"), [(60.0, True), (0.2, False)])
def test_source_without_an_entry_for_long__shows_progress_up_to_a_limit(
    engine: Engine,
    scope: Tenant,
    empty_database: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
    *,
    silence_s: float,
    is_alive: bool,
) -> None:
    monkeypatch.setattr("kosmos_rag.worker.channel.HEARTBEAT_S", 0.05)
    monkeypatch.setattr("kosmos_rag.worker.handlers.sync.LISTING_SILENCE_S", silence_s)
    monkeypatch.setenv("SLOW_URL", empty_database.worker_url or "")
    query = "SELECT 'a' AS id, 'a text' AS text FROM pg_sleep(1.5)"
    scope.jobs.enqueue({"kind": "sql", "name": "slow", "url_env": "SLOW_URL", "query": query})
    assert (len(run_listing(engine)) >= 15) == is_alive  # a transaction reports progress too


def test_long_listing__shows_how_many_documents_it_has_so_far(
    scope: Tenant, work: Work, empty_database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONG_URL", empty_database.worker_url or "")
    rows = "SELECT n::text AS id, 'a text' AS text, pg_sleep(CASE n WHEN 1000 THEN 3 ELSE 0 END) FROM"
    query = f"{rows} generate_series(1, 1200) n"
    scope.jobs.enqueue({"kind": "sql", "name": "long", "url_env": "LONG_URL", "query": query})

    def shows_half() -> bool:
        return [(run.state, 500 <= run.seen <= 1000) for run in scope.jobs.runs()] == [("listing", True)]

    with ThreadPoolExecutor(1) as executor:
        passing = executor.submit(work)
        eventually(shows_half)
        scope.jobs.cancel([job.id for job in scope.jobs.find(limit=2000)])
        passing.result()


def test_listing_of_yesterday__is_repaired_by_the_listing_of_today(scope: Tenant, work: Work, tmp_path: Path) -> None:
    """A mirror or a replica may be behind for one pass."""
    file = tmp_path / "docs.jsonl"

    def pass_over(**texts: str) -> set[str]:
        file.write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name, text in texts.items()))
        scope.jobs.enqueue({"kind": "json_lines", "path": str(file), "root": "kb"})
        work()
        assert last_run(scope).failures == ()
        return {text for _, text in scope.texts()}

    yesterday = {"a": "about churn", "b": "about leave"}
    today = {"a": "about upsell", "c": "about referrals"}
    for texts in (yesterday, today, yesterday, today):
        assert pass_over(**texts) == set(texts.values())


def test_unchanged__is_neither_loaded_nor_embedded_again(
    scope: Tenant, work: Work, folder: Path, embedder: CountingEmbedder
) -> None:
    scope.jobs.enqueue(folder)
    work()
    embedded = embedder.texts
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"unchanged": 12}
    assert embedder.texts == embedded
    assert sum(info.kind == kinds.DOCUMENT for info in scope.jobs.find(limit=100)) == 12


def test_touched__is_loaded_found_unchanged_and_not_loaded_again(
    scope: Tenant, work: Work, folder: Path, embedder: CountingEmbedder
) -> None:
    scope.jobs.enqueue(folder)
    work()
    embedded = embedder.texts
    for file in folder.iterdir():
        os.utime(file, (1, 1))
    for jobs in (24, 24):
        scope.jobs.enqueue(folder)
        work()
        assert counts(last_run(scope)) == {"unchanged": 12}
        assert sum(info.kind == kinds.DOCUMENT for info in scope.jobs.find(limit=100)) == jobs
    assert embedder.texts == embedded


def test_ingested_directly__is_unchanged_for_the_worker(scope: Tenant, work: Work, folder: Path) -> None:
    scope.ingest(folder)
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"unchanged": 12}


def test_lost_mount__removes_nothing(scope: Tenant, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder)
    work()
    for file in folder.iterdir():
        file.unlink()
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"failed": 1}
    assert last_run(scope).failures[0].code == "empty_folder"
    assert len(scope.documents()) == 12


def test_mirror__of_a_folder_that_was_moved_is_read_from_there_and_changes_nothing(
    scope: Tenant, work: Work, folder: Path, tmp_path: Path, embedder: CountingEmbedder
) -> None:
    first = scope.jobs.enqueue(folder, every=timedelta(hours=1))
    work()
    before, embedded = {document.id for document in scope.documents()}, embedder.texts
    (tmp_path / "moved" / folder.name).mkdir(parents=True)
    with pytest.raises(RequestError, match=f"have the same root, and job {first} synchronises the first"):
        scope.jobs.enqueue(tmp_path / "moved" / folder.name, every=timedelta(hours=1))
    (tmp_path / "moved" / folder.name).rmdir()
    moved = folder.rename(tmp_path / "moved" / folder.name)
    assert scope.jobs.enqueue(moved, every=timedelta(hours=1)) == first, "a root has one mirror"
    assert scope.jobs.enqueue(moved, every=timedelta(hours=1), root="other") != first
    with pytest.raises(RequestError, match="root is for a path; a spec has a key of that name"):
        scope.jobs.enqueue({"kind": "folder", "path": str(moved)}, root="other")
    work()
    assert {document.id for document in scope.documents() if document.source.startswith(f"{folder.name}/")} == before
    assert len(scope.documents()) == 24
    assert embedder.texts == embedded, "texts of the other root are those of the first"


def test_job_of_an_earlier_name__fails_and_the_next_pass_does_its_work(
    engine: Engine, scope: Tenant, work: Work, folder: Path
) -> None:
    scope.jobs.enqueue(folder)
    run_listing(engine)
    with engine.database.worker.untenanted() as connection:
        connection.execute(
            "UPDATE kosmos.jobs SET payload = jsonb_set(payload, '{entry,source}', to_jsonb(%s || key))"
            " WHERE kind = %s",
            (f"{folder}/", kinds.DOCUMENT),
        )
    work()
    assert scope.documents() == []
    dead = scope.jobs.find(states=[JobState.DEAD])
    assert {(info.code, (info.error or "").partition("; ")[2]) for info in dead} == {
        ("not_found", "list the source again")
    }
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"new": 12}


def test_keep_missing__removes_nothing(scope: Tenant, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder, prune=False)
    work()
    (folder / "page-1.md").unlink()
    scope.jobs.enqueue(folder, prune=False)
    work()
    assert counts(last_run(scope)) == {"unchanged": 11}
    assert len(scope.documents()) == 12


def test_broken_file__is_not_read_again_until_it_changes(scope: Tenant, work: Work, folder: Path) -> None:
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    for _ in range(3):
        scope.jobs.enqueue(folder)
        work()
        assert last_run(scope).failures[0].code == "corrupt"
    assert len(scope.jobs.find(states=[JobState.DEAD])) == 1
    assert counts(last_run(scope)) == {"unchanged": 12, "failed": 1}
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more, and longer")
    scope.jobs.enqueue(folder)
    work()
    assert len(scope.jobs.find(states=[JobState.DEAD])) == 1
    pdf = FPDF()
    pdf.add_page()
    pdf.set_font("helvetica")
    pdf.cell(text="It can be read now.")
    pdf.output(str(folder / "broken.pdf"))
    scope.jobs.enqueue(folder)
    work()
    assert counts(last_run(scope)) == {"new": 1, "unchanged": 12}
    assert scope.jobs.find(states=[JobState.DEAD]) == []


def test_row_listed_twice__is_read_as_soon_as_it_is_alone(
    scope: Tenant, work: Work, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS_URL", f"sqlite:///{tmp_path}/tickets.db")
    source = {"kind": "sql", "name": "tickets", "url_env": "TICKETS_URL", "query": "SELECT id, text FROM ticket"}
    with closing(sqlite3.connect(tmp_path / "tickets.db", isolation_level=None)) as tickets:
        tickets.execute("CREATE TABLE ticket (id, text)")
        tickets.execute("INSERT INTO ticket VALUES (1, 'Churn is falling.'), (1, 'Churn is rising.')")
        scope.jobs.enqueue(source)
        work()
        assert counts(last_run(scope)) == {"failed": 2}
        tickets.execute("DELETE FROM ticket WHERE text LIKE '%rising%'")
    scope.jobs.enqueue(source)
    work()
    assert counts(last_run(scope)) == {"new": 1}


def test_pass__that_lost_its_lease_changes_nothing(engine: Engine, scope: Tenant, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder)
    work()
    (folder / "page-1.md").unlink()
    (folder / "page-13.md").write_text("New.")
    scope.jobs.enqueue(folder)
    queue = Queue.open(engine.database, engine.settings.worker)
    (sync,) = queue.claim(1, kinds=[kinds.SYNC], worker="zombie")
    queue.cancel(scope._tenant, [sync.id])
    EngineJobRunner(engine).run([sync], open_channel(queue)[1])
    assert len(scope.documents()) == 12
    assert queue.count_unfinished([kinds.DOCUMENT]) == 0


def test_source__that_is_paused_in_a_pass_goes_on_where_it_is_resumed(
    engine: Engine, scope: Tenant, work: Work, folder: Path
) -> None:
    scope.jobs.enqueue(folder, every=timedelta(minutes=5))
    work()
    (folder / "page-1.md").unlink()
    scope.jobs.enqueue(folder, every=timedelta(minutes=5))
    queue = Queue.open(engine.database, engine.settings.worker)
    (sync,) = queue.claim(1, kinds=[kinds.SYNC], worker="first")
    assert scope.jobs.cancel([sync.id]) == [sync.id]
    EngineJobRunner(engine).run([sync], open_channel(queue)[1])
    work()
    assert len(scope.documents()) == 12
    with engine.database.worker.untenanted() as connection:
        connection.execute("UPDATE kosmos.jobs SET finished_at = now() - interval '1 year' WHERE state = 'cancelled'")
    queue.prune(keep_days=7, keep_dead_days=30)
    assert scope.jobs.retry([sync.id]) == [sync.id], "a source may be paused for long"
    work()
    assert len(scope.documents()) == 11
    (info,) = scope.jobs.find(states=[JobState.SCHEDULED], kinds=[kinds.SYNC])
    assert (info.id, info.every_s) == (sync.id, 300)


def test_names_that_json_cannot_hold__fail_alone(scope: Tenant, work: Work, tmp_path: Path) -> None:
    lines = ['{"id": "a\\u0000b", "text": "one"}', '{"id": "a\\u0000b", "text": "two"}', '{"id": "c", "text": "three"}']
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    scope.jobs.enqueue({"kind": "json_lines", "path": tmp_path / "rows.jsonl", "id_field": "id", "text_field": "text"})
    work()
    run = last_run(scope)
    assert (run.state, run.new) == ("finished", 1)
    assert run.seen == run.new + run.failed


def test_every__looks_again(scope: Tenant, work: Work, folder: Path) -> None:
    scope.jobs.enqueue(folder, every=timedelta(minutes=5))
    work()
    (sync,) = [info for info in scope.jobs.find(limit=100) if info.kind == kinds.SYNC]
    assert (sync.state, sync.every_s) == (JobState.SCHEDULED, 300.0)


def test_collection__is_chunked_by_its_preset_by_workers_too(engine: Engine, work: Work, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("First.\n\nSecond.\n\nThird.\n")
    engine.tenant("acme").collections.create("kb", preset="keyword")
    scope = engine.tenant("acme", collection="kb")
    scope.jobs.enqueue(tmp_path)
    work()
    assert counts(last_run(scope)) == {"new": 1}
    [document] = scope.documents()
    assert (document.chunks, document.language) == (3, "simple")
    # To the library the same document is the same: both go by the preset.
    assert scope.ingest([tmp_path]).unchanged == 1
    scope.jobs.enqueue(tmp_path)
    work()
    assert counts(last_run(scope)) == {"unchanged": 1}


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
    assert counts(last_run(scope)) == {"changed": 1, "failed": 1}
    assert scope.documents() == []
    assert scope.sources() == [f"{tmp_path.name}/hr/leave.md"]


def test_source_with_a_permission_feed__is_readable_by_whom_the_feed_names(
    engine: Engine, scope: Tenant, work: Work, folder: Path, tmp_path: Path, embedder: CountingEmbedder
) -> None:
    feed = {
        "kind": "json_lines",
        "name": "wiki",
        "path": str(tmp_path / "feed.jsonl"),
        "document_prefix": f"{folder.name}/",
    }
    spec = {"kind": "folder", "path": str(folder), "permissions": feed}
    reader = engine.tenant("acme", principals=("ann",))

    def write(principals: list[str]) -> None:
        rows = [{"container": "space", "principals": principals}]
        rows += [{"document": f"page-{n}.md", "containers": ["space"]} for n in range(3)]
        (tmp_path / "feed.jsonl").write_text("\n".join(map(json.dumps, rows)))

    scope.jobs.enqueue(spec)
    work()
    (dead,) = scope.jobs.find(states=[JobState.DEAD])
    assert (dead.kind, dead.code) == (kinds.PERMISSIONS, "not_found")
    assert len(scope.sources()) == 12
    assert scope.documents() == reader.documents() == []
    write(["ann"])
    assert scope.jobs.enqueue_permissions(feed, every=timedelta(seconds=60)) != dead.id
    embedded = embedder.texts
    work()
    assert [document.source for document in reader.documents()] == [f"{folder.name}/page-{n}.md" for n in range(3)]
    # The document itself comes anew, and the feed is enqueued with its source: it keeps its interval.
    (folder / "page-0.md").write_text("# Page 0\n\nIt says something else now.\n")
    write(["ben"])
    scope.jobs.enqueue(spec)
    work()
    assert embedder.texts == embedded + 1
    assert reader.documents() == []
    assert len(engine.tenant("acme", principals=("ben",)).documents()) == 3
    (waiting,) = [info for info in scope.jobs.find(states=[JobState.SCHEDULED]) if info.kind == kinds.PERMISSIONS]
    assert (waiting.every_s, waiting.payload["feed"]["path"]) == (60.0, feed["path"])


def test_documents_without_readers__are_listed_for_operators(
    engine: Engine, scope: Tenant, work: Work, folder: Path, tmp_path: Path
) -> None:
    feed = {"kind": "json_lines", "name": "wiki", "path": str(tmp_path / "feed.jsonl"), "document_prefix": "kb/"}
    spec = {"kind": "folder", "path": str(folder), "root": "kb", "permissions": feed}
    engine.tenant("beta").ingest([SourceDocument(source="other.md", data=b"# Other", acl=(PERMISSION_FEED,))])
    scope.ingest([SourceDocument(source="public.md", data=b"# Public")])

    def list_warnings() -> list[str]:
        return [check.detail for check in diagnose(engine.settings) if check.name == "tenant acme" and check.ok]

    def write(names: list[str]) -> None:
        rows = [{"document": name, "principals": ["ann"]} for name in names]
        (tmp_path / "feed.jsonl").write_text("\n".join(map(json.dumps, rows)))

    assert (scope.list_unreadable(), list_warnings()) == ([], [])
    write([f"page-{number}.md" for number in (0, 1, 2, 3, 10, 11)])
    scope.jobs.enqueue(spec)
    work()
    (unreadable,) = scope.list_unreadable()
    names = tuple(f"kb/page-{number}.md" for number in range(4, 9))
    assert (unreadable.collection, unreadable.documents, unreadable.examples) == ("default", 6, names)
    (warning,) = list_warnings()
    assert warning.startswith("warning: nobody may read 6 documents of the collection default")
    assert warning.endswith("kb/page-8.md, …")
    assert engine.tenant("acme", collection="wiki").list_unreadable() == []
    write([f"page-{number}.md" for number in range(12)])
    scope.jobs.enqueue(spec)
    work()
    assert (scope.list_unreadable(), list_warnings()) == ([], [])


def test_events__name_failed_documents_and_sources(scope: Tenant, work: Work, folder: Path) -> None:
    scope.events.start()
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 nothing more")
    scope.jobs.enqueue(folder)
    work()
    events, position = scope.events.read(limit=1000)
    assert Counter(event.type for event in events) == {"document.published": 12, "document.failed": 1}
    (failure,) = (event for event in events if event.type == "document.failed")
    assert failure.data == {
        "document_id": str(scope.jobs.document_id(f"{folder.name}/broken.pdf")),
        "source": f"{folder.name}/broken.pdf",
        "code": "corrupt",
    }
    shutil.rmtree(folder)
    scope.jobs.enqueue({"kind": "folder", "path": str(folder)})
    work()
    events, _ = scope.events.read(position)
    assert [(event.type, event.data["source"], event.data["failures"]) for event in events] == [
        ("source.failed", folder.name, 1)
    ]
    assert events[0].data["code"] == "not_found"


def test_source__that_refuses_its_credentials_is_named_by_event_jobs_and_doctor(
    engine: Engine, scope: Tenant, work: Work, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"SHARED_CREDENTIALS_FILE": "/dev/null", "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    scope.events.start()
    scope.jobs.enqueue(folder)
    scope.jobs.enqueue({"kind": "s3", "bucket": "reports", "endpoint_url": "http://127.0.0.1:9"})
    work()
    events = [event for event in scope.events.read()[0] if event.type.startswith("source.")]
    assert [(event.type, event.data["code"]) for event in events] == [("source.expired", "no_permission")]
    assert "reports" in events[0].data["source"]
    (failure,) = scope.jobs.list_refused_sources()
    assert failure.source == events[0].data["source"]
    problems = [check.detail for check in diagnose(engine.settings) if check.name == "tenant acme" and not check.ok]
    assert len(problems) == 1
    assert problems[0].startswith(f"source {failure.source}: ")
    assert "no credentials" in problems[0]


def test_permission_feed__that_fails_is_named_by_jobs_and_doctor(
    engine: Engine, scope: Tenant, work: Work, folder: Path, tmp_path: Path
) -> None:
    """Readers stay as they were, which nobody would notice."""
    feed = tmp_path / "readers.jsonl"

    def run() -> list[str]:
        scope.jobs.cancel([job.id for job in scope.jobs.find(states=[JobState.SCHEDULED])])
        scope.jobs.enqueue_permissions(
            {"kind": "json_lines", "name": "wiki", "path": str(feed)}, every=timedelta(hours=1)
        )
        work()
        failures = scope.jobs.list_refused_sources()
        problems = [check.detail for check in diagnose(engine.settings) if check.name == "tenant acme" and not check.ok]
        assert problems == [f"source {failure.source}: {failure.message}" for failure in failures]
        return problems

    feed.write_text(json.dumps({"document": f"{folder.name}/page-1.md", "principals": ["ann"]}))
    assert run() == []
    feed.unlink()
    (problem,) = run()
    assert problem.startswith("source wiki (permission feed): readers.jsonl does not exist")
    feed.write_text(json.dumps({"document": f"{folder.name}/page-1.md", "principals": ["ben"]}))
    assert run() == []


@pytest.mark.parametrize("by", ["source", "metadata"])
def test_erasure__removes_names_from_events_of_documents_without_a_row(scope: Tenant, work: Work, by: str) -> None:
    scope.events.start()
    scope.jobs.enqueue(SourceDocument(source="ann.pdf", data=b"%PDF-1.7 nothing more", metadata={"person": "ann"}))
    work()
    scope.ingest([SourceDocument(source="ann.md", data=b"About Ann.", metadata={"person": "ann"})])
    if by == "source":
        scope.delete("ann.md")
    with scope.sessions.write() as connection:
        failure = IngestFailure(source="ann.pdf", code="denied", message="ann.pdf cannot be read")
        with record_events(connection, scope.id) as events:
            events.add_source_failure("default", "wiki", [failure])
    scope.erase(source="ann*") if by == "source" else scope.erase(metadata=("person", "ann"))
    recorded = [event.to_dict() for event in scope.events.read()[0]]
    assert len(recorded) == 4
    assert "ann" not in json.dumps(recorded)
    assert [event["data"]["message"] for event in recorded if event["type"] == "source.failed"] == ["erased"]


def test_stopped_pass_of_a_permission_feed__gives_its_job_back(
    engine: Engine, scope: Tenant, tmp_path: Path, work: Work, folder: Path
) -> None:
    scope.jobs.enqueue(folder)
    work()
    (tmp_path / "feed.jsonl").write_text(json.dumps({"document": f"{folder.name}/page-0.md", "principals": ["ann"]}))
    job_id = scope.jobs.enqueue_permissions(
        {"kind": "json_lines", "name": "wiki", "path": str(tmp_path / "feed.jsonl")}
    )
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    (job,) = queue.claim(1, kinds=[kinds.PERMISSIONS], worker="test")
    channel._revoked.add(job.token)  # as a message of the supervisor does
    run_job(PermissionsHandler(engine.database, engine.settings.ingestion), job, channel)
    assert engine.tenant("acme", principals=("ann",)).documents() == []
    (info,) = scope.jobs.find(ids=[job_id])
    assert info.state == JobState.QUEUED
    work()
    assert len(engine.tenant("acme", principals=("ann",)).documents()) == 1
