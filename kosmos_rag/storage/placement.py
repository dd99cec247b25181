"""Find the node that holds a tenant, and run statements there."""

import json
import uuid
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg

from kosmos_rag.core.errors import StatementFailed
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """The shard with the vectors of a tenant, and its node."""

    shard: int
    host: str
    port: int

    @property
    def suffix(self) -> str:
        """Suffix of the names of the shard and its indexes."""
        return f"_{self.shard}"

    def run(self, connection: psycopg.Connection, command: str) -> str:
        """Run a statement on the node.

        Returns its first value as text. Outside the transaction of the connection, as its current role.

        Raises:
            StatementFailed: the node refused the statement, or is down.
        """
        values = {"host": self.host, "port": self.port, "command": command}
        row = connection.execute(statement("run_on_node"), values).fetchone()
        assert row is not None
        succeeded, result = row
        if not succeeded:
            raise StatementFailed(f"node {self.host}:{self.port} of the cluster: {result}")
        return str(result)

    def fetch(
        self, connection: psycopg.Connection, query: LiteralString, values: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Run a query on the node, and return its rows by column.

        Raises:
            StatementFailed: the node refused the query, or is down.
        """
        bound = psycopg.ClientCursor(connection).mogrify(query, values)
        rows: list[dict[str, Any]] = json.loads(self.run(connection, _ROWS_AS_JSON + bound + _END))
        return rows


_ROWS_AS_JSON, _END = "SELECT coalesce(json_agg(q), '[]') FROM (", ") q"
"""A node returns one value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterNode:
    """A node that holds tenants."""

    id: int
    """Its number in Citus. It discloses no address."""
    address: str
    available: bool


def cluster_nodes(connection: psycopg.Connection) -> tuple[ClusterNode, ...]:
    """Return the nodes that hold tenants, and whether the coordinator reaches them.

    Empty on a server without Citus. A node that does not answer takes two seconds.
    """
    row = connection.execute(statement("citus_nodes")).fetchone()
    if row is None or not row[0]:
        return ()
    connection.execute(statement("set_node_timeout"))
    rows = connection.execute(statement("node_states")).fetchall()
    return tuple(ClusterNode(id=number, address=address, available=up) for number, address, up in rows)


def metadata_nodes(connection: psycopg.Connection) -> list[tuple[str, int]]:
    """Return host and port of the nodes with the metadata of Citus.

    The coordinator is not among them. Each of them knows where each tenant is, and plans any statement.
    """
    return connection.execute(statement("metadata_nodes")).fetchall()


def find_placement(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Placement | None:
    """Return where the vectors of a tenant are.

    None on a server that distributes nothing.
    """
    if not is_distributed(connection):
        return None
    row = connection.execute(statement("tenant_placement"), {"tenant_id": tenant_id}).fetchone()
    assert row is not None, "a distributed table has a shard for each tenant"
    return Placement(shard=row[0], host=row[1], port=row[2])


def is_distributed(connection: psycopg.Connection) -> bool:
    """Return whether the tables of the schema are distributed."""
    row = connection.execute(statement("citus_nodes")).fetchone()
    return bool(row and row[0]) and bool(connection.execute(statement("citus_tables")).fetchall())
