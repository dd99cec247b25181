"""What is given out is in the log before it is: once, whole, and for good."""

import hashlib
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseNotReady, RequestError, StatementFailed
from kosmos_rag.core.types import AuditKind, AuditOutcome
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.audit.log import build_min_event_id, create_event_id
from kosmos_rag.storage.setup import set_up
from kosmos_rag.storage.tenants import tenant
from tests.integration.variants import opened

Admin = psycopg.Connection[Any]

pytestmark = pytest.mark.usefixtures("tenant_name")


def test_each_kind__leaves_one_record(acme: Tenant) -> None:
    result = acme.search("churn of accounts")
    context = acme.context("churn of accounts")
    answer = acme.answer("What is churn?")
    newest, middle, oldest = acme.audit.find()
    assert [newest.kind, middle.kind, oldest.kind] == [AuditKind.ANSWER, AuditKind.CONTEXT, AuditKind.SEARCH]
    assert [(p.chunk_ids, p.score, p.source) for p in oldest.passages] == [
        ((hit.chunk_id,), hit.score, hit.source) for hit in result.hits
    ]
    assert [p.chunk_ids for p in middle.passages if p.shown] == [p.chunk_ids for p in context.passages]
    assert newest.outcome == (AuditOutcome.REFUSED if answer.refused else AuditOutcome.HITS)
    assert oldest.subject == "ada"
    assert oldest.principals == ("everyone",)
    assert oldest.collection is None
    assert oldest.question == "churn of accounts"
    assert oldest.question_sha256 == hashlib.sha256(b"churn of accounts").hexdigest()
    assert oldest.outcome == AuditOutcome.HITS
    assert oldest.milliseconds == pytest.approx(result.timings_ms["total"])
    assert abs(datetime.now(UTC) - oldest.at) < timedelta(minutes=1)
    assert acme.audit.get(oldest.id) == oldest
    assert acme.audit.get(uuid.uuid4()) is None


def test_context__records_the_hits_that_it_carries_and_does_not_show(acme: Tenant) -> None:
    context = acme.context("accounts within a month", max_tokens=40)
    assert len(context.passages) == 1
    assert context.retrieval.returned == 2
    (record,) = acme.audit.find()
    assert [passage.shown for passage in record.passages] == [True, False]
    chunk_ids = {chunk_id for passage in record.passages for chunk_id in passage.chunk_ids}
    assert chunk_ids == {hit.chunk_id for hit in context.retrieval.hits}


def test_search__records_inner_hits_and_the_places_of_copies(audited: Engine, tenant_name: str) -> None:
    scope = audited.tenant(tenant_name)
    text = "\n\n".join(f"## Part {part}\n\n{'Churn of accounts. ' * 8}" for part in range(2)).encode()
    scope.ingest(SourceDocument(source=f"{name}.md", data=text) for name in "ab")
    (hit,) = scope.search("churn of accounts", group_by="document").hits
    (inner,) = hit.inner_hits
    chunk_ids = {hit.chunk_id, inner.chunk_id, *(place.chunk_id for item in (hit, inner) for place in item.also_in)}
    assert len(chunk_ids) == 4
    scope.context("churn of accounts")
    context, search = scope.audit.find()
    for record in (search, context):
        assert {chunk_id for passage in record.passages for chunk_id in passage.chunk_ids} == chunk_ids
    assert {passage.source for passage in search.passages} == {"a.md", "b.md"}
    assert all(passage.shown for passage in search.passages)


def test_kept_result__is_recorded_as_well(acme: Tenant) -> None:
    assert not acme.search("churn").cached
    assert acme.search("churn").cached
    again, first = acme.audit.find()
    assert (first.cached, again.cached) == (False, True)
    assert first.passages == again.passages


def test_nothing_found__is_recorded(audited: Engine, tenant_name: str) -> None:
    scope = audited.tenant(tenant_name)
    assert scope.search("churn").returned == 0
    assert scope.answer("churn").refused
    assert {record.outcome for record in scope.audit.find()} == {AuditOutcome.NONE}


def test_refusal__is_recorded_with_its_passages(acme: Tenant) -> None:
    assert acme.answer("Who plays the violin?").refused
    (record,) = acme.audit.find()
    assert record.outcome == AuditOutcome.REFUSED
    assert any(passage.shown for passage in record.passages)


def test_stream__is_in_the_log_before_its_first_piece(acme: Tenant) -> None:
    with acme.stream_answer("What is churn of accounts?") as stream:
        (record,) = acme.audit.find()
        assert record.kind == AuditKind.ANSWER
        chunk_ids = [passage.chunk_ids for passage in record.passages if passage.shown]
        assert chunk_ids == [passage.chunk_ids for passage in stream.sources.context.passages]
        assert list(stream)
    assert len(acme.audit.find()) == 1


def test_questions_off__leave_only_their_hash(settings: Settings, tenant_name: str) -> None:
    with opened(settings, {"rag.audit.enabled": True, "rag.audit.questions": False}) as engine:
        scope = engine.tenant(tenant_name)
        scope.search("churn")
        (record,) = scope.audit.find()
    assert record.question is None
    assert record.question_sha256 == hashlib.sha256(b"churn").hexdigest()
    assert record.subject is None


def test_log_off__leaves_nothing(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    scope.search("churn")
    assert scope.audit.find() == []


def test_preset__turns_the_log_on_for_its_collection(engine: Engine, tenant_name: str) -> None:
    engine.tenant(tenant_name).collections.create("policies", preset="corporate")
    engine.tenant(tenant_name, collection="policies").search("churn")
    (record,) = engine.tenant(tenant_name).audit.find()
    assert record.collection == "policies"


def test_question_over_all_collections__goes_by_the_strictest(engine: Engine, tenant_name: str, tmp_path: Path) -> None:
    silent = tmp_path / "silent.yaml"
    silent.write_text("rag: {audit: {enabled: true, questions: false}}")
    scope = engine.tenant(tenant_name)
    scope.ingest(SourceDocument(source="a.md", data=b"Leave is twenty days."))
    scope.collections.create("plain", preset="keyword")
    scope.search("leave")
    assert scope.audit.find() == []
    scope.collections.create("policies", preset="corporate")
    scope.search("leave")
    scope.collections.create("secret", preset=silent)
    scope.search("leave")
    engine.tenant(tenant_name, collection="plain").search("leave")
    engine.tenant(f"{tenant_name}-other").search("leave")
    assert [(record.collection, record.question) for record in scope.audit.find()] == [(None, None), (None, "leave")]


def test_texts__are_not_given_out_past_the_log(engine: Engine, acme: Tenant, tenant_name: str) -> None:
    with pytest.raises(RequestError, match="whole documents, which the audit log cannot record"):
        acme.texts()
    plain = engine.tenant(f"{tenant_name}-plain")
    plain.ingest(SourceDocument(source="a.md", data=b"Leave."))
    assert len(plain.texts()) == 1
    plain.collections.create("policies", preset="corporate")
    for scope in (plain, engine.tenant(f"{tenant_name}-plain", collection="policies")):
        with pytest.raises(RequestError, match="whole documents"):
            scope.texts()


def test_settings__have_a_version_that_tells_them_apart(settings: Settings, tenant_name: str) -> None:
    versions = []
    for top_k in (5, 5, 6):
        with opened(settings, {"rag.audit.enabled": True, "rag.retrieval.top_k": top_k}) as engine:
            engine.tenant(tenant_name).search("churn")
            versions.append(engine.tenant(tenant_name).audit.find(limit=1)[0].settings)
    assert versions[0] == versions[1] != versions[2]


@pytest.mark.own_database
def test_without_a_record__nothing_is_given_out(acme: Tenant, admin: Admin) -> None:
    calls: tuple[Any, ...] = (acme.search, acme.context, acme.answer)
    pairs = list(product(("audit_events", "audit_passages"), calls))
    for recorded, (table, call) in enumerate(pairs):
        admin.execute(f"REVOKE INSERT ON kosmos.{table} FROM kosmos_app".encode())
        with pytest.raises(StatementFailed, match=f"permission denied for table {table}"):
            call("churn of accounts")
        assert len(acme.audit.find()) == recorded
        admin.execute(f"GRANT INSERT ON kosmos.{table} TO kosmos_app".encode())
        assert call("churn of accounts")
        assert len(acme.audit.find()) == recorded + 1


def test_many_threads__leave_as_many_records(acme: Tenant) -> None:
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda number: acme.search(f"churn {number}"), range(80)))
    records = acme.audit.find(limit=1000)
    assert {record.question for record in records} == {f"churn {number}" for number in range(80)}
    assert len(records) == len({record.id for record in records}) == 80
    assert sum(len(record.passages) for record in records) == sum(result.returned for result in results)


def test_question__of_any_characters_is_answered_and_in_the_log(acme: Tenant) -> None:
    assert acme.answer("What is\x00 churn \ud800?").context.passages
    (record,) = acme.audit.find()
    assert (record.question, record.search_query) == ("What is\ufffd churn ??", "What is churn ?")


@pytest.mark.own_database
def test_committed__waits_for_the_disk(settings: Settings, admin: Admin, database: DatabaseSettings) -> None:
    name = admin.info.dbname
    admin.execute(f'ALTER ROLE kosmos_app IN DATABASE "{name}" SET synchronous_commit = off'.encode())
    with psycopg.connect(database.url) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)
    with opened(settings, {}) as engine:
        app, acme = engine.database.app, engine.tenant("acme").id
        with app.transaction(acme, ["everyone"], append_only=True) as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        with app.transaction(acme, ["everyone"]) as connection:
            assert connection.execute("SHOW transaction_read_only").fetchone() == ("on",)


INSERT = (
    "INSERT INTO kosmos.audit_events (tenant_id, id, at, position, kind, outcome, principals, question_sha256, "
    "settings_hash, cached, milliseconds) VALUES (%s, gen_random_uuid(), now(), "
    "nextval('kosmos.audit_event_positions'), 'search', 'none', '{}', '', '', false, 0)"
)


@pytest.mark.parametrize(
    "table", ["audit_events", "audit_events_default", "audit_passages", "audit_passages_default", "audit_seals"]
)
@pytest.mark.parametrize(
    "command", ["SELECT 1 FROM {}", "UPDATE {} SET at = now()", "DELETE FROM {}", "TRUNCATE {}", "DROP TABLE {}"]
)
def test_roles__may_only_append_and_read(
    tenant_name: str, database: DatabaseSettings, table: str, command: str
) -> None:
    urls = [database.url]
    if not command.startswith("SELECT") or table.endswith("_default"):
        urls.append(database.worker_url or "")
    for url in urls:
        with psycopg.connect(url) as connection:
            connection.execute("SELECT kosmos.set_tenant_context(%s, '{everyone}')", [tenant(tenant_name).id])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(command.format(f"kosmos.{table}").encode())


def test_app_role__may_not_append_to_another_tenant(acme: Tenant, database: DatabaseSettings) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, '{everyone}')", [acme.id])
        connection.execute(INSERT.encode(), [acme.id])
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            connection.execute(INSERT.encode(), [uuid.uuid4()])


def test_worker_role__may_neither_append_nor_see_another_tenant(
    acme: Tenant, audited: Engine, database: DatabaseSettings, tenant_name: str
) -> None:
    acme.search("churn")
    other = audited.tenant(f"{tenant_name}-other")
    assert other.audit.find() == []
    assert other.audit.list_document_access("churn.md") == []
    with psycopg.connect(database.worker_url or "") as connection:
        connection.execute("SELECT kosmos.set_tenant_context(%s, '{everyone}')", [acme.id])
        assert connection.execute("SELECT count(*) FROM kosmos.audit_events").fetchone() == (1,)
        connection.execute("SELECT kosmos.set_tenant_context(%s, '{everyone}')", [uuid.uuid4()])
        assert connection.execute("SELECT count(*) FROM kosmos.audit_events").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(INSERT.encode(), [acme.id])


OWN = "tenant_id = kosmos.current_tenant()"


@pytest.mark.own_database
@pytest.mark.changes_catalogue
@pytest.mark.parametrize(
    ("command", "finding"),
    [
        (
            "GRANT UPDATE (question) ON kosmos.audit_events TO kosmos_worker",
            "role kosmos_worker has UPDATE on kosmos.audit_events",
        ),
        (
            "GRANT DELETE ON kosmos.audit_passages_default TO kosmos_worker",
            "role kosmos_worker has DELETE on kosmos.audit_passages_default",
        ),
        ("GRANT SELECT ON kosmos.audit_events TO kosmos_app", "role kosmos_app has SELECT on kosmos.audit_events"),
        ("DROP POLICY app_append ON kosmos.audit_events", "app_append on kosmos.audit_events is missing"),
        ("DROP POLICY worker_read ON kosmos.audit_seals", "worker_read on kosmos.audit_seals is missing"),
        (
            "ALTER POLICY app_append ON kosmos.audit_events WITH CHECK (true)",
            "app_append on kosmos.audit_events is not",
        ),
        (
            f"CREATE POLICY worker_all ON kosmos.audit_events TO kosmos_worker USING ({OWN}) WITH CHECK ({OWN})",
            "worker_all on kosmos.audit_events is not",
        ),
        (
            "ALTER POLICY owner_expire ON kosmos.audit_events_default USING (true)",
            "owner_expire on kosmos.audit_events_default is not",
        ),
        (
            "ALTER POLICY owner_expire ON kosmos.audit_passages_default TO kosmos_app",
            "owner_expire on kosmos.audit_passages_default is not",
        ),
        ("ALTER TABLE kosmos.audit_events_default DISABLE ROW LEVEL SECURITY", "audit_events_default has row-level"),
    ],
)
def test_preflight__refuses_a_log_that_can_be_changed(
    settings: Settings, admin: Admin, command: str, finding: str
) -> None:
    admin.execute(command.encode())
    with opened(settings, {}) as engine, pytest.raises(DatabaseNotReady, match=finding):
        engine.tenant("acme").search("churn")


@pytest.mark.parametrize("subject", ["", "x" * 301, "a\x00b", 7])
def test_subject__is_text(audited: Engine, tenant_name: str, subject: Any) -> None:
    with pytest.raises(RequestError, match="the subject is"):
        audited.tenant(tenant_name, subject=subject)


def test_ids__are_in_the_order_of_time() -> None:
    start = datetime(2026, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC)
    times = [start + timedelta(microseconds=step) for step in (0, 1, 1001, 2001)]
    ids = [create_event_id(at) for at in times]
    assert ids == sorted(ids)
    assert {result.version for result in ids} == {7}
    assert {result.variant for result in ids} == {uuid.RFC_4122}
    assert all(
        build_min_event_id(at) <= result < build_min_event_id(at + timedelta(milliseconds=1))
        for at, result in zip(times, ids, strict=True)
    )
    assert len({create_event_id(start) for _ in range(1000)}) == 1000


@pytest.mark.own_database
def test_migrate__down_and_up_again_starts_an_empty_log(
    acme: Tenant, settings: Settings, database: DatabaseSettings
) -> None:
    acme.search("churn")
    assert set_up(database, "base").after is None
    set_up(database)
    with opened(settings, {"rag.audit.enabled": True}) as engine:
        scope = engine.tenant("acme")
        scope.ingest(SourceDocument(source="churn.md", data=b"Churn of accounts."))
        assert scope.audit.find() == []
        assert scope.search("churn").returned
        assert len(scope.audit.find()) == 1


def test_deleted_document__keeps_its_records(acme: Tenant, admin: Admin) -> None:
    (hit,) = [hit for hit in acme.search("churn of accounts").hits if hit.source == "churn.md"]
    acme.delete("churn.md")
    (access,) = acme.audit.list_document_access("churn.md")
    assert (access.document_id, access.subject, access.question) == (hit.document_id, "ada", "churn of accounts")
    assert access.chunk_ids == (hit.chunk_id,)
    assert acme.audit.list_document_access(hit.document_id) == [access]
    acme.ingest(SourceDocument(source="churn.md", data=b"Churn, said in another way."))
    assert acme.audit.list_document_access("churn.md") == [access]


@pytest.mark.own_database
def test_deleted_tenant__keeps_its_records(acme: Tenant, admin: Admin) -> None:
    acme.search("churn of accounts")
    admin.execute("UPDATE kosmos.tenants SET live_space_id = NULL")
    admin.execute("DELETE FROM kosmos.embeddings")
    admin.execute("DELETE FROM kosmos.tenants")
    assert acme.documents() == []
    assert len(acme.audit.find()) == 1
    assert [access.subject for access in acme.audit.list_document_access("churn.md")] == ["ada"]
