"""Connect to the node that holds a tenant.

Every node of Citus knows where each tenant is and answers for all of them. Asked on its own node, a tenant costs the
coordinator nothing, and the node needs no connection to another one.
"""

import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import psycopg_pool
from cachetools import TTLCache
from psycopg.conninfo import make_conninfo

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import NodeUnavailable, first_line
from kosmos_rag.storage.placement import find_placement
from kosmos_rag.storage.pool import ConnectionPool

_PLACEMENT_S = 60.0
"""Seconds for which the node of a tenant is remembered. Its former node answers too, by asking the other one."""
_TENANTS = 100_000


class NodePool(ConnectionPool):
    """Pool connections to one node.

    The preflight of the coordinator holds for its nodes.
    """

    def __init__(self, conninfo: str, *, role: str, settings: DatabaseSettings, address: str) -> None:
        super().__init__(conninfo, role=role, settings=settings)
        self._address = address

    def _open(self) -> None:
        with self._lock:
            if not self._ready:
                # The pool alone would wait for a node that is down until its timeout.
                self._probe()
                self._pool.open()
                self._ready = True

    def _probe(self) -> None:
        try:
            psycopg.connect(self._conninfo, **self._connect_arguments()).close()
        except psycopg.OperationalError as error:
            raise self._unavailable_error(error) from error

    def _unavailable_error(self, error: psycopg.OperationalError) -> NodeUnavailable:
        return NodeUnavailable(
            f"node {self._address} of the cluster cannot be reached: {first_line(error)}; start it, let clients "
            "reach it by this name, or set database.use_nodes to false"
        )

    @contextmanager
    def checkout(self) -> Iterator[psycopg.Connection]:
        """Check out a connection, outside transactions. Raises NodeUnavailable."""
        if not self._ready:
            self._open()
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(self._pool.connection())
            except (psycopg_pool.PoolTimeout, psycopg.OperationalError):
                self._probe()
                raise
            try:
                yield connection
            except psycopg.OperationalError as error:
                if not connection.closed:
                    raise
                raise self._unavailable_error(error) from error


class NodePools:
    """Find the pool of the node that holds a tenant. Thread-safe."""

    def __init__(self, coordinator: ConnectionPool, conninfo: str, *, settings: DatabaseSettings) -> None:
        self._coordinator = coordinator
        self._conninfo = conninfo
        self._settings = settings
        self._lock = threading.Lock()
        self._pools: dict[tuple[str, int], NodePool] = {}
        self._tenant_pools: TTLCache[uuid.UUID, ConnectionPool] = TTLCache(_TENANTS, _PLACEMENT_S)

    @contextmanager
    def checkout(self, tenant_id: uuid.UUID) -> Iterator[psycopg.Connection]:
        """Check out a connection to the node of a tenant. Raises NodeUnavailable."""
        try:
            with self._find(tenant_id).checkout() as connection:
                yield connection
        except NodeUnavailable:
            # The tenant may have been moved from a node that has been taken away since.
            with self._lock:
                self._tenant_pools.pop(tenant_id, None)
            raise

    def _find(self, tenant_id: uuid.UUID) -> ConnectionPool:
        """Return the pool of a tenant's node.

        It is the coordinator's on a server that distributes nothing.
        """
        with self._lock:
            if (cached_pool := self._tenant_pools.get(tenant_id)) is not None:
                return cached_pool
        with self._coordinator.untenanted() as connection:
            placement = find_placement(connection, tenant_id)
        with self._lock:
            pool: ConnectionPool = self._coordinator
            if placement is not None:
                pool = self._get_pool(placement.host, placement.port)
            self._tenant_pools[tenant_id] = pool
            return pool

    def _get_pool(self, host: str, port: int) -> NodePool:
        if (host, port) not in self._pools:
            self._pools[host, port] = NodePool(
                make_conninfo(self._conninfo, host=host, port=port),
                role=self._coordinator.role,
                settings=self._settings,
                address=f"{host}:{port}",
            )
        return self._pools[host, port]

    def close(self) -> None:
        """Close all pools but that of the coordinator."""
        for pool in self._pools.values():
            pool.close()
