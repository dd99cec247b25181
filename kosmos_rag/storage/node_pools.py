"""Connect to the node that holds a tenant.

Every node of Citus knows where each tenant is and answers for all of them. Asked on its own node, a tenant costs the
coordinator nothing, and the node needs no connection to another one.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg
from cachetools import LRUCache
from psycopg.conninfo import make_conninfo

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import DatabaseUnavailable
from kosmos_rag.storage.breaker_pool import BreakerPool
from kosmos_rag.storage.placement import find_placement, metadata_nodes
from kosmos_rag.storage.pool import ConnectionPool

_PLACEMENT_S = 60.0
"""Seconds for which the node of a tenant is remembered. Its former node answers too, by asking the other one."""
_RETRY_S = 1.0
"""Seconds for which the node of a tenant is remembered while it is down: the tenant may be moved to another one."""
_TENANTS = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Located:
    """The pool of a tenant's node, and the time of its lookup."""

    pool: ConnectionPool
    at: float
    """By `time.monotonic`."""

    def is_fresh(self) -> bool:
        is_down = isinstance(self.pool, BreakerPool) and self.pool.is_down
        return time.monotonic() - self.at < (_RETRY_S if is_down else _PLACEMENT_S)


class NodePools:
    """Find the pool of the node that holds a tenant. Thread-safe."""

    def __init__(self, coordinator: ConnectionPool, conninfo: str, *, settings: DatabaseSettings) -> None:
        """Create the pools, without a connection.

        Args:
            coordinator: Its pool, which serves a database that is not distributed.
            conninfo: Of the coordinator.
            settings: Limits of the connections to each node.
        """
        self._main = coordinator
        self._conninfo = conninfo
        self._settings = settings
        self._lock = threading.Lock()
        # Lookups have a pool of their own: that of the coordinator waits for a server that is down.
        self._coordinator = BreakerPool(
            conninfo,
            role=coordinator.role,
            settings=settings,
            name="the coordinator",
            consequence="nodes that are known answer searches",
        )
        self._pools: dict[tuple[str, int], BreakerPool] = {}
        self._nodes_read_at: float | None = None
        self._located: LRUCache[uuid.UUID, _Located] = LRUCache(_TENANTS)

    @contextmanager
    def checkout(self, tenant_id: uuid.UUID) -> Iterator[psycopg.Connection]:
        """Check out a connection to the node of a tenant. Raises NodeUnavailable."""
        with self._find(tenant_id).checkout() as connection:
            yield connection

    def _find(self, tenant_id: uuid.UUID) -> ConnectionPool:
        """Return the pool of a tenant's node.

        It is the coordinator's on a server that distributes nothing.
        """
        with self._lock:
            located = self._located.get(tenant_id)
        if located is not None and located.is_fresh():
            return located.pool
        try:
            pool = self._look_up(tenant_id)
        except DatabaseUnavailable:
            if located is None:
                raise
            pool = located.pool  # better a former node, which asks the present one, than none
        with self._lock:
            self._located[tenant_id] = _Located(pool=pool, at=time.monotonic())
        return pool

    def _look_up(self, tenant_id: uuid.UUID) -> ConnectionPool:
        """Ask the coordinator for the node of a tenant.

        While it is down, a node is asked. Raises the error of the coordinator if no node answers either.
        """
        try:
            return self._ask(self._coordinator, tenant_id)
        except DatabaseUnavailable:
            with self._lock:
                nodes = list(self._pools.values())
            for node in nodes:
                with suppress(DatabaseUnavailable):
                    return self._ask(node, tenant_id)
            raise

    def _ask(self, server: BreakerPool, tenant_id: uuid.UUID) -> ConnectionPool:
        with server.untenanted() as connection:
            placement = find_placement(connection, tenant_id)
            if placement is None:
                return self._main
            if self._nodes_read_at is None or time.monotonic() - self._nodes_read_at >= _PLACEMENT_S:
                for host, port in metadata_nodes(connection):
                    self._get_pool(host, port)
                self._nodes_read_at = time.monotonic()
        return self._get_pool(placement.host, placement.port)

    def _get_pool(self, host: str, port: int) -> BreakerPool:
        with self._lock:
            if (host, port) not in self._pools:
                self._pools[host, port] = BreakerPool(
                    make_conninfo(self._conninfo, host=host, port=port),
                    role=self._main.role,
                    settings=self._settings,
                    name=f"node {host}:{port} of the cluster",
                    consequence="tenants on other nodes are not affected",
                )
            return self._pools[host, port]

    def close(self) -> None:
        """Close all pools but that of the coordinator that was given."""
        for pool in (self._coordinator, *self._pools.values()):
            pool.close()
