"""Connection pools that stay open from one test to the next.

Opening an engine takes a quarter of a second of computing: three pools connect, and each looks through the catalogue.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kosmos_rag.core.config import DatabaseSettings, Settings
from kosmos_rag.engine import engine
from kosmos_rag.storage import database
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.provision import APP


class KeptPool(ConnectionPool):
    """A pool that the engines of many tests use in turn, and that none of them closes."""

    def close(self) -> None:
        """Leave the connections open."""

    def disconnect(self) -> None:
        """Close all connections."""
        super().close()


@contextmanager
def keep_pools(kept: DatabaseSettings) -> Iterator[None]:
    """Let all engines with just these settings of the database share its pools.

    The catalogue of the database must not change meanwhile: each pool looks through it once.
    """
    pools: dict[str, KeptPool] = {}
    create: Callable[..., ConnectionPool] = vars(database)["ConnectionPool"]
    create_background = engine._background_pool

    def create_or_keep(conninfo: str, *, role: str, settings: DatabaseSettings) -> ConnectionPool:
        if settings != kept:
            return create(conninfo, role=role, settings=settings)
        if role not in pools:
            pools[role] = KeptPool(conninfo, role=role, settings=settings)
        return pools[role]

    def create_or_keep_background(opened: Database, settings: Settings) -> ConnectionPool:
        if settings.database != kept:
            return create_background(opened, settings)
        if "background" not in pools:
            one_connection = kept.model_copy(update={"pool_size": 1})
            pools["background"] = KeptPool(kept.url, role=APP, settings=one_connection)
        return pools["background"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "ConnectionPool", create_or_keep)
        patch.setattr(engine, "_background_pool", create_or_keep_background)
        yield
    for pool in pools.values():
        pool.disconnect()
