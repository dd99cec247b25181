"""Erasure: no table and no file has what was erased, everything else is as it was, and a record says so."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Timer
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, IngestionError, RequestError
from kosmos_rag.core.types import EVERYONE, Filter
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.engine.uploads import StoredUpload
from kosmos_rag.indexing.ann import physical_indexes
from kosmos_rag.ingestion.discovery import PendingDocument, discover
from kosmos_rag.ingestion.report import ReportBuilder
from kosmos_rag.models.embedding.registry import create_registry
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage import erasure
from kosmos_rag.storage.audit.partitions import add_months
from kosmos_rag.storage.erasure import EXEMPT_TABLES, TENANT_TABLES, _delete_rows
from kosmos_rag.storage.expected_catalog import TABLES, VERSION
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.uploads import UploadStore
from kosmos_rag.storage.queue.writing import JobLeases
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, ensure_tenant
from kosmos_rag.worker.handlers.maintenance import count_orphans
from tests.conftest import shares_database
from tests.integration.variants import opened

SECRET = "xylophonist"
"""A word of one document alone, in its text, name and metadata."""
DOCUMENT = SourceDocument(
    source=f"people/{SECRET}.md",
    data=f"# {SECRET}\n\nThe salary of {SECRET} is 4,711 a month.".encode(),
    metadata={"employee": SECRET, "tags": [SECRET, "salary"]},
)
OTHERS = [
    SourceDocument(source="people/rules.md", data=b"A salary is paid on the last day of a month."),
    SourceDocument(source="people_xmd", data=b"Travel is paid after the journey."),
]


LOGGED = {"rag.audit.enabled": True, "rag.retrieval.result_cache": 10}

pytestmark = pytest.mark.usefixtures("tenant_name")


@pytest.fixture(scope="module")
def shared_logged(loaded_settings: Settings, shared_database: DatabaseSettings) -> Iterator[Engine]:
    """An engine with an audit log and a result cache, over the database of this process."""
    with opened(loaded_settings.model_copy(update={"database": shared_database}), LOGGED) as engine:
        yield engine


@pytest.fixture
def logged(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Engine]:
    """An engine with an audit log and a result cache; that of the module unless the test has a database."""
    if shares_database(request):
        yield request.getfixturevalue("shared_logged")
    else:
        with opened(settings, LOGGED) as engine:
            yield engine


@pytest.fixture
def acme(logged: Engine, tenant_name: str) -> Tenant:
    """A tenant with traces of a document and of its reader in many tables."""
    tenant = logged.tenant(tenant_name, subject="lovelace")
    tenant.ingest([DOCUMENT, *OTHERS])
    logged.tenant(tenant_name, collection="wiki").ingest([DOCUMENT])
    hit = tenant.search("salary of the people").hits[0]
    tenant.feedback("up", question="salary", chunk_id=hit.chunk_id, comment="as agreed")
    tenant.jobs.enqueue(DOCUMENT)
    logged.tenant(f"{tenant_name}-other").ingest([DOCUMENT])
    return tenant


def count_rows(database: DatabaseSettings, text: str, *, tenant: Tenant | None = None) -> dict[str, int]:
    """Count the rows with a text by table, of one tenant or of all."""
    result = {}
    with psycopg.connect(database.admin_url or "") as connection:
        for table in sorted(TABLES - {VERSION}):
            condition = sql.SQL("convert_from(textsend(t::text), 'UTF8') ILIKE {}").format(sql.Literal(f"%{text}%"))
            if table == "uploads":
                condition = sql.SQL("encode(t.data, 'escape') ILIKE {}").format(sql.Literal(f"%{text}%"))
            if tenant is not None:
                condition += sql.SQL(" AND t.tenant_id = {}").format(sql.Literal(tenant.id))
            query = sql.SQL("SELECT count(*) FROM {} t WHERE ").format(sql.Identifier("kosmos", table)) + condition
            ((count,),) = connection.execute(query).fetchall()
            if count:
                result[table] = count
    return result


def test_every_table__is_erased_with_its_tenant_or_exempt() -> None:
    """Every table is erased with its tenant, or a list names it as an exception."""
    assert TABLES - {VERSION} == {*TENANT_TABLES, *EXEMPT_TABLES}


@pytest.mark.parametrize(
    "selector",
    [
        {"source": f"people/{SECRET}.md"},
        {"source": f"*{SECRET}*"},
        {"source": "people/xylo?honist.m?"},
        {"metadata": ("employee", SECRET)},
        {"metadata": ("tags", SECRET)},
    ],
)
def test_documents__leave_no_table_but_the_audit_log(
    acme: Tenant, logged: Engine, database: DatabaseSettings, tenant_name: str, selector: dict[str, Any]
) -> None:
    """Erased documents leave no row in any table but the audit log, and other tenants keep theirs."""
    before = count_rows(database, SECRET, tenant=acme)
    assert before.keys() >= {"documents", "document_versions", "chunks", "lexemes", "jobs", "uploads", "audit_passages"}
    preview = acme.erase(**selector, preview=True)
    assert count_rows(database, SECRET, tenant=acme) == before
    report = acme.erase(**selector)
    assert preview.erased == report.erased
    assert (preview.number, report.number) == (None, 1)
    assert report.erased["documents"] == 2
    assert {"jobs", "uploads", "chunks", "embeddings", "document_versions"} <= report.erased.keys()
    assert count_rows(database, SECRET, tenant=acme).keys() == {"audit_passages"}
    assert acme.sources() == ["people/rules.md", "people_xmd"]
    assert count_rows(database, SECRET, tenant=logged.tenant(f"{tenant_name}-other")).keys() >= {"documents", "chunks"}


def test_comments__on_retrievals_that_delivered_the_document_go(acme: Tenant, database: DatabaseSettings) -> None:
    delivered, other = acme.search("salary"), acme.search("journey", filter=Filter(where={"source": "people_xmd"}))
    assert {hit.source for hit in other.hits} == {"people_xmd"}
    acme.feedback("down", retrieval_id=delivered.id, comment="is it 4,711")
    acme.feedback("down", retrieval_id=other.id, comment="paid before it")
    report = acme.erase(source=DOCUMENT.source)
    assert report.erased["feedback"] == 2  # with the one on the passage, which goes whole
    with psycopg.connect(database.admin_url or "") as connection:
        rows = connection.execute(
            "SELECT f.retrieval_id, f.comment FROM kosmos.feedback f WHERE f.tenant_id = %s", [acme.id]
        ).fetchall()
    assert dict(rows) == {delivered.id: None, other.id: "paid before it"}


def test_statistics__are_those_of_a_tenant_that_never_had_the_document(
    acme: Tenant, logged: Engine, tenant_name: str
) -> None:
    acme.erase(source=f"*{SECRET}*")
    never = logged.tenant(f"{tenant_name}-never")
    never.ingest(OTHERS)
    for question in ("salary of a month", "travel after the journey"):
        scores = [
            [(hit.source, hit.dense_score, hit.lexical_score) for hit in tenant.search(question).hits]
            for tenant in (acme, never)
        ]
        assert scores[0] == scores[1]


def test_audit_log__is_exempt_until_its_retention_ends(acme: Tenant) -> None:
    acme.audit.seal()
    acme.search(f"salary of {SECRET}")
    report = acme.erase(source=f"*{SECRET}*")
    (retained,) = report.retained
    months = 12 + 1
    assert (retained.table, retained.until) == ("audit_passages", add_months(datetime.now(UTC).date(), months))
    assert retained.rows >= 2
    assert acme.erase(subject="lovelace").retained[0].table == "audit_events"
    assert acme.audit.verify().intact


def test_subject__leaves_no_table_but_the_audit_log(acme: Tenant, database: DatabaseSettings) -> None:
    assert count_rows(database, "lovelace", tenant=acme).keys() == {"audit_events", "feedback"}
    report = acme.erase(subject="lovelace")
    assert report.erased == {"feedback": 1}
    assert count_rows(database, "lovelace", tenant=acme).keys() == {"audit_events"}
    assert acme.erase(subject="nobody").erased == {}


def test_evaluations_and_sync_runs__lose_the_name_and_keep_their_figures(
    acme: Tenant, database: DatabaseSettings
) -> None:
    failure = {"source": DOCUMENT.source, "code": "corrupt", "message": f"{SECRET} cannot be read"}
    other = {"source": "b.md", "code": "corrupt", "message": "b.md cannot be read"}
    run, evaluation = uuid4(), uuid4()
    now = datetime.now(UTC)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(
            "INSERT INTO kosmos.sync_runs VALUES "
            "(%s, %s, 'default', '{}', 'finished', 2, 0, 0, 0, 0, 2, 0, %s, NULL, %s, %s)",
            (acme.id, run, json.dumps([failure, other]), now, now),
        )
        connection.execute(
            "INSERT INTO kosmos.evaluations VALUES "
            "(%s, %s, %s, 'a', 's', 'x', NULL, '{everyone}', 10, 1, false, '{}', '{}', 'h', 'v', '{}', 1)",
            (acme.id, evaluation, now),
        )
        connection.execute(
            "INSERT INTO kosmos.evaluation_results VALUES "
            "(%s, %s, 'q1', 'who is paid?', %s, %s, '{\"nDCG@10\": 0.5}', '{}', NULL, NULL)",
            (acme.id, evaluation, json.dumps({DOCUMENT.source: 1, "b.md": 2}), [DOCUMENT.source, "b.md"]),
        )
        report = acme.erase(source=DOCUMENT.source)
        assert (report.erased["sync_runs"], report.erased["evaluation_results"]) == (1, 1)
        query = "SELECT failures, failed FROM kosmos.sync_runs WHERE tenant_id = %s"
        ((failures, failed),) = connection.execute(query, [acme.id]).fetchall()
        assert (failures, failed) == ([other], 2)
        query = "SELECT judged, ranking, measures FROM kosmos.evaluation_results WHERE tenant_id = %s"
        assert connection.execute(query, [acme.id]).fetchall() == [({"b.md": 2}, ["erased", "b.md"], {"nDCG@10": 0.5})]


@pytest.mark.parametrize("selector", [{"source": "people/*.md"}, {"metadata": ("employee", SECRET)}])
def test_errors__that_name_an_erased_document_go(
    acme: Tenant, database: DatabaseSettings, tmp_path: Path, selector: dict[str, Any]
) -> None:
    """Errors of jobs and sync runs that name an erased document are erased."""
    acme.jobs.enqueue(tmp_path, every=timedelta(hours=1))
    values = {"error": f"the document '{DOCUMENT.source}' is in the permission feed wiki too", "tenant": acme.id}
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        update = "UPDATE kosmos.jobs SET error = %(error)s WHERE kind = 'sync' AND tenant_id = %(tenant)s"
        assert connection.execute(update, values).rowcount == 1
        connection.execute(
            "INSERT INTO kosmos.sync_runs VALUES (%(tenant)s, %(run)s, 'default', '{}', 'failed', 2, 0, 0, 0, 0, 2, 0, "
            "'[]', %(error)s, now(), now())",
            {**values, "run": uuid4()},
        )
        report = acme.erase(**selector)
        assert (report.erased["jobs"], report.erased["sync_runs"]) == (2, 1)
    assert count_rows(database, SECRET, tenant=acme).keys() == {"audit_passages"}


@pytest.mark.parametrize("selector", [{"source": "1.a"}, {"source": "?.a"}, {"metadata": ("employee", "one")}])
def test_errors__that_have_the_name_within_longer_words_stay(
    acme: Tenant, database: DatabaseSettings, selector: dict[str, Any]
) -> None:
    acme.ingest([SourceDocument(source="1.a", data=b"One.", metadata={"employee": "one"})], prune=False)
    errors = ["page 21.a of 130 failed", "page 1.alpha failed", "page 1xa failed", "1.a: no page", "page '1.a'"]
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        for error in errors:
            connection.execute(
                "INSERT INTO kosmos.sync_runs VALUES "
                "(%s, %s, 'default', '{}', 'failed', 2, 0, 0, 0, 0, 2, 0, '[]', %s, now(), now())",
                (acme.id, uuid4(), error),
            )
        acme.erase(**selector)
        query = "SELECT error FROM kosmos.sync_runs WHERE tenant_id = %s AND error IS NOT NULL"
        assert Counter(error for (error,) in connection.execute(query, [acme.id])) == Counter(
            [*errors[:3], "erased", "erased"]
        )


def test_mirror__is_named_because_it_brings_the_document_back(acme: Tenant, tmp_path: Path) -> None:
    assert acme.erase(source="nothing").warnings == ()
    acme.jobs.enqueue(tmp_path, every=timedelta(hours=1))
    (warning,) = acme.erase(source="nothing").warnings
    assert warning.startswith("1 sources are mirrored")


def test_erasure__that_closes_a_deadlock_is_tried_again(acme: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion may have locked failed jobs in another order."""
    execute = psycopg.Cursor.execute
    failures = [psycopg.errors.DeadlockDetected("deadlock detected")]

    def fail(self: psycopg.Cursor, query: Any, *args: Any, **kwargs: Any) -> psycopg.Cursor:
        if failures and "DELETE FROM kosmos.documents" in str(query):
            raise failures.pop()
        return execute(self, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", fail)
    assert acme.erase(source=DOCUMENT.source).erased["documents"] == 2
    assert failures == []
    assert DOCUMENT.source not in acme.sources()


@pytest.mark.own_database
def test_running_job__of_an_erased_document_publishes_nothing(acme: Tenant, logged: Engine, settings: Settings) -> None:
    """A running job of an erased document publishes nothing."""
    queue = Queue.open(logged.database, settings.worker)
    jobs = queue.claim(10, kinds=["document"], worker="w")
    assert len(jobs) == 1
    acme.erase(source=DOCUMENT.source)
    assert queue.renew([jobs[0].token]) == set()


class PausedLease:
    """The lease of one job, whose publication waits before it is committed."""

    def __init__(self, token: UUID) -> None:
        self.token = token
        self.is_written, self.may_commit = Event(), Event()

    def may_start(self, document: PendingDocument) -> bool:
        return True

    def may_continue(self, document: PendingDocument) -> bool:
        return True

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[UUID]) -> Sequence[UUID]:
        assert JobLeases(queue).lock([self.token]) == {self.token}
        return document_ids

    def complete(self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[UUID, Any]) -> None:
        self.is_written.set()
        assert self.may_commit.wait(30)
        (completion,) = completions.values()
        JobLeases(queue).finish({self.token: completion.outcome})


@pytest.mark.own_database
def test_erasure__of_a_document_that_is_being_published_erases_it(
    logged: Engine, settings: Settings, tenant_name: str
) -> None:
    """A document whose first publication is committed during its erasure is erased."""
    scope = logged.tenant(tenant_name)
    scope.jobs.enqueue(DOCUMENT)
    (job,) = Queue.open(logged.database, settings.worker).claim(1, kinds=["document"], worker="w")
    lease, documents = PausedLease(job.token), discover([DOCUMENT], settings.ingestion, root=None).documents
    with ThreadPoolExecutor(2) as executor:
        owner, recorder = TenantRef(id=scope.id, name=scope.name), ReportBuilder()
        publication = executor.submit(
            logged.ingest_pipeline.run, owner, "default", documents, recorder=recorder, lease=lease
        )
        assert lease.is_written.wait(30)
        erasure = executor.submit(scope.erase, source=DOCUMENT.source)
        assert not wait([erasure], timeout=2).done
        lease.may_commit.set()
        publication.result()
        assert erasure.result().erased["documents"] == 1
    assert recorder.build().new == 1
    assert scope.sources() == []


def _erase_rows(connection: psycopg.Connection, tenant: Tenant) -> None:
    """Delete the rows of a tenant in an open transaction, as an erasure does."""
    connection.execute(statement("clear_live_space"), {"tenant_id": tenant.id})
    for table in TENANT_TABLES:
        connection.execute(_delete_rows(table), {"tenant_id": tenant.id})


@pytest.mark.own_database
def test_ingest__that_waits_for_the_erasure_of_the_tenant_publishes_after_it(logged: Engine, tenant_name: str) -> None:
    scope = logged.tenant(tenant_name)
    scope.ingest(OTHERS)
    with ThreadPoolExecutor(1) as executor, logged.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        connection.execute(statement("lock_collections"), {"tenant_id": scope.id}).fetchall()
        report = executor.submit(scope.ingest, DOCUMENT, prune=False)
        assert not wait([report], timeout=2).done
        _erase_rows(connection, scope)
    assert report.result().failed == ()
    assert scope.sources() == [DOCUMENT.source]


@pytest.mark.own_database
def test_feed__that_waits_for_the_erasure_of_the_tenant_is_superseded(
    logged: Engine, tenant_name: str, tmp_path: Path
) -> None:
    scope = logged.tenant(tenant_name)
    scope.ingest(DOCUMENT)
    feed = tmp_path / "feed.jsonl"
    feed.write_text(json.dumps({"document": DOCUMENT.source, "principals": ["ann"]}))
    with ThreadPoolExecutor(1) as executor, logged.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        connection.execute(statement("lock_collections"), {"tenant_id": scope.id}).fetchall()
        report = executor.submit(scope.sync_permissions, {"kind": "json_lines", "name": "feed", "path": str(feed)})
        assert not wait([report], timeout=2).done
        _erase_rows(connection, scope)
    with pytest.raises(IngestionError, match="was started again, or deleted"):
        report.result()


@pytest.mark.own_database
def test_erase_all__erases_a_tenant_that_is_created_meanwhile(
    logged: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    scope = logged.tenant(tenant_name)
    owner = TenantRef(id=scope.id, name=scope.name)
    space = create_registry(logged.settings, logged.embedder, None).default_space(scope.id)
    with ThreadPoolExecutor(1) as executor, logged.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        ensure_tenant(connection, owner, "default", space, now=datetime.now(UTC))
        report = executor.submit(scope.erase_all)
        assert not wait([report], timeout=2).done
    assert report.result().erased["embedding_spaces"] == 1
    assert count_rows(database, "", tenant=scope).keys() <= {"erasures"}


@pytest.mark.own_database
def test_erasure__that_waits_for_a_publication_holds_no_upload(logged: Engine, tenant_name: str) -> None:
    """Found by a seed of the simulation: a publication deletes its upload last, and both waited for each other."""
    scope = logged.tenant(tenant_name)
    scope.ingest(DOCUMENT)
    with logged.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        upload_id = UploadStore(connection, scope.id).store(b"of a job that is replaced")
    with ThreadPoolExecutor(1) as executor, logged.database.worker.transaction(scope.id, [EVERYONE]) as connection:
        connection.execute(statement("lock_collections"), {"tenant_id": scope.id}).fetchall()
        report = executor.submit(scope.erase, source=DOCUMENT.source)
        assert not wait([report], timeout=2).done
        connection.execute("SET LOCAL lock_timeout = '5s'")
        UploadStore(connection, scope.id).delete([upload_id])
    assert report.result().erased["documents"] == 1


class PausedPublication(PausedLease):
    """A publication without a job, which waits before it is committed."""

    def __init__(self) -> None:
        super().__init__(uuid4())

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[UUID]) -> Sequence[UUID]:
        return document_ids

    def complete(self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[UUID, Any]) -> None:
        self.is_written.set()
        assert self.may_commit.wait(30)


@pytest.mark.own_database
@pytest.mark.parametrize("is_slow", [False, True])
def test_erase_all__and_a_first_publication_at_once_leave_what_one_after_the_other_leaves(
    is_slow: bool, engine: Engine, settings: Settings, tenant_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by two seeds of the simulation.

    A publication writes to tables that the erasure has emptied already. A fast one left words, which refer to no
    tenant; by a slow one the erasure failed at a foreign key.
    """
    scope, paused, publications = engine.tenant(tenant_name), PausedPublication(), []
    owner, recorder = TenantRef(id=scope.id, name=scope.name), ReportBuilder()
    documents = discover([DOCUMENT], settings.ingestion, root=None).documents
    if not is_slow:
        paused.may_commit.set()

    def publish() -> None:
        scope.api_keys.create("reader", scopes=["read"])  # creates the tenant
        engine.ingest_pipeline.run(owner, "default", documents, recorder=recorder, lease=paused)

    with ThreadPoolExecutor(1) as executor, monkeypatch.context() as patch:

        def publish_meanwhile(table: str) -> sql.Composed:
            if table == "chunks":
                publications.append(executor.submit(publish))
                paused.is_written.wait(2)
                wait(publications, timeout=2)
            if table == "tenants":
                Timer(1, paused.may_commit.set).start()
            return _delete_rows(table)

        patch.setattr(erasure, "_delete_rows", publish_meanwhile)
        assert scope.erase_all().erased == {}
        publications[0].result()
    assert {category: rows for category, rows in count_orphans(engine.database, owner).items() if rows} == {}
    assert [hit.source for hit in scope.search("salary").hits] == [DOCUMENT.source]


def test_tenant__is_erased_with_its_vector_index_and_nothing_of_another(
    settings: Settings, database: DatabaseSettings, tenant_name: str
) -> None:
    changes = {"rag.audit.enabled": True, "rag.retrieval.result_cache": 10, "indexes.vector_min_chunks": 30}
    with opened(settings, changes) as engine:
        acme, other = engine.tenant(tenant_name, subject="lovelace"), engine.tenant(f"{tenant_name}-other")
        for tenant in (acme, other):
            tenant.ingest([DOCUMENT, *(SourceDocument(source=f"d{n}", data=f"text {n}".encode()) for n in range(40))])
        acme.indexes.build()
        acme.search("salary")
        untouched = count_rows(database, "", tenant=other)
        preview = acme.erase_all(preview=True)
        report = acme.erase_all()
        # The sample of the search is written behind it, and the vector index is dropped first.
        assert preview.erased.keys() - {"monitor_samples", "indexes"} <= report.erased.keys()
        assert count_rows(database, "", tenant=acme).keys() == {"audit_events", "audit_passages", "erasures"}
        assert count_rows(database, "", tenant=other) == untouched
        assert [row.table for row in report.retained] == ["audit_events", "audit_passages"]
        assert acme.audit.verify().erasures == 1
        with psycopg.connect(database.admin_url or "") as connection:
            assert physical_indexes(connection, acme.id) == {}


def test_tenant__that_is_created_again_gets_no_result_from_before(logged: Engine, tenant_name: str) -> None:
    """A tenant that was deleted and created again gets no old cached result."""
    acme = logged.tenant(tenant_name)
    acme.ingest([DOCUMENT])
    assert acme.search("salary").hits
    assert acme.search("salary").cached
    acme.erase_all()
    assert acme.search("salary").hits == ()
    acme.ingest([OTHERS[1]])
    again = acme.search("salary")
    assert not again.cached
    assert [hit.source for hit in again.hits] == ["people_xmd"]


@pytest.mark.parametrize(
    ("tampering", "problem"),
    [
        ("UPDATE kosmos.erasures SET erased = '{}' WHERE number = 1", "the record of erasure 1 was changed"),
        ("UPDATE kosmos.erasures SET kind = 'source' WHERE number = 2", "the record of erasure 2 was changed"),
        ("UPDATE kosmos.erasures SET at = at + interval '1 s' WHERE number = 1", "the record of erasure 1 was changed"),
        ("DELETE FROM kosmos.erasures WHERE number = 1", "the record of erasure 1 is missing"),
    ],
)
def test_verify__names_the_first_record_that_does_not_hold(
    acme: Tenant, database: DatabaseSettings, tampering: str, problem: str
) -> None:
    """`audit verify` names the first record of an erasure that was changed or removed."""
    reports = [acme.erase(source=f"*{SECRET}*"), acme.erase(subject="lovelace"), acme.erase(subject="bob")]
    verified = acme.audit.verify()
    assert (verified.intact, verified.erasures, verified.erasure_head) == (True, 3, reports[-1].sha256)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        of_tenant = tampering.replace("WHERE", "WHERE tenant_id = %s AND").encode()
        assert connection.execute(of_tenant, [acme.id]).rowcount == 1
    verified = acme.audit.verify()
    assert not verified.intact
    assert re.match(problem, verified.problem or "")


@pytest.mark.parametrize("role", ["app", "worker"])
@pytest.mark.parametrize("change", ["UPDATE kosmos.erasures SET kind = 'source'", "DELETE FROM kosmos.erasures"])
def test_records__are_changed_by_no_serving_role(acme: Tenant, logged: Engine, role: str, change: str) -> None:
    """No serving role changes a record of an erasure."""
    acme.erase(subject="lovelace")
    pool = getattr(logged.database, role)
    with (
        pytest.raises(Exception, match=r"permission denied|read-only"),
        pool.transaction(acme.id, [EVERYONE]) as connection,
    ):
        connection.execute(change)


def test_selectors__must_be_exactly_one(acme: Tenant) -> None:
    with pytest.raises(RequestError, match="0 selectors are given; erase by one of"):
        acme.erase()
    with pytest.raises(RequestError, match="2 selectors"):
        acme.erase(source="a", subject="b")
    with pytest.raises(RequestError, match="the source to erase is ''"):
        acme.erase(source="")


def _files_with(folder: Path, text: bytes) -> list[str]:
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()
    )


def test_upload__that_arrives_during_an_erasure_is_refused_and_not_cut(acme: Tenant, logged: Engine) -> None:
    """An upload that arrives during an erasure is refused completely and never truncated."""
    worker = logged.database.worker
    with worker.transaction(acme.id, [EVERYONE]) as connection:
        upload_id = UploadStore(connection, acme.id).store(b"first")
    acme.erase(source="nothing")
    with worker.transaction(acme.id, [EVERYONE]) as connection:
        UploadStore(connection, acme.id).store_chunk(upload_id, 1, b"second")
    upload = StoredUpload(id=upload_id, sha256="", size=len(b"firstsecond"))
    with pytest.raises(RequestError, match="send it again"):
        acme.uploads.enqueue(SourceDocument(source="new.md", data=b""), upload)
    with (
        acme.sessions.write() as connection,
        pytest.raises(RequestError, match="send it again"),
    ):
        acme.uploads.require_complete(upload_id, upload.size, connection)


def test_upload__whose_job_is_about_to_be_stored_survives_an_erasure(acme: Tenant, logged: Engine) -> None:
    """An erasure that finds no job of an upload waits for the transaction that enqueues one."""
    writer = acme.uploads.open()
    writer.write(b"Churn is falling.")
    upload = writer.finish()
    with ThreadPoolExecutor(1) as pool:
        with logged.database.worker.transaction(acme.id, [EVERYONE]) as connection:
            acme.uploads._enqueue(connection, SourceDocument(source="new.md", data=b""), upload, named_by_file=False)
            erasure = pool.submit(acme.erase, source="nothing")
            wait([erasure], timeout=1)
        assert erasure.result().erased == {}
    with acme.sessions.write() as connection:
        assert UploadStore(connection, acme.id).read(upload.id) == b"Churn is falling."


def test_samples__of_a_subject_go_by_the_principal_that_the_service_adds(
    acme: Tenant, database: DatabaseSettings
) -> None:
    """Samples of a reader are found for erasure by the principal that the service adds, `user:NAME`."""
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        for name in ("lovelace", "bob"):
            connection.execute(
                "INSERT INTO kosmos.monitor_samples (tenant_id, id, at, space_id, principals, vector, question) "
                "SELECT tenant_id, %s, now(), id, %s, '[1,0]', 'who is paid?' FROM kosmos.embedding_spaces "
                "WHERE tenant_id = %s",
                (uuid4(), [EVERYONE, f"user:{name}"], acme.id),
            )
        erased = acme.erase(subject="lovelace").erased
        assert (erased["feedback"], erased["monitor_samples"]) == (1, 1)
        query = "SELECT principals FROM kosmos.monitor_samples WHERE tenant_id = %s"
        assert connection.execute(query, [acme.id]).fetchall() == [([EVERYONE, "user:bob"],)]


@pytest.mark.parametrize("has_administrator", [False, True])
def test_purge__without_a_superuser_is_refused(settings: Settings, has_administrator: bool) -> None:
    """It ended after the erasure, with `permission denied for table pg_statistic` and no word of what to do."""
    address = settings.database.url if has_administrator else None
    with (
        opened(settings, {"database.admin_url": address}) as engine,
        pytest.raises(ConfigError, match=r"needs a superuser in database\.admin_url"),
    ):
        engine.purge_files()


def test_purge__leaves_the_text_in_no_file_of_the_server(loaded_settings: Settings, tmp_path: Path) -> None:
    """After a purge no file of the server contains the text, not even in the statistics of the planner."""
    folder = tmp_path / "data"
    database = DatabaseSettings(url="embedded", data_dir=folder)
    settings = loaded_settings.model_copy(update={"database": database})
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        acme = engine.tenant("acme")
        acme.ingest([DOCUMENT, *OTHERS])
        hit = next(hit for hit in acme.search("salary").hits if hit.source == DOCUMENT.source)
        # This table is empty after the erasure: ANALYZE would keep what the planner knows of it.
        for name in ("ada", "bob", "eve"):
            rater = engine.tenant("acme", subject=name)
            rater.feedback("up", question="salary", chunk_id=hit.chunk_id, comment=f"{SECRET} by {name}")
        with psycopg.connect(engine.database.admin_conninfo, autocommit=True) as connection:
            connection.execute("ANALYZE")
            connection.execute("CHECKPOINT")
            assert any(name.startswith("base/") for name in _files_with(folder, SECRET.encode()))
            acme.erase(source=f"*{SECRET}*")
            connection.execute("VACUUM")
            connection.execute("CHECKPOINT")
            assert _files_with(folder, SECRET.encode()), "VACUUM alone would do, and purge_files is not needed"
            engine.purge_files()
            assert connection.execute("SHOW wal_recycle").fetchone() == ("on",)
        assert _files_with(folder, SECRET.encode()) == []
        assert acme.sources() == ["people/rules.md", "people_xmd"]
        assert acme.search("salary").hits[0].source == "people/rules.md"
