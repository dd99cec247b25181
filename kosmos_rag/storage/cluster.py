"""List the nodes of a Citus cluster; move and isolate tenants.

A move copies the shards of a tenant, and blocks writes to them until it is done. Citus can copy by logical replication
too, where writes continue. It runs as the owner of the tables, and PostgreSQL refuses that where row-level security is
forced on the owner, as it is here: docs/scale.md.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from kosmos_rag.core.errors import IndexLocked, NodeUnavailable, RequestError, StatementFailed
from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.storage.citus import require_cluster
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.placement import ClusterNode, cluster_nodes, is_distributed
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeInfo(Serializable):
    """A node that holds tenants."""

    id: int
    """Its number in Citus."""
    address: str
    available: bool
    shards: int
    """Shards of a table on it; each holds the tenants of a range of hashes."""
    bytes: int | None
    """Size of the tables on it; None while a node is down."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantShard(Serializable):
    """The node and the shard of a tenant."""

    tenant: str
    node: int
    shard: int
    """The shard of the table `tenants`; those of the other tables move with it."""
    isolated: bool
    """Whether the shard holds no other tenant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardMove(Serializable):
    """The result of a move or an isolation."""

    tenant: str
    source: int
    target: int
    shard: int
    seconds: float
    """How long it took; writes to the shard waited for most of it."""


class CitusCluster:
    """The nodes of a Citus cluster, for its administrator. Thread-safe.

    Each call has a connection of its own.
    """

    def __init__(self, admin_conninfo: str) -> None:
        """Connect as a superuser of the coordinator."""
        self._admin_conninfo = admin_conninfo

    def list_nodes(self) -> list[NodeInfo]:
        """Return the nodes that hold tenants. Raises DatabaseUnavailable, DatabaseNotReady."""
        with _connect(self._admin_conninfo) as connection:
            nodes = cluster_nodes(connection)
            shards = dict(connection.execute(statement("shards_by_node")).fetchall())
            # Sizes are read from the nodes: with one of them down the statement fails.
            sizes = (
                dict(connection.execute(statement("bytes_by_node"))) if all(node.available for node in nodes) else {}
            )
            return [
                NodeInfo(
                    id=node.id,
                    address=node.address,
                    available=node.available,
                    shards=shards.get(node.id, 0),
                    bytes=int(sizes.get(node.id, 0)) if sizes else None,
                )
                for node in nodes
            ]

    def find_tenant(self, tenant: TenantRef) -> TenantShard:
        """Return node and shard of a tenant. Raises DatabaseUnavailable, DatabaseNotReady."""
        with _connect(self._admin_conninfo) as connection:
            return _find_tenant(connection, tenant)

    def move_tenant(self, tenant: TenantRef, node: int, *, limit_s: float) -> ShardMove:
        """Move the shard of a tenant to another node.

        All tenants in it move. Questions continue. Writes to the shard wait until the move is done or given up.

        Args:
            node: number of the target node.
            limit_s: seconds after which the move is given up, and nothing has changed.

        Raises:
            RequestError: there is no such node, or the tenant is on it.
            NodeUnavailable: source or target is down.
            IndexLocked: the tenant's indexes are under maintenance.
            StatementFailed: it took longer than `limit_s`, or Citus refused it.
        """
        with _connect(self._admin_conninfo, limit_s) as connection, _maintenance_lock(connection, tenant):
            location = _find_tenant(connection, tenant)
            nodes = {candidate.id: candidate for candidate in cluster_nodes(connection)}
            if node not in nodes:
                raise RequestError(
                    f"there is no node {node} that holds tenants; `kosmos-rag cluster status` lists them"
                )
            if node == location.node:
                raise RequestError(f"{tenant.name} is on node {node} already; name another one")
            _require_available(nodes[location.node], nodes[node])
            values = {"shard": location.shard, "source": location.node, "target": node}
            began = time.monotonic()
            with _translate_timeout(limit_s):
                connection.execute(statement("move_shard"), values)
            seconds = time.monotonic() - began
        return ShardMove(tenant=tenant.name, source=location.node, target=node, shard=location.shard, seconds=seconds)

    def isolate_tenant(self, tenant: TenantRef, *, limit_s: float) -> ShardMove:
        """Give a tenant a shard of its own on its node.

        It can be moved alone then. Writes of all tenants of its old shard wait until it is done or given up. Arguments
        and errors are those of `move_tenant`.

        Raises:
            RequestError: the tenant has a shard of its own.
        """
        with _connect(self._admin_conninfo, limit_s) as connection, _maintenance_lock(connection, tenant):
            location = _find_tenant(connection, tenant)
            if location.isolated:
                raise RequestError(f"{tenant.name} has the shard {location.shard} to itself already")
            nodes = {candidate.id: candidate for candidate in cluster_nodes(connection)}
            _require_available(nodes[location.node])
            began = time.monotonic()
            with _translate_timeout(limit_s):
                connection.execute(statement("isolate_tenant"), {"tenant_id": tenant.id})
            seconds = time.monotonic() - began
            shard = _find_tenant(connection, tenant).shard
        return ShardMove(tenant=tenant.name, source=location.node, target=location.node, shard=shard, seconds=seconds)


@contextmanager
def _connect(admin_conninfo: str, limit_s: float = 0) -> Iterator[psycopg.Connection]:
    """Connect to the coordinator.

    A statement takes `limit_s` at most, or any time for 0.
    """
    options = f"-c statement_timeout={round(limit_s * 1000)}"
    with connect_administrator(admin_conninfo, autocommit=True, options=options) as connection:
        require_cluster(connection)
        if not is_distributed(connection):
            raise RequestError("the tables are not distributed yet; run `kosmos-rag migrate --distribute`")
        yield connection


@contextmanager
def _maintenance_lock(connection: psycopg.Connection, tenant: TenantRef) -> Iterator[None]:
    """Lock the indexes of the tenant against builds.

    One that runs meanwhile would be lost with the old shard.
    """
    if connection.execute(statement("try_maintenance_lock"), {"tenant_id": tenant.id}).fetchone() != (True,):
        raise IndexLocked(f"the indexes of {tenant.name} are under maintenance; try again when it has ended")
    yield  # the session holds the lock, and ends with the command


def _find_tenant(connection: psycopg.Connection, tenant: TenantRef) -> TenantShard:
    row = connection.execute(statement("tenant_shard"), {"tenant_id": tenant.id}).fetchone()
    assert row is not None, "a distributed table has a shard for each tenant"
    node, shard, isolated = row
    return TenantShard(tenant=tenant.name, node=node, shard=shard, isolated=isolated)


def _require_available(*nodes: ClusterNode) -> None:
    for node in nodes:
        if not node.available:
            raise NodeUnavailable(f"node {node.id} of the cluster ({node.address}) cannot be reached; start it first")


@contextmanager
def _translate_timeout(limit_s: float) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.QueryCanceled as error:
        raise StatementFailed(
            f"given up after {limit_s:g} s, and nothing has changed; try again at a quieter time, raise --limit-s, "
            "or add a clone of the node, for which writes wait for seconds (docs/how-to/citus-nodes.md)",
            sqlstate=error.sqlstate,
        ) from error
