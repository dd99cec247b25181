"""The lag of replicas, from positions that the servers give: hours of a busy primary, and one that was restored."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage import replicas
from kosmos_rag.storage.breaker_pool import BreakerPool
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.provision import APP
from kosmos_rag.storage.replicas import Replicas

_SYSTEM = 1


class _ScriptedReplicas(Replicas):
    """Replicas whose servers answer what a test says; None stands for the primary."""

    lsn: ClassVar[Callable[[str | None], int]]

    @classmethod
    def _read(cls, pool: BreakerPool) -> tuple[bool, int, int]:
        address = getattr(pool, "address", None)
        return address is not None, cls.lsn(address), _SYSTEM


@contextmanager
def _replicas(lsn: Callable[[str | None], int], *hosts: str, max_lag_s: float = 5.0) -> Iterator[Replicas]:
    conninfo = "postgresql://primary/x"
    settings = DatabaseSettings(url=conninfo, replica_max_lag_s=max_lag_s)
    primary = ConnectionPool(conninfo, role=APP, settings=settings)
    scripted = type("_Scripted", (_ScriptedReplicas,), {"lsn": staticmethod(lsn)})
    watched = scripted(primary, conninfo, [f"postgresql://{host}/x" for host in hosts], settings)
    try:
        yield watched
    finally:
        watched.close()
        primary.close()


@pytest.mark.parametrize("max_lag_s", [600, 3600])
def test_replica__that_stands_still_is_refused_beside_one_that_follows_a_busy_primary(
    monkeypatch: pytest.MonkeyPatch, max_lag_s: int
) -> None:
    clock, head = 0.0, 1000
    monkeypatch.setattr(replicas, "time", SimpleNamespace(monotonic=lambda: clock))

    def read(address: str | None) -> int:
        nonlocal head
        head += 10
        return 1005 if address == "still:5432" else head

    with _replicas(read, "healthy", "still", max_lag_s=max_lag_s) as watched:
        healthy, still = watched.pools
        for clock in range(2 * max_lag_s):  # noqa: B007 — the clock of the module reads it
            watched.measure()
        assert healthy.lag_s == 0
        assert (still.lag_s or 0) > max_lag_s


def test_replica__of_a_lost_history_is_refused_until_it_has_another_position() -> None:
    lsns: dict[str | None, int] = {None: 50, "lost:5432": 100}
    with _replicas(lsns.__getitem__, "lost") as watched:
        (replica,) = watched.pools
        for position in (50, 100, 101, 150):
            lsns[None] = position
            watched.measure()
            assert (replica.is_refused, replica.lag_s) == (True, None), position
        lsns["lost:5432"] = 149  # it was made again
        watched.measure()
        assert replica.is_refused is False
        assert replica.lag_s is not None


def test_end__does_not_wait_for_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "_INTERVAL_S", 0.01)
    monkeypatch.setattr(replicas, "_CLOSING_S", 0.01)
    hangs, answers, thread = threading.Event(), threading.Event(), threading.current_thread()

    def read(_: str | None) -> int:
        if threading.current_thread() is not thread:
            hangs.set()
            assert answers.wait(20)
        return 1

    with _replicas(read, "silent") as watched:
        watched.pick("reader")
        assert hangs.wait(10)
        watched.close()
        assert "kosmos-rag-replicas" in {each.name for each in threading.enumerate()}, "it was waited for"
        answers.set()
