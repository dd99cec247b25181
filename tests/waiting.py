"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable

import psycopg


def eventually(condition: Callable[[], bool], *, within_s: float = 10.0) -> float:
    """Wait until something holds. Returns how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < within_s, "it never came to be"
        time.sleep(0.01)
    return time.monotonic() - began


def wait_for_lock(admin: psycopg.Connection) -> None:
    """Return when a transaction of this database waits for another."""
    waiting = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    eventually(lambda: admin.execute(waiting).fetchone() is not None)
