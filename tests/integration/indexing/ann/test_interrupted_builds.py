"""What is answered while a vector index is built, and after its build was cut off; what the next build clears away."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, IndexLocked, KosmosError
from kosmos_rag.indexing import ann
from tests.integration.indexing.ann.worlds import (
    FULL,
    assert_exact,
    assert_right,
    only,
    opened,
    physical,
    publish_world,
    select_vector_indexes,
)


@contextmanager
def _builds_wait(admin: str) -> Iterator[None]:
    """Hold a snapshot: an index that is built beside its use waits for it before it becomes valid."""
    connection = psycopg.connect(admin)
    try:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SELECT count(*) FROM kosmos.embeddings")
        yield
    finally:
        connection.close()


def _building(admin: str) -> int:
    """Wait for a build that waits, and return the server process that does it."""
    with psycopg.connect(admin, autocommit=True) as connection:
        for _ in range(600):
            row = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'virtualxid' "
                "AND query LIKE 'CREATE INDEX CONCURRENTLY%'"
            ).fetchone()
            if row:
                return int(row[0])
            time.sleep(0.05)
    raise AssertionError("no build has begun")


def _erasing(admin: str) -> None:
    """Wait for an erasure that waits for the row of its tenant."""
    query = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%kosmos.tenants%FOR UPDATE%'"
    with psycopg.connect(admin, autocommit=True) as connection:
        for _ in range(600):
            if connection.execute(query).fetchone() is not None:
                return
            time.sleep(0.05)
    raise AssertionError("no erasure waits")


def test_build__that_is_killed_is_cleared_away_by_the_next(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    with ThreadPoolExecutor(1) as pool, _builds_wait(database.admin_url or ""):
        build = pool.submit(scope.indexes.build)
        pid = _building(database.admin_url or "")
        with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(KosmosError):
            build.result()
    assert list(physical(database).values()) == [False]
    left = [info for info in select_vector_indexes(scope.indexes.status()) if info.kind == "ivfflat"]
    assert [(info.state, info.due) for info in left] == [("building", "its build did not finish")]
    assert_right(engine, "exact scan")
    assert_exact(engine)
    steps: list[str] = []
    assert only(scope.indexes.build(steps.append)).state == "ready"
    assert any("left by an interrupted run" in step for step in steps)
    assert list(physical(database).values()) == [True]
    assert_right(engine, "ivfflat")


def test_build__that_is_killed_leaves_the_old_index_in_use(indexed: Engine, database: DatabaseSettings) -> None:
    scope = indexed.tenant("acme")
    with ThreadPoolExecutor(1) as pool, _builds_wait(database.admin_url or ""):
        build = pool.submit(scope.indexes.rebuild)
        pid = _building(database.admin_url or "")
        with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        with pytest.raises(KosmosError):
            build.result()
    assert sorted(physical(database).values()) == [False, True]
    assert_right(indexed, "ivfflat")
    scope.indexes.build()
    assert list(physical(database).values()) == [True]
    assert [info.state for info in select_vector_indexes(scope.indexes.status())] == ["ready"]


BUILDER = """
import sys
from kosmos_rag import Engine, Settings
from tests.integration.indexing.ann.worlds import TopicEmbedder
with Engine(Settings.model_validate_json(sys.stdin.read()), embedder=TopicEmbedder()) as engine:
    engine.tenant("acme").indexes.build()
"""


def test_build__in_a_process_that_is_killed_is_cleared_away_by_the_next(
    engine: Engine, settings: Settings, database: DatabaseSettings
) -> None:
    """The server goes on with the statement of a client that is gone: what comes of it is nobody's."""
    payload = settings.model_dump(mode="json") | {
        "database": {name: getattr(database, name) for name in ("url", "worker_url", "admin_url")}
    }
    scope = engine.tenant("acme")
    with _builds_wait(database.admin_url or ""):
        builder = subprocess.Popen(
            [sys.executable, "-c", BUILDER], stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[4]
        )
        assert builder.stdin
        builder.stdin.write(json.dumps(payload))
        builder.stdin.close()
        _building(database.admin_url or "")
        builder.kill()
        builder.wait()
        assert select_vector_indexes(scope.indexes.status())[0].due == "its build did not finish"
        assert_exact(engine)
    assert only(scope.indexes.build()).state == "ready"
    assert list(physical(database).values()) == [True]
    assert_right(engine, "ivfflat")


def test_build__on_a_server_that_crashes_is_cleared_away_by_the_next(settings: Settings, tmp_path: Path) -> None:
    """An immediate stop is a crash to the server: it recovers from its log when it is started again."""
    embedded = DatabaseSettings(data_dir=tmp_path / "data")
    embedded_settings = settings.model_copy(update={"database": embedded})
    with opened(embedded_settings) as engine:
        publish_world(engine, "acme", range(1_200))
        admin = engine.database.admin_conninfo
        with ThreadPoolExecutor(1) as pool, _builds_wait(admin):
            build = pool.submit(engine.tenant("acme").indexes.build)
            _building(admin)
            server = int((tmp_path / "data" / "postmaster.pid").read_text().splitlines()[0])
            os.kill(server, signal.SIGQUIT)
            with pytest.raises(KosmosError):
                build.result()
    while (tmp_path / "data" / "postmaster.pid").exists():
        time.sleep(0.05)
    with opened(embedded_settings) as engine:
        scope = engine.tenant("acme")
        assert select_vector_indexes(scope.indexes.status())[0].due == "its build did not finish"
        assert_exact(engine, lambda number: number < 1_200)
        assert only(scope.indexes.build()).state == "ready"
        assert_right(engine, "ivfflat", lambda number: number < 1_200)


def test_build__beside_another_of_the_tenant_is_refused(engine: Engine, database: DatabaseSettings) -> None:
    scope = engine.tenant("acme")
    with ThreadPoolExecutor(1) as pool:
        with _builds_wait(database.admin_url or ""):
            build = pool.submit(scope.indexes.build)
            _building(database.admin_url or "")
            for work in (scope.indexes.build, scope.indexes.rebuild, scope.indexes.tune):
                with pytest.raises(IndexLocked, match="tenant acme are being worked on"):
                    work()
            assert engine.tenant("other").indexes.build() == [], "another tenant is not held up"
        assert only(build.result()).state == "ready"


def test_builds__of_several_tenants_at_once_take_turns(engine: Engine) -> None:
    """Two concurrent builds on one table wait for each other's snapshots: PostgreSQL calls that a deadlock."""
    names = ["acme", "beta", "gamma"]
    for name in names[1:]:
        publish_world(engine, name, range(1_200))
    with ThreadPoolExecutor(len(names)) as pool:
        built = list(pool.map(lambda name: engine.tenant(name).indexes.build(), names))
    assert [only(result).state for result in built] == ["ready"] * len(names)


def test_build__of_another_tenant_is_not_waited_for_long_and_segments_are_packed_before_it(
    engine: Engine, settings: Settings, database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ann, "_LOCK_PATIENCE_S", 0.5)
    publish_world(engine, "beta", range(1_200))
    beta = engine.tenant("beta")
    beta.indexes.build()
    with psycopg.connect(database.admin_url or "") as connection:  # a leftover, which the next build drops
        connection.execute("DELETE FROM kosmos.indexes WHERE tenant_id = %s", (beta.id,))
    with ThreadPoolExecutor(1) as pool, opened(settings, unsegmented_chunks=1) as packing:
        with _builds_wait(database.admin_url or ""):
            build = pool.submit(engine.tenant("acme").indexes.build)
            _building(database.admin_url or "")
            with pytest.raises(IndexLocked, match="another tenant"):
                packing.tenant("beta").indexes.build()
            assert "segment" in {info.kind for info in beta.indexes.status()}
        assert only(build.result()).state == "ready"
    assert only(beta.indexes.build()).state == "ready"
    assert list(physical(database).values()) == [True, True]


def test_build__while_the_tenant_is_erased_is_refused(engine: Engine, database: DatabaseSettings) -> None:
    """No maintenance would drop the index of a tenant that is gone."""
    scope = engine.tenant("acme")
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database.admin_url or "") as holder:
        holder.execute("SELECT FROM kosmos.tenants WHERE tenant_id = %s FOR UPDATE", (scope.id,))
        erasure = pool.submit(scope.erase_all)
        _erasing(database.admin_url or "")
        with pytest.raises(IndexLocked, match="tenant acme are being worked on"):
            scope.indexes.build()
        holder.rollback()
        assert erasure.result().erased["tenants"] == 1
    assert physical(database) == {}


# --- leftovers -------------------------------------------------------------------------------------------------------


def test_index__that_no_row_knows_is_dropped(indexed: Engine, database: DatabaseSettings) -> None:
    [index_name] = physical(database)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        row = connection.execute("SELECT pg_get_indexdef(%s::regclass)", (f"kosmos.{index_name}",)).fetchone()
        assert row
        connection.execute(row[0].replace(index_name, f"vec_{uuid.uuid4().hex}"))
    assert len(physical(database)) == 2
    indexed.tenant("acme").indexes.build()
    assert list(physical(database)) == [index_name]


def test_index__that_is_dropped_by_hand_is_made_again(indexed: Engine, database: DatabaseSettings) -> None:
    [index_name] = physical(database)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(sql.SQL("DROP INDEX kosmos.{}").format(sql.Identifier(index_name)))
    scope = indexed.tenant("acme")
    assert_exact(indexed)
    assert only(scope.indexes.status()).due == "it is not in the catalog of the server"
    scope.indexes.build()
    assert list(physical(database).values()) == [True]
    assert_right(indexed, "ivfflat")


def test_index__that_became_invalid_is_made_again(indexed: Engine, database: DatabaseSettings) -> None:
    [index_name] = physical(database)
    with psycopg.connect(database.admin_url or "", autocommit=True) as connection:
        connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", (f"kosmos.{index_name}",)
        )
    assert_exact(indexed)
    assert only(indexed.tenant("acme").indexes.status()).due == "its build did not finish"
    indexed.tenant("acme").indexes.build()
    assert list(physical(database).values()) == [True]
    assert index_name not in physical(database)


def test_build__without_an_administrator_names_the_setting(settings: Settings, database: DatabaseSettings) -> None:
    without = settings.model_copy(update={"database": database.model_copy(update={"admin_url": None})})
    with opened(without) as engine:
        with pytest.raises(ConfigError, match=r"database\.admin_url is not set"):
            engine.tenant("acme").indexes.build()
        assert only(engine.tenant("acme").indexes.status()).kind == "none", "nothing is left behind"
        assert engine.tenant("acme").search("topic3", FULL).returned == FULL
