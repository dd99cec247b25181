"""The nodes of the cluster: a database on all of them, and what their administrator sees."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from kosmos_rag.core.config import DatabaseSettings
from tests.conftest import Server


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node, by its name in Citus."""

    host: str
    port: int
    coordinator: bool

    def url(self, admin: str, database: str) -> str:
        """The administrator's address of a database on this node."""
        parts = urlsplit(admin)
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit((parts.scheme, f"{user}@{self.host}:{self.port}", f"/{database}", parts.query, ""))


def nodes(admin: str) -> list[Node]:
    """The coordinator first, then the workers."""
    with psycopg.connect(admin) as connection:
        rows = connection.execute("SELECT nodename, nodeport, groupid FROM pg_dist_node ORDER BY groupid").fetchall()
    return [Node(host=host, port=port, coordinator=group == 0) for host, port, group in rows]


@contextmanager
def new_database(admin: str) -> Iterator[tuple[DatabaseSettings, list[Node]]]:
    """An empty database on every node, without the extension."""
    name, members = f"kosmos_nodes_{uuid.uuid4().hex[:8]}", nodes(admin)
    database_name = urlsplit(admin).path.lstrip("/")
    for node in members:
        with psycopg.connect(node.url(admin, database_name), autocommit=True) as connection:
            connection.execute("SET citus.enable_create_database_propagation = off")
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        yield Server(admin=admin).settings(name), members
    finally:
        for node in members:
            with psycopg.connect(node.url(admin, database_name), autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def add_nodes(settings: DatabaseSettings, members: list[Node]) -> None:
    """Install Citus in a database of all nodes, and make them a cluster."""
    admin = settings.admin_url or ""
    name = urlsplit(admin).path.lstrip("/")
    for node in members:
        with psycopg.connect(node.url(admin, name), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION citus")
    with psycopg.connect(admin, autocommit=True) as connection:
        for node in members:
            call = "citus_set_coordinator_host" if node.coordinator else "citus_add_node"
            connection.execute(sql.SQL("SELECT {}(%s, %s)").format(sql.Identifier(call)), [node.host, node.port])
