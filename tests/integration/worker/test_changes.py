"""Rows of PostgreSQL by change: an outbox that triggers feed, passes over it, and the thread that waits for it."""

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.app import app
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, RequestError, SourceError
from kosmos_rag.core.types import EVERYONE, PERMISSION_FEED, JobState
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.outbox import MAX_ROWS
from kosmos_rag.ingestion.sources.outbox.reading import OutboxDatabase, take_changes
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.sources.sql import SqlSource
from kosmos_rag.parsing import media_types
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import read_server_time
from kosmos_rag.worker.handlers.sync import SyncHandler
from kosmos_rag.worker.source_watch import SourceWatch
from tests.integration.worker.working import CountingEmbedder, Work, assert_adds_up, counts, last_run, open_channel
from tests.waiting import eventually

pytestmark = pytest.mark.emptied_database

Run = Callable[..., list[Any]]
SPEC: dict[str, Any] = {
    "kind": "sql",
    "name": "tickets",
    "url_env": "TICKETS_URL",
    "query": "SELECT t.id, t.body, t.readers, t.changed_at FROM ticket t",
    "text_column": "body",
    "acl_column": "readers",
    "version_column": "changed_at",
    "changes": {"tables": {"ticket": "id"}},
}
OUTBOX = "kosmos_rag_tickets"


@pytest.fixture
def helpdesk(empty_database: DatabaseSettings, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A database with tickets, whose owner has applied the script; runs statements in it."""
    monkeypatch.setenv("TICKETS_URL", empty_database.worker_url or "")
    with psycopg.connect(empty_database.admin_url or "", autocommit=True) as owner:
        owner.execute(
            "CREATE TABLE ticket (id integer PRIMARY KEY, body text, readers text[], changed_at timestamptz);"
            "GRANT SELECT ON ticket TO kosmos_worker"
        )
        for _ in range(2):  # the script may be applied again
            owner.execute(_open(settings).open_outbox().create_script().encode())

        def run(statement: str, *values: object) -> list[Any]:
            cursor = owner.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


def _open(settings: Settings, spec: Mapping[str, Any] = SPEC) -> SqlSource:
    source = create_source(spec, settings.ingestion)
    assert isinstance(source, SqlSource)
    return source


@pytest.fixture
def follow(scope: Tenant, engine: Engine, helpdesk: Run, work: Work) -> Work:
    """Do the first pass; then return what a watch and a worker do for the changes since."""
    helpdesk(
        "INSERT INTO ticket SELECT n, 'ticket number ' || n || ' about churn' || n, ARRAY['everyone'], now()"
        " FROM generate_series(1, 20) n"
    )
    scope.jobs.enqueue(SPEC, every=timedelta(days=1))
    work()
    assert len(scope.documents()) == 20

    def run() -> None:
        watch = SourceWatch(engine.database, engine.settings)
        watch.refresh()
        for key in list(watch.watches):
            watch.look(key)
            watch.close(key)
        work()

    run()
    return run


def _find(scope: Tenant, question: str) -> list[str]:
    return [hit.source for hit in scope.search(question).hits if question in hit.text]


def test_changes__are_searchable_and_deleted_rows_are_gone(
    scope: Tenant, helpdesk: Run, follow: Work, embedder: CountingEmbedder
) -> None:
    helpdesk("UPDATE ticket SET body = 'now about upsell', changed_at = now() WHERE id = 3")
    helpdesk("INSERT INTO ticket VALUES (21, 'a new one about referrals', ARRAY['everyone'], now())")
    helpdesk("DELETE FROM ticket WHERE id = 5")
    embedder.texts = 0
    follow()
    assert _find(scope, "upsell") == ["sql://tickets/3"]
    assert _find(scope, "referrals") == ["sql://tickets/21"]
    assert _find(scope, "churn5") == []
    assert counts(last_run(scope)) == {"new": 1, "changed": 1, "removed": 1}
    assert embedder.texts == 2
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_rolled_back_changes__leave_nothing(scope: Tenant, helpdesk: Run, follow: Work) -> None:
    runs = len(scope.jobs.runs())
    helpdesk("BEGIN")
    helpdesk("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
    helpdesk("DELETE FROM ticket WHERE id = 4")
    helpdesk("ROLLBACK")
    follow()
    assert len(scope.jobs.runs()) == runs
    assert _find(scope, "churn4") == ["sql://tickets/4"]


def test_key_update__moves_the_document(scope: Tenant, helpdesk: Run, follow: Work) -> None:
    helpdesk("UPDATE ticket SET id = 300 WHERE id = 3")
    follow()
    assert _find(scope, "churn3") == ["sql://tickets/300"]
    assert counts(last_run(scope)) == {"new": 1, "removed": 1}


def test_truncate__removes_all_documents_though_the_source_is_empty(scope: Tenant, helpdesk: Run, follow: Work) -> None:
    helpdesk("TRUNCATE ticket")
    follow()
    assert scope.documents() == []
    assert last_run(scope).failures == ()


def test_permissions__change_without_embeddings_and_nobody_reads_what_has_none(
    scope: Tenant, engine: Engine, helpdesk: Run, follow: Work, embedder: CountingEmbedder
) -> None:
    embedder.texts = 0
    helpdesk("UPDATE ticket SET readers = ARRAY['group:hr'] WHERE id = 3")
    helpdesk("UPDATE ticket SET readers = NULL WHERE id = 4")
    helpdesk("UPDATE ticket SET readers = '{}' WHERE id = 5")
    helpdesk("UPDATE ticket SET readers = ARRAY[' '] WHERE id = 6")
    follow()
    hr = engine.tenant("acme", principals=["group:hr"])
    assert _find(scope, "churn3") == []
    assert [hit.source for hit in hr.search("churn3").hits] == ["sql://tickets/3"]
    for name in ("churn4", "churn5", "churn6"):
        assert _find(scope, name) == []
    assert embedder.texts == 0
    helpdesk("UPDATE ticket SET readers = ARRAY['everyone'] WHERE id = 4")
    follow()
    assert _find(scope, "churn4") == ["sql://tickets/4"]


def test_permissions__that_narrow_hold_before_the_document_is_read(
    scope: Tenant, engine: Engine, helpdesk: Run, follow: Work
) -> None:
    """The text of the row is too bad to be published, and its new readers are known all the same."""
    helpdesk("UPDATE ticket SET readers = ARRAY['group:hr'], body = NULL WHERE id = 3")
    follow()
    assert last_run(scope).failed == 1
    assert _find(scope, "churn3") == []
    hr = engine.tenant("acme", principals=["group:hr"])
    assert [hit.source for hit in hr.search("churn3").hits] == ["sql://tickets/3"]
    assert_adds_up(engine, scope)


def test_complete_pass__ends_access_at_once_and_gives_none(
    scope: Tenant, engine: Engine, helpdesk: Run, follow: Work, work: Work
) -> None:
    helpdesk("UPDATE ticket SET readers = ARRAY['group:hr'], body = NULL WHERE id IN (3, 4)")
    helpdesk("UPDATE ticket SET readers = ARRAY['group:hr', 'everyone'] WHERE id = 4")
    helpdesk(f"DELETE FROM {OUTBOX}")
    scope.jobs.enqueue(SPEC)
    work()
    hr = engine.tenant("acme", principals=["group:hr"])
    assert _find(scope, "churn3") == []
    assert [hit.source for hit in hr.search("churn3").hits] == ["sql://tickets/3"]  # everyone could read it before
    assert _find(scope, "churn4") == ["sql://tickets/4"]
    assert "sql://tickets/4" not in [hit.source for hit in hr.search("churn4").hits]


def test_readers__that_a_complete_pass_has_taken_return_with_the_row(
    scope: Tenant, helpdesk: Run, follow: Work, work: Work
) -> None:
    """The row is again as it was ingested, so its etag and its fingerprint are too."""
    ((body, readers),) = helpdesk("SELECT body, readers FROM ticket WHERE id = 3")
    for values, hits in (((None, ["group:hr"]), []), ((body, readers), ["sql://tickets/3"])):
        helpdesk("UPDATE ticket SET body = %s, readers = %s WHERE id = 3", *values)
        helpdesk(f"DELETE FROM {OUTBOX}")
        scope.jobs.enqueue(SPEC)
        work()
        assert _find(scope, "churn3") == hits


def test_readers__that_narrow_hold_for_a_part_whose_publication_the_pass_waits_for(
    scope: Tenant, engine: Engine, helpdesk: Run, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job publishes a part of a large file until the pass has its lock; the row cannot be read again."""
    helpdesk("INSERT INTO ticket VALUES (3, NULL, ARRAY['group:hr'], now())")
    cancel_documents = JobWriter.cancel_documents

    def publish(number: int) -> None:
        part, data = f"sql://tickets/orders.csv#part-{number}", b"about order%d" % number
        scope.ingest(SourceDocument(source=part, data=data, media_type=media_types.CSV))
        values = (scope.jobs.document_id("sql://tickets/orders.csv"), scope.jobs.document_id(part))
        with engine.database.worker.transaction(scope.jobs._owner.id, [EVERYONE]) as connection:
            connection.execute("UPDATE kosmos.documents SET file_id = %s WHERE id = %s", values)

    def publish_and_cancel(jobs: JobWriter, document_ids: Sequence[uuid.UUID]) -> None:
        publish(2)
        cancel_documents(jobs, document_ids)

    publish(1)
    monkeypatch.setattr(JobWriter, "cancel_documents", publish_and_cancel)
    query = "SELECT 'orders.csv' AS id, t.body, t.readers, t.changed_at FROM ticket t"
    scope.jobs.enqueue({**SPEC, "query": query, "changes": None})
    work()
    assert last_run(scope).failed == 1
    assert len(scope.sources()) == 2
    assert (_find(scope, "order1"), _find(scope, "order2")) == ([], [])


def _pass_while_loading(
    engine: Engine, scope: Tenant, spec: dict[str, Any], change: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change the table, and let a pass see it, while the next job that loads a row has read it."""
    queue = Queue.open(engine.database, engine.settings.worker)
    _, channel = open_channel(queue)
    load = SqlSource.load

    def load_and_pass(source: SqlSource, entry: Entry) -> SourceDocument:
        document = load(source, entry)
        monkeypatch.setattr(SqlSource, "load", load)
        change()
        scope.jobs.enqueue(spec)
        (job,) = queue.claim(1, kinds=[kinds.SYNC], worker="another")
        SyncHandler(engine.database, engine.ingest_pipeline).run(job, channel)
        return document

    monkeypatch.setattr(SqlSource, "load", load_and_pass)


def test_complete_pass__ends_access_by_a_job_that_has_read_a_row_and_not_published_it(
    scope: Tenant, engine: Engine, helpdesk: Run, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row gets fewer readers, and a text that cannot be published, while its first job runs."""
    helpdesk("INSERT INTO ticket VALUES (3, 'about churn3', ARRAY['everyone'], now())")
    spec = {**SPEC, "changes": None}
    statement = "UPDATE ticket SET readers = ARRAY['group:hr'], body = NULL, changed_at = now()"
    _pass_while_loading(engine, scope, spec, partial(helpdesk, statement), monkeypatch)
    scope.jobs.enqueue(spec)
    work()
    assert last_run(scope).failed == 1
    assert scope.sources() == []


def test_complete_pass__stops_a_job_that_has_read_other_readers_of_a_row_that_is_back_as_stored(
    scope: Tenant, engine: Engine, helpdesk: Run, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    helpdesk("INSERT INTO ticket VALUES (3, 'about churn3', ARRAY['ann'], '2026-01-01')")
    spec = {**SPEC, "changes": None}
    scope.jobs.enqueue(spec)
    work()
    helpdesk("UPDATE ticket SET readers = ARRAY['ann', 'ben'], changed_at = '2026-01-02'")
    statement = "UPDATE ticket SET readers = ARRAY['ann'], changed_at = '2026-01-01'"
    _pass_while_loading(engine, scope, spec, partial(helpdesk, statement), monkeypatch)
    scope.jobs.enqueue(spec)
    work()
    sources = {name: _find(engine.tenant(scope.name, principals=(name,)), "churn3") for name in ("ann", "ben")}
    assert sources == {"ann": ["sql://tickets/3"], "ben": []}
    assert not scope.jobs.find(states=[JobState.QUEUED, JobState.RUNNING], kinds=["document"])


def test_readers__of_a_row_are_those_that_it_had_when_it_was_listed_and_has_now(
    settings: Settings, helpdesk: Run
) -> None:
    helpdesk("INSERT INTO ticket VALUES (3, 'about churn3', ARRAY['ann', 'ben'], now())")
    source = _open(settings)
    (entry,) = source.listing()
    for readers, acl in ((["ben", "cid"], ("ben",)), (["everyone"], ("ann", "ben")), (["cid"], (PERMISSION_FEED,))):
        helpdesk("UPDATE ticket SET readers = %s", readers)
        assert source.load(entry).acl == acl


def test_readers__that_are_older_than_a_text_are_not_given_to_it(scope: Tenant, engine: Engine) -> None:
    """A pass has read the readers of a row before a job reads and publishes it."""
    document, acl = SourceDocument(source="sql://tickets/9", data=b"secret churn9", acl=("group:hr",)), ("everyone",)
    worker, key = engine.database.worker, scope.jobs.document_id(document.source)

    def write(read_at: datetime) -> int:
        with worker.transaction_with_events(scope.id, ["everyone"]) as (connection, events):
            documents = StoredDocuments(connection, scope.id)
            return documents.write_acls({key: acl}, collection="default", read_at=read_at, events=events)

    with worker.transaction(scope.id, ["everyone"]) as connection:
        before = read_server_time(connection)
    scope.ingest(document)
    with worker.transaction(scope.id, ["everyone"]) as connection:
        after = read_server_time(connection)
    assert write(before) == 0
    assert _find(scope, "churn9") == []
    assert write(after) == 1
    assert _find(scope, "churn9") == [document.source]


def test_burst__of_10000_changes_is_one_pass(scope: Tenant, settings: Settings, helpdesk: Run, follow: Work) -> None:
    helpdesk("INSERT INTO ticket SELECT n, 'row ' || n, ARRAY['everyone'], now() FROM generate_series(1001, 10000) n")
    for _ in range(5):
        helpdesk("UPDATE ticket SET body = body || '.' WHERE id BETWEEN 1001 AND 1200")
    with _open(settings).take_changes() as changes:
        entries = list(changes.listing)
        assert (len(entries), changes.removed, changes.compare_all, changes.has_more) == (9000, [], False, False)
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_changes__return_where_the_pass_fails(settings: Settings, helpdesk: Run, follow: Work) -> None:
    helpdesk("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
    with suppress(ZeroDivisionError), _open(settings).take_changes() as changes:
        list(changes.listing)
        raise ZeroDivisionError
    with _open(settings).take_changes() as changes:
        assert [entry.source for entry in changes.listing] == ["sql://tickets/3"]
    with _open(settings).take_changes() as changes:
        assert list(changes.listing) == []


def test_deletion__stops_a_job_that_has_read_the_row(scope: Tenant, helpdesk: Run, follow: Work) -> None:
    helpdesk("INSERT INTO ticket VALUES (21, 'a new one about referrals', ARRAY['everyone'], now())")
    (job,) = [scope.jobs.enqueue(SPEC)]
    helpdesk("DELETE FROM ticket WHERE id = 21")
    assert job
    follow()
    assert _find(scope, "referrals") == []


def test_outbox__that_nobody_reads_stops_and_is_reported(
    scope: Tenant, engine: Engine, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    helpdesk("UPDATE ticket SET body = body WHERE id = 1")
    helpdesk(f"UPDATE {OUTBOX} SET changed_at = now() - interval '1 hour'")
    (warning,) = [check.detail for check in diagnose(engine.settings) if "outbox of source" in check.detail]
    assert "tickets" in warning
    assert "60 minutes" in warning
    helpdesk(f"INSERT INTO {OUTBOX} (id, key) OVERRIDING SYSTEM VALUE VALUES ({2 * MAX_ROWS}, '1')")
    helpdesk("UPDATE ticket SET body = 'about upsell', changed_at = now() WHERE id = 3")
    helpdesk("DELETE FROM ticket WHERE id = 4")
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(2,)]
    follow()
    assert _find(scope, "upsell") == ["sql://tickets/3"]
    assert _find(scope, "churn4") == []
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]
    assert not [check for check in diagnose(engine.settings) if "outbox of source" in check.detail]


def _fill(helpdesk: Run) -> None:
    helpdesk(
        f"INSERT INTO {OUTBOX} (id, key) OVERRIDING SYSTEM VALUE VALUES ({2 * MAX_ROWS}, '1'), ({4 * MAX_ROWS}, '1')"
    )


@pytest.fixture
def view(helpdesk: Run, follow: Work) -> None:
    """Let the source read a view: a row over 600 has no id, and one with the text `bad` fails the query."""
    helpdesk("ALTER TABLE ticket RENAME TO ticket_row")
    helpdesk(
        "CREATE VIEW ticket AS SELECT CASE WHEN id < 600 THEN id END AS id, body, changed_at,"
        " CASE body WHEN 'bad' THEN ARRAY[(1 / (id - id))::text] ELSE readers END AS readers FROM ticket_row;"
        "GRANT SELECT ON ticket TO kosmos_worker"
    )


@pytest.mark.parametrize("is_truncated", [False, True], ids=["full", "truncated"])
def test_comparison__reports_a_bad_row_once_and_reads_the_others(
    scope: Tenant, helpdesk: Run, follow: Work, view: None, *, is_truncated: bool
) -> None:
    if is_truncated:
        helpdesk("TRUNCATE ticket_row")
    else:
        _fill(helpdesk)
    helpdesk("INSERT INTO ticket_row VALUES (601, 'without an id', ARRAY['everyone'], now())")
    helpdesk("INSERT INTO ticket_row VALUES (21, 'a new one about referrals', ARRAY['everyone'], now())")
    runs = len(scope.jobs.runs())
    for _ in range(2):
        follow()
        assert len(scope.jobs.runs()) == runs + 1
    assert "id is null" in last_run(scope).failures[0].message
    assert _find(scope, "referrals") == ["sql://tickets/21"]
    assert _find(scope, "churn5") == ["sql://tickets/5"]  # nobody knows whose row has no id
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_changes__of_a_row_that_fails_the_query_do_not_stop_the_others(
    scope: Tenant, helpdesk: Run, follow: Work, view: None
) -> None:
    helpdesk("UPDATE ticket_row SET body = 'about upsell', changed_at = now() WHERE id = 3")
    helpdesk("UPDATE ticket_row SET body = 'bad' WHERE id = 7")
    helpdesk("DELETE FROM ticket_row WHERE id = 9")
    runs = len(scope.jobs.runs())
    for _ in range(2):
        follow()
        assert len(scope.jobs.runs()) == runs + 1
    (failure,) = last_run(scope).failures
    assert failure.source == "sql://tickets/7"
    assert failure.message.startswith("sql://tickets/7: ")
    assert "division by zero" in failure.message
    assert _find(scope, "upsell") == ["sql://tickets/3"]
    assert _find(scope, "churn7") == ["sql://tickets/7"]  # the row is still there
    assert _find(scope, "churn9") == []


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(SELECT now() FROM generate_series(1, 2))", "more than one row"),
        ("fail_row()", "the row is bad"),
        ("'infinity'::timestamptz", "timestamp too large"),
    ],
    ids=["subquery", "function", "driver"],
)
def test_changes__of_a_row_with_bad_data_do_not_stop_the_others(
    scope: Tenant, helpdesk: Run, follow: Work, expression: str, message: str
) -> None:
    helpdesk(
        "CREATE FUNCTION fail_row() RETURNS timestamptz LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'the row is bad'; END $$;"
        "ALTER TABLE ticket RENAME TO ticket_row;"
        f"CREATE VIEW ticket AS SELECT id, body, readers, CASE body WHEN 'bad' THEN {expression} ELSE changed_at END"
        " AS changed_at FROM ticket_row; GRANT SELECT ON ticket TO kosmos_worker"
    )
    helpdesk("UPDATE ticket_row SET body = 'about upsell', changed_at = now() WHERE id = 3")
    helpdesk("UPDATE ticket_row SET body = 'bad' WHERE id = 7")
    follow()
    (failure,) = last_run(scope).failures
    assert failure.source == "sql://tickets/7"
    assert message in failure.message
    assert _find(scope, "upsell") == ["sql://tickets/3"]


@pytest.mark.parametrize(
    ("breaking", "mending"),
    [
        ("ALTER TABLE ticket RENAME changed_at TO updated_at", "ALTER TABLE ticket RENAME updated_at TO changed_at"),
        ("REVOKE SELECT ON ticket FROM kosmos_worker", "GRANT SELECT ON ticket TO kosmos_worker"),
    ],
    ids=["renamed", "revoked"],
)
def test_changes__return_where_the_query_itself_fails(
    scope: Tenant, helpdesk: Run, follow: Work, work: Work, breaking: str, mending: str
) -> None:
    helpdesk("UPDATE ticket SET body = 'about upsell', changed_at = now() WHERE id = 3")
    helpdesk("DELETE FROM ticket WHERE id = 4")
    helpdesk(breaking)
    follow()
    assert helpdesk(f"SELECT key FROM {OUTBOX} ORDER BY id") == [("3",), ("4",)]
    helpdesk(mending)
    scope.jobs.retry([job.id for job in scope.jobs.find(kinds=[kinds.SYNC]) if job.state == "dead"])
    work()
    assert _find(scope, "upsell") == ["sql://tickets/3"]
    assert _find(scope, "churn4") == []


@pytest.mark.parametrize("changed", [(3,), (3, 5)])
def test_changes__return_where_the_query_fails_on_every_row(
    scope: Tenant, helpdesk: Run, follow: Work, changed: tuple[int, ...]
) -> None:
    helpdesk(
        "ALTER TABLE ticket RENAME TO ticket_row;"
        "CREATE VIEW ticket AS SELECT id, body, readers, to_timestamp(1 / (id - id)) AS changed_at FROM ticket_row;"
        "GRANT SELECT ON ticket TO kosmos_worker"
    )
    helpdesk(f"UPDATE ticket_row SET body = 'about upsell' WHERE id = ANY ('{{{','.join(map(str, changed))}}}')")
    helpdesk("DELETE FROM ticket_row WHERE id = 4")
    follow()
    (job,) = scope.jobs.find(kinds=[kinds.SYNC], states=[JobState.DEAD])
    assert "division by zero" in str(job.error)
    assert {key for (key,) in helpdesk(f"SELECT key FROM {OUTBOX}")} == {"4", *map(str, changed)}


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        ("changed_at", "to_timestamp(1 / (body <> 'bad')::integer) > 'epoch'"),
        ("to_timestamp(1 / (body <> 'bad')::integer)", "true"),
    ],
    ids=["condition", "column"],
)
def test_changes__of_bad_rows_do_not_fail_the_pass_though_many_others_are_bad_too(
    scope: Tenant, helpdesk: Run, follow: Work, column: str, condition: str
) -> None:
    helpdesk(
        "ALTER TABLE ticket RENAME TO ticket_row;"
        f"CREATE VIEW ticket AS SELECT id, body, readers, {column} AS changed_at FROM ticket_row WHERE {condition};"
        "GRANT SELECT ON ticket TO kosmos_worker;"
        "ALTER TABLE ticket_row DISABLE TRIGGER USER;"
        "UPDATE ticket_row SET body = 'bad';"
        "INSERT INTO ticket_row SELECT n, CASE WHEN n > 40 THEN 'good' ELSE 'bad' END, '{everyone}', now()"
        " FROM generate_series(21, 240) n;"
        "ALTER TABLE ticket_row ENABLE TRIGGER USER"
    )
    helpdesk("UPDATE ticket_row SET changed_at = now() WHERE id IN (3, 5)")
    follow()
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]
    assert sorted(failure.source for failure in last_run(scope).failures) == ["sql://tickets/3", "sql://tickets/5"]


def test_comparison__that_fails_is_done_again_later_and_not_at_once(
    scope: Tenant, helpdesk: Run, follow: Work, view: None, work: Work
) -> None:
    _fill(helpdesk)
    helpdesk("UPDATE ticket_row SET body = 'bad', changed_at = now() WHERE id = 3")
    for _ in range(2):
        follow()
        (job,) = [job for job in scope.jobs.find(kinds=[kinds.SYNC]) if job.state == "dead"]
        assert "division by zero" in str(job.error)
        helpdesk("NOTIFY kosmos_rag_tickets")
    assert helpdesk(f"SELECT key, emptied FROM {OUTBOX} ORDER BY id LIMIT 1") == [(None, False)]
    helpdesk("UPDATE ticket_row SET body = 'about upsell' WHERE id = 3")
    scope.jobs.retry([job.id])
    work()
    assert _find(scope, "upsell") == ["sql://tickets/3"]
    follow()
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_comparison__records_what_changes_meanwhile(settings: Settings, helpdesk: Run, follow: Work) -> None:
    _fill(helpdesk)
    with _open(settings).take_changes() as changes:
        assert changes.compare_all
        helpdesk("UPDATE ticket SET body = 'about upsell', changed_at = now() WHERE id = 3")
    with _open(settings).take_changes() as changes:
        assert [entry.source for entry in changes.listing] == ["sql://tickets/3"]


def test_comparison__waits_for_changes_that_a_full_outbox_has_not_recorded(
    empty_database: DatabaseSettings, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    def take() -> list[Any]:
        with _open(settings).take_changes() as changes:
            assert changes.compare_all
            return helpdesk("SELECT body FROM ticket WHERE id = 3")

    _fill(helpdesk)
    with psycopg.connect(empty_database.admin_url or "") as writer, ThreadPoolExecutor(1) as executor:
        writer.execute("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
        comparison = executor.submit(take)
        eventually(lambda: helpdesk("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        writer.commit()
        assert comparison.result() == [("about upsell",)]


class _NoRows:
    """The rows of a query that has none."""

    def read_entries(self, connection: Any, keys: Sequence[str]) -> list[Any]:
        return []

    def list_keys(self, connection: Any, limit: int, *, at_random: bool) -> list[str]:
        return []


def _limit(settings: Settings, helpdesk: Run, max_rows: int) -> OutboxDatabase:
    """Return the outbox with a smaller limit; its triggers have it too."""
    database = _open(settings).open_outbox()
    database = replace(database, outbox=replace(database.outbox, max_rows=max_rows))
    helpdesk(database.create_script())
    return database


def _needs_comparison(database: OutboxDatabase) -> bool:
    with take_changes(database, _NoRows()) as changes:
        list(changes.listing)
        return changes.compare_all


def test_comparison__is_repeated_where_the_outbox_was_full_meanwhile(
    settings: Settings, helpdesk: Run, follow: Work
) -> None:
    database = _limit(settings, helpdesk, max_rows=10)
    _fill(helpdesk)
    with take_changes(database, _NoRows()) as changes:
        assert changes.compare_all
        helpdesk("UPDATE ticket SET body = body WHERE id BETWEEN 1 AND 10")
        helpdesk("UPDATE ticket SET body = 'about upsell' WHERE id = 13")
        assert helpdesk(f"SELECT count(*) FROM {OUTBOX} WHERE key = '13'") == [(0,)]
    assert _needs_comparison(database)
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_comparison__is_repeated_where_a_writer_has_not_committed_unrecorded_changes(
    empty_database: DatabaseSettings, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    database = _limit(settings, helpdesk, max_rows=10)
    _fill(helpdesk)
    with psycopg.connect(empty_database.admin_url or "") as writer:
        with take_changes(database, _NoRows()) as changes:
            assert changes.compare_all
            _change_more_than_the_limit(writer)
        writer.commit()
    assert _needs_comparison(database)


def _change_more_than_the_limit(writer: psycopg.Connection) -> None:
    """Change rows in an open transaction, the last of them unrecorded: the transaction itself has filled the outbox."""
    writer.execute("UPDATE ticket SET body = body WHERE id BETWEEN 6 AND 17")
    writer.execute("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
    (row,) = writer.execute(f"SELECT count(*) FROM {OUTBOX} WHERE key = '3'").fetchall()
    assert row == (0,)


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_pass__compares_where_a_writer_filled_the_outbox_while_it_waited(
    empty_database: DatabaseSettings, settings: Settings, helpdesk: Run, follow: Work, isolation: str
) -> None:
    ((name,),) = helpdesk("SELECT current_database()")
    helpdesk(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    database = _limit(settings, helpdesk, max_rows=10)
    helpdesk("UPDATE ticket SET body = body WHERE id = 1")
    with psycopg.connect(empty_database.admin_url or "") as writer, ThreadPoolExecutor(1) as executor:
        _change_more_than_the_limit(writer)
        needs_comparison = executor.submit(_needs_comparison, database)
        eventually(lambda: helpdesk("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        writer.commit()
        assert needs_comparison.result()
    assert not _needs_comparison(database)


def test_full_outbox__is_read_though_there_is_always_a_writer(
    empty_database: DatabaseSettings, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    _fill(helpdesk)
    url = empty_database.admin_url or ""
    with psycopg.connect(url) as writer, psycopg.connect(url) as later_writer, ThreadPoolExecutor(1) as executor:
        writer.execute("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
        needs_comparison = executor.submit(_needs_comparison, _open(settings).open_outbox())
        eventually(lambda: helpdesk("SELECT count(*) FROM pg_locks WHERE NOT granted") != [(0,)])
        later_writer.execute("UPDATE ticket SET body = 'about upsell' WHERE id = 4")
        writer.commit()
        try:
            assert needs_comparison.result(timeout=20)
        finally:
            later_writer.commit()
    assert helpdesk(f"SELECT key FROM {OUTBOX}") == [("4",)]


def test_truncate__of_a_full_outbox_removes_all_documents(scope: Tenant, helpdesk: Run, follow: Work) -> None:
    _fill(helpdesk)
    helpdesk("TRUNCATE ticket")
    follow()
    assert scope.documents() == []
    assert last_run(scope).failures == ()


def test_writer__with_a_snapshot_of_a_full_outbox_is_recorded_after_it_was_emptied(
    empty_database: DatabaseSettings, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    _fill(helpdesk)
    with psycopg.connect(empty_database.admin_url or "") as writer:
        writer.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        writer.execute("SELECT count(*) FROM ticket")
        with _open(settings).take_changes():
            pass
        writer.execute("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
    assert helpdesk(f"SELECT key FROM {OUTBOX}") == [("3",)]


def test_script__brings_an_earlier_outbox_up_to_date(
    scope: Tenant, settings: Settings, helpdesk: Run, follow: Work
) -> None:
    helpdesk(f"ALTER TABLE {OUTBOX} DROP COLUMN emptied; REVOKE INSERT ON {OUTBOX} FROM kosmos_worker")
    helpdesk(_open(settings).open_outbox().create_script())
    helpdesk("TRUNCATE ticket")
    follow()
    assert scope.documents() == []


def test_outbox__of_an_earlier_script_names_the_remedy(settings: Settings, helpdesk: Run, follow: Work) -> None:
    source = _open(settings)
    helpdesk(f"ALTER TABLE {OUTBOX} DROP COLUMN emptied")
    with pytest.raises(SourceError, match="apply the script again: `kosmos-rag enqueue"), source.take_changes():
        pass
    helpdesk(f"DROP TABLE {OUTBOX}")
    with pytest.raises(SourceError, match="apply the script again: `kosmos-rag enqueue"):
        source.watch().has_changes()


def test_two_comparisons__at_once_leave_no_mark(settings: Settings, helpdesk: Run, follow: Work) -> None:
    """A worker that lost its lease goes on, and another one has taken the job."""
    helpdesk("TRUNCATE ticket")
    with _open(settings).take_changes() as changes, _open(settings).take_changes() as other_changes:
        assert changes.emptied
        assert other_changes.emptied
    assert helpdesk(f"SELECT count(*) FROM {OUTBOX}") == [(0,)]


def test_watch__enqueues_a_pass_within_seconds_also_after_a_lost_connection(
    scope: Tenant, engine: Engine, helpdesk: Run, follow: Work, work: Work
) -> None:
    def freshness(statement: str, question: str) -> float:
        helpdesk(statement)
        began = time.monotonic()
        while not _find(scope, question):
            assert time.monotonic() - began < 60
            work()
            time.sleep(0.05)
        return time.monotonic() - began

    watch = SourceWatch(engine.database, engine.settings)
    with watch.run_in_background():
        eventually(lambda: len(watch.watches) == 1)
        assert freshness("UPDATE ticket SET body = 'about upsell' WHERE id = 3", "upsell") < 30
        # What a restart of the server does to its connections.
        helpdesk(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        freshness("UPDATE ticket SET body = 'about referrals' WHERE id = 4", "referrals")
        assert scope.jobs.find(kinds=[kinds.SYNC])


def test_watch__follows_no_source_whose_sync_is_cancelled(
    scope: Tenant, engine: Engine, helpdesk: Run, follow: Work
) -> None:
    scope.jobs.cancel([job.id for job in scope.jobs.find(kinds=[kinds.SYNC])])
    helpdesk("UPDATE ticket SET body = 'about upsell' WHERE id = 3")
    follow()
    assert _find(scope, "upsell") == []


def test_version_column__saves_reading_texts(settings: Settings, helpdesk: Run, follow: Work) -> None:
    etags = {entry.source: entry.etag for entry in _open(settings).listing()}
    helpdesk("UPDATE ticket SET body = 'same version' WHERE id = 3")
    helpdesk("UPDATE ticket SET changed_at = now() + interval '1 s' WHERE id = 4")
    helpdesk("UPDATE ticket SET readers = ARRAY['group:hr'] WHERE id = 5")
    later = {entry.source: entry.etag for entry in _open(settings).listing()}
    assert {name for name in etags if etags[name] != later[name]} == {"sql://tickets/4", "sql://tickets/5"}


def test_script__is_printed_by_enqueue(settings: Settings, helpdesk: Run, tmp_path: Path) -> None:
    file = tmp_path / "tickets.yaml"
    file.write_text(json.dumps(SPEC))
    result = CliRunner().invoke(app, ["enqueue", "--source", str(file), "--script"])
    assert result.exit_code == 0, result.output
    assert result.output.strip() == _open(settings).open_outbox().create_script().strip()
    assert "has no script" in CliRunner().invoke(app, ["enqueue", str(tmp_path), "--script"]).output


def test_spec__is_refused_where_it_cannot_be_followed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in (("acl", ["hr"]), ("name", "t" * 41), ("changes", {"tables": {}})):
        with pytest.raises(RequestError):
            _open(settings, SPEC | {key: value})
    monkeypatch.setenv("TICKETS_URL", f"sqlite:///{tmp_path}/tickets.sqlite")
    with pytest.raises(ConfigError, match="no URL of PostgreSQL"):
        _open(settings).open_outbox()
    with pytest.raises(ConfigError, match="has no changes"):
        _open(settings, {key: value for key, value in SPEC.items() if key != "changes"}).open_outbox()
