"""A pool with a circuit breaker: a server that is down costs its callers no time, and those of others nothing."""

import errno
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable, NodeUnavailable
from kosmos_rag.storage.breaker_pool import BreakerPool
from kosmos_rag.storage.provision import APP
from tests.relay import Relay, relay


@pytest.fixture
def relayed(shared_database: DatabaseSettings) -> Iterator[Relay]:
    with relay(shared_database.url) as opened:
        yield opened


@pytest.fixture
def pool(shared_database: DatabaseSettings, relayed: Relay) -> Iterator[BreakerPool]:
    """A pool of two connections by way of the relay."""
    settings = shared_database.model_copy(update={"pool_size": 2, "connect_timeout_s": 10.0})
    opened = BreakerPool(
        relayed.conninfo(shared_database.url),
        role=APP,
        settings=settings,
        name="node b of the test",
        consequence="tenants on other nodes are not affected",
    )
    yield opened
    opened.close()


def _ask(pool: BreakerPool) -> None:
    with pool.untenanted() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def _fail(call: Callable[[], None]) -> tuple[float, str]:
    began = time.monotonic()
    with pytest.raises(NodeUnavailable) as caught:
        call()
    return time.monotonic() - began, str(caught.value)


def _wait_for_answer(pool: BreakerPool) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            return _ask(pool)
        except NodeUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_breaker__refuses_calls_at_once_until_the_server_is_back(pool: BreakerPool, relayed: Relay) -> None:
    _ask(pool)
    relayed.cut()
    seconds, message = _fail(lambda: _ask(pool))
    assert seconds < 1
    assert "node b of the test cannot be reached" in message
    assert "tenants on other nodes are not affected" in message
    assert "pool_size" not in message
    assert pool.is_down
    assert max(_fail(lambda: _ask(pool))[0] for _ in range(50)) < 0.1
    relayed.restore()
    _wait_for_answer(pool)
    assert not pool.is_down


def test_breaker__opens_before_the_first_connection_too(pool: BreakerPool, relayed: Relay) -> None:
    relayed.cut()
    assert _fail(lambda: _ask(pool))[0] < 1
    relayed.restore()
    _wait_for_answer(pool)


def test_breaker__opens_for_a_server_that_is_silent(pool: BreakerPool, relayed: Relay) -> None:
    """The connections are in use for a silent server. Who waits for one asks whether it answers."""
    barrier = threading.Barrier(3)
    ended = threading.Event()

    def hold() -> None:
        with pool.checkout():
            barrier.wait()
            ended.wait()

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    barrier.wait()
    relayed.silence()
    try:
        assert _fail(lambda: _ask(pool))[0] < 6
        accepted = relayed.accepted
        assert max(_fail(lambda: _ask(pool))[0] for _ in range(50)) < 0.1
        assert relayed.accepted - accepted <= 1, "callers try the server"
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def test_breaker__stays_closed_where_one_connection_is_lost(
    pool: BreakerPool, shared_database: DatabaseSettings
) -> None:
    with pytest.raises(DatabaseUnavailable), pool.untenanted() as connection:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    for _ in range(3):
        _ask(pool)
    assert not pool.is_down


def test_pool__says_that_its_connections_are_in_use(shared_database: DatabaseSettings) -> None:
    settings = shared_database.model_copy(update={"pool_size": 1, "connect_timeout_s": 0.5})
    pool = BreakerPool(
        shared_database.url,
        role=APP,
        settings=settings,
        name="node b of the test",
        consequence="tenants on other nodes are not affected",
    )
    try:
        with pool.checkout():
            _, message = _fail(lambda: _ask(pool))
        assert "node b of the test answers" in message
        assert "raise database.pool_size" in message
        _ask(pool)
    finally:
        pool.close()


def test_breaker__tries_again_after_an_error_that_is_not_of_the_driver(
    pool: BreakerPool, relayed: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a free descriptor, the driver raises a plain OSError."""
    _ask(pool)
    relayed.cut()
    connect, refused = psycopg.connect, threading.Semaphore(0)

    def refuse(*args: Any, **arguments: Any) -> psycopg.Connection:
        refused.release()
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(psycopg, "connect", refuse)
    assert "Too many open files" in _fail(lambda: _ask(pool))[1]
    # The call itself has tried, and then the thread that waits for the server.
    assert all(refused.acquire(timeout=10) for _ in range(2))
    monkeypatch.setattr(psycopg, "connect", connect)
    relayed.restore()
    _wait_for_answer(pool)


def test_breaker__stays_closed_where_no_thread_can_wait_for_the_server(
    pool: BreakerPool, relayed: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    relayed.cut()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert "cannot be reached" in _fail(lambda: _ask(pool))[1]
    assert not pool.is_down
    relayed.restore()
    _ask(pool)


def test_pool__that_is_closed_refuses_calls(pool: BreakerPool) -> None:
    _ask(pool)
    pool.close()
    with pytest.raises(DatabaseUnavailable, match="closed"):
        _ask(pool)
