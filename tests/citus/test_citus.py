"""The library on a distributed server: isolation on the shards, both retrievers, the fence, deletion, one task."""

import re
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from kosmos_rag import Engine, Filter, Settings, SourceDocument
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import LeaseLost, RequestError, StatementFailed
from kosmos_rag.core.types import EVERYONE, Outcome
from kosmos_rag.storage.citus import DISTRIBUTED, LOCAL
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobLeases
from kosmos_rag.storage.setup import distribute_tables, set_up
from kosmos_rag.storage.tenants import tenant
from tests.citus.load import SMALL_INDEXES
from tests.citus.statements import of_distributed_tables, written_out
from tests.integration.variants import opened as open_engine

WORDS = ("churn", "revenue", "margin", "leave", "travel", "invoice")


def _documents(count: int, acl: tuple[str, ...] = (EVERYONE,)) -> Iterator[SourceDocument]:
    for number in range(count):
        text = f"The {WORDS[number % 6]} of quarter {number} is {WORDS[(number + 1) % 6]} and number{number}."
        yield SourceDocument(source=f"d{number}", data=text.encode(), acl=acl, metadata={"number": number})


@pytest.fixture
def opened(cluster: DatabaseSettings) -> Iterator[Database]:
    """The two roles over the distributed database."""
    database = Database(cluster)
    yield database
    database.close()


@pytest.fixture
def admin(cluster: DatabaseSettings) -> Iterator[psycopg.Connection]:
    """The administrator's connection to the coordinator."""
    with psycopg.connect(cluster.admin_url or "", autocommit=True) as connection:
        yield connection


def test_preflight__has_nothing_to_say_of_distributed_tables(opened: Database) -> None:
    state = opened.app.inspect()
    assert (state.problems, state.warnings) == ((), ())


def test_distribute__again_finds_nothing_to_do(cluster: DatabaseSettings, admin: psycopg.Connection) -> None:
    assert distribute_tables(cluster) == []
    assert distribute_tables(cluster, dry_run=True) == []
    result = set_up(cluster)
    assert result.before == result.after
    placed = dict[Any, Any](
        admin.execute(
            "SELECT c.relname::text, p.partmethod::text FROM pg_dist_partition p "
            "JOIN pg_class c ON c.oid = p.logicalrelid WHERE NOT c.relispartition"
        ).fetchall()
    )
    assert placed == dict.fromkeys(DISTRIBUTED, "h")
    assert not placed.keys() & LOCAL
    (groups,) = admin.execute(
        "SELECT count(DISTINCT colocationid) FROM pg_dist_partition WHERE partmethod = 'h'"
    ).fetchone() or (0,)
    assert groups == 1


@pytest.mark.parametrize("table", sorted(DISTRIBUTED))
def test_policies__are_on_every_shard_as_on_the_table(table: str, admin: psycopg.Connection) -> None:
    look = (
        "SELECT concat_ws(' ', c.relrowsecurity, c.relforcerowsecurity, (SELECT string_agg(concat_ws(' ', p.polname, "
        "p.polpermissive, p.polcmd, p.polroles::regrole[], pg_get_expr(p.polqual, c.oid), "
        "pg_get_expr(p.polwithcheck, c.oid)), '; ' ORDER BY p.polname) FROM pg_policy p WHERE p.polrelid = c.oid)) "
        "FROM pg_class c WHERE c.oid = '{}'::regclass"
    )
    (expected,) = admin.execute(look.format(f"kosmos.{table}")).fetchone() or ("",)
    assert expected.startswith("t t ")
    shards = admin.execute(
        "SELECT success, result FROM run_command_on_shards(%s::regclass, %s)", [f"kosmos.{table}", look.format("%s")]
    ).fetchall()
    assert len(shards) > 1
    assert {(True, expected)} == set(shards)


def test_shards__show_no_rows_to_who_has_entered_no_tenant(
    engine: Engine, name: str, opened: Database, admin: psycopg.Connection
) -> None:
    engine.tenant(name).ingest(_documents(5))
    with opened.worker.untenanted() as connection:
        for table in DISTRIBUTED:
            if not table.startswith("audit"):
                assert connection.execute(f"SELECT count(*) FROM kosmos.{table}").fetchone() == (0,), table


def test_tenants__see_their_own_rows_alone(engine: Engine, name: str, other_name: str, opened: Database) -> None:
    engine.tenant(name).ingest(_documents(20))
    engine.tenant(other_name).ingest(_documents(7, acl=("department:board",)))
    assert len(engine.tenant(name).documents()) == 20
    assert engine.tenant(other_name).documents() == []
    assert len(engine.tenant(other_name, principals=["department:board"]).documents()) == 7
    # Without a bound tenant all shards are asked, and row-level security alone answers.
    for owner, principals, count in (
        (name, [EVERYONE], 20),
        (other_name, [EVERYONE], 0),
        (other_name, ["department:board"], 7),
    ):
        with opened.app.transaction(tenant(owner).id, principals) as connection:
            for table in ("documents", "chunks", "embeddings"):
                assert connection.execute(f"SELECT count(*) FROM kosmos.{table}").fetchone() == (count,), table
    with (
        pytest.raises(StatementFailed, match="row-level security"),
        opened.worker.transaction(tenant(name).id, [EVERYONE]) as connection,
    ):
        connection.execute(
            "INSERT INTO kosmos.collection_presets (tenant_id, collection, name, content, created_at) "
            "VALUES (%s, 'x', 'x', '{}', %s)",
            [tenant(other_name).id, "2026-01-01"],
        )


def test_both_retrievers__find_what_there_is_to_find(settings: Settings, name: str) -> None:
    with open_engine(settings, SMALL_INDEXES) as engine:
        scope = engine.tenant(name)
        scope.ingest(_documents(60))
        before = scope.search("revenue of number7", 10)
        assert before.hits[0].source == "d7"
        assert {hit.dense_rank is None for hit in before.hits} == {False}
        scope.indexes.build()
        assert {info.kind for info in scope.indexes.status()} >= {"segment", "ivfflat"}
        after = scope.search("revenue of number7", 10)
        assert [hit.source for hit in after.hits[:3]] == [hit.source for hit in before.hits[:3]]
        narrow = scope.search("revenue", 10, Filter(where={"metadata.number": {"$lt": 3}}))
        assert {hit.source for hit in narrow.hits} == {"d0", "d1", "d2"}
        assert scope.context("number7").passages[0].citation.source == "d7"


def test_fence__a_job_that_was_lost_leaves_no_document(
    engine: Engine, name: str, cluster: DatabaseSettings, opened: Database
) -> None:
    """The queue is the coordinator's and the document a worker's: both commit, or neither does."""
    queue = Queue(opened.worker, lease_s=60, max_attempts=3, max_lost=3)
    scope = engine.tenant(name)
    for commits in (False, True):
        scope.jobs.enqueue(SourceDocument(source=f"late-{commits}", data=b"waits"))
        (job,) = [job for job in queue.claim(64, kinds=["document"], worker="test") if job.tenant == name]
        if not commits:
            queue.cancel(tenant(name), [job.id])
        upload = uuid.uuid4()
        try:
            with opened.worker.transaction(job.tenant_id, [EVERYONE]) as connection:
                locked = JobLeases(connection).lock([job.token])
                connection.execute(
                    "INSERT INTO kosmos.uploads (tenant_id, id, data, created_at) VALUES (%s, %s, 'x', %s)",
                    [job.tenant_id, upload, "2026-01-01"],
                )
                JobLeases(connection).finish({job.token: Outcome.NEW})
            assert locked == {job.token}
        except LeaseLost:
            assert not commits
        with opened.worker.transaction(job.tenant_id, [EVERYONE]) as connection:
            row = connection.execute(
                "SELECT count(*) FROM kosmos.uploads WHERE tenant_id = %s AND id = %s", [job.tenant_id, upload]
            ).fetchone()
        assert row == (int(commits),)


def test_deletion__leaves_nothing_on_any_shard(engine: Engine, name: str, admin: psycopg.Connection) -> None:
    scope = engine.tenant(name)
    scope.ingest(_documents(12))
    assert scope.delete([f"d{number}" for number in range(12)]) == 12
    assert scope.search("revenue").hits == ()
    for table in ("documents", "document_versions", "chunks", "embeddings", "lexemes", "unsegmented_terms"):
        rows = admin.execute(f"SELECT count(*) FROM kosmos.{table} WHERE tenant_id = %s", [tenant(name).id]).fetchone()
        assert rows == (0,), table


@pytest.mark.parametrize("statement_name", of_distributed_tables())
def test_statement__is_one_task(statement_name: str, name: str, opened: Database) -> None:
    tenant_id = tenant(name).id
    for role in (opened.worker, opened.app):
        with role.session() as connection:
            text = written_out(connection, statement_name, tenant_id)
            try:
                plan = "\n".join(line for (line,) in connection.execute(f"EXPLAIN {text}"))
            except psycopg.errors.InsufficientPrivilege:
                continue
            break
    else:
        pytest.fail("neither role may run it")
    assert re.findall(r"Task Count: (\d+)", plan) == ["1"], plan
    assert "Distributed Subplan" not in plan, plan


def test_events__are_recorded_erased_and_begin_again(engine: Engine, name: str) -> None:
    scope = engine.tenant(name)
    scope.events.start()
    scope.ingest(_documents(3))
    scope.delete("d0")
    scope.erase(source="d*")
    events, position = scope.events.read()
    assert [event.type for event in events] == ["document.published"] * 3 + ["document.removed"] * 3
    assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6]
    assert {event.data.get("source") for event in events} == {None}
    scope.events.stop()
    scope.events.start()
    with pytest.raises(RequestError, match="list the documents"):
        scope.events.read(position)
    scope.ingest(_documents(1))
    assert [event.sequence for event in scope.events.read()[0]] == [8]
