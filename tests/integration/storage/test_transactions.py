"""Transactions of the reading role: what they are, and how often they wait for the server."""

import threading
import time
import uuid
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from psycopg.waiting import Wait

from kosmos_rag import Engine
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable, StatementFailed
from kosmos_rag.storage import preflight
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.pool import ConnectionPool, flush
from kosmos_rag.storage.provision import APP
from tests.relay import relay


def _count_waits(monkeypatch: pytest.MonkeyPatch) -> list[Wait]:
    """Record each wait of this thread that is only for the server to answer; the pool opens connections in others."""
    waits: list[Wait] = []
    thread = threading.get_ident()
    wait = psycopg.Connection.wait

    def count_waits(steps: Generator[Wait, Any, Any]) -> Generator[Wait, Any, Any]:
        ready: Any = None
        try:
            while True:
                step = steps.send(ready)
                if step == Wait.R and threading.get_ident() == thread:
                    waits.append(step)
                ready = yield step
        except StopIteration as stop:
            return stop.value

    def waiting(connection: Any, steps: Any, *args: Any, **kwargs: Any) -> Any:
        return wait(connection, count_waits(steps), *args, **kwargs)

    monkeypatch.setattr(psycopg.Connection, "wait", waiting)
    return waits


@pytest.mark.usefixtures("tenant_name")
@pytest.mark.parametrize(
    ("append_only", "expected"), [(False, ("repeatable read", "on")), (True, ("read committed", "off"))]
)
def test_transaction__sends_its_first_statements_without_waiting(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, append_only: bool, expected: tuple[str, str]
) -> None:
    pool = engine.database.app
    with pool.transaction(uuid.uuid4(), []):
        pass
    waits = _count_waits(monkeypatch)
    with pool.transaction(uuid.uuid4(), [], append_only=append_only) as connection:
        cursor = connection.execute(
            "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
        )
        assert waits == []
        assert cursor.fetchall() == [expected]
        assert waits


@pytest.mark.usefixtures("tenant_name")
def test_transaction__runs_on_the_connection_that_the_preflight_checked(
    database: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    require, checked = preflight.require, []

    def record(connection: psycopg.Connection, role: str) -> None:
        checked.append(connection.info.backend_pid)
        require(connection, role)

    monkeypatch.setattr(preflight, "require", record)
    opened = Database(database)
    try:
        # A call that comes before the pool's own threads have filled it makes it grow: on a busy machine it had two.
        opened.app._open()
        opened.app._pool.wait()
        for _ in range(2):
            with opened.app.transaction(uuid.uuid4(), []) as connection:
                assert [connection.info.backend_pid] == checked
    finally:
        opened.close()


@pytest.mark.usefixtures("tenant_name")
def test_transaction__that_fails_leaves_a_connection_that_works(engine: Engine) -> None:
    tenant_id = uuid.uuid4()
    for _ in range(2 * engine.settings.database.pool_size):
        with pytest.raises(StatementFailed), engine.database.app.transaction(tenant_id, []) as connection:
            connection.execute("SELECT 1 / 0").fetchall()
        with engine.database.app.transaction(tenant_id, []) as connection:
            assert connection.execute("SELECT count(*) FROM kosmos.chunks").fetchall() == [(0,)]


def test_transaction__of_a_tenant_that_was_erased_meanwhile_says_so(engine: Engine, tenant_name: str) -> None:
    scope = engine.tenant(tenant_name)
    upload = scope.uploads.open()
    upload.write(b"one")
    scope.erase_all()
    with pytest.raises(StatementFailed, match="the tenant was erased meanwhile and nothing was stored: try again"):
        upload.write(b"two")


def test_checkout__after_an_outage_does_not_blame_the_size_of_the_pool(shared_database: DatabaseSettings) -> None:
    """The pool tries again later than the server is back; raising its size would change nothing."""
    settings = shared_database.model_copy(update={"connect_timeout_s": 1.5})
    with relay(shared_database.url) as relayed:
        pool = ConnectionPool(relayed.conninfo(shared_database.url), role=APP, settings=settings)
        try:
            with pool.untenanted():
                pass
            relayed.cut()
            # Its second attempt is a second after the first, and the third two seconds later.
            back = threading.Timer(1.3, relayed.restore)
            back.start()
            with pytest.raises(DatabaseUnavailable, match=r"refused one a moment ago .* answers again; try again"):
                pool.untenanted().__enter__()
            back.join()
            deadline = time.monotonic() + 10
            while True:
                try:
                    with pool.untenanted():
                        break
                except DatabaseUnavailable:
                    assert time.monotonic() < deadline
        finally:
            pool.close()


def test_checkout__says_that_all_connections_are_in_use(shared_database: DatabaseSettings) -> None:
    settings = shared_database.model_copy(update={"pool_size": 1, "connect_timeout_s": 0.3})
    pool = ConnectionPool(shared_database.url, role=APP, settings=settings)
    try:
        with pool.untenanted(), pytest.raises(DatabaseUnavailable, match=r"raise database\.pool_size"):
            pool.untenanted().__enter__()
    finally:
        pool.close()


def test_flush__has_the_server_begin_while_the_client_continues(server: Any) -> None:
    """The parameter is larger than the buffer of the socket, and so is the result before it."""
    large = "x" * 4_000_000
    with psycopg.connect(server.admin) as connection, psycopg.connect(server.admin, autocommit=True) as other:
        with connection.pipeline():
            first = connection.execute("SELECT repeat('y', length(%s))", (large,))
            connection.execute("SELECT pg_advisory_xact_lock(length(%s))", (large,))
            flush(connection)
            deadline = time.monotonic() + 20
            while other.execute("SELECT pg_try_advisory_xact_lock(%s)", (len(large),)).fetchone() == (True,):
                assert time.monotonic() < deadline, "the server waits for the client"
                time.sleep(0.01)
            row = first.fetchone()
        assert row is not None
        assert len(row[0]) == len(large)
