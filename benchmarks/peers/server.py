"""The embedded server that all systems share, and a database of its own for each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from kosmos_rag.storage import embedded
from kosmos_rag.storage.provision import create_database

_SIZE = """
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema')"""
_VERSIONS = """
    SELECT current_setting('server_version'), default_version FROM pg_available_extensions WHERE name = 'vector'"""
_MAINTENANCE = "postgres"


class Server:
    """An embedded PostgreSQL in a folder."""

    def __init__(self, folder: Path) -> None:
        """Start it. Raises ConfigError, DatabaseUnavailable."""
        self._embedded = embedded.start(folder)

    def url(self, database: str, role: str = "postgres") -> str:
        """Return where to connect."""
        return self._embedded.conninfo(role, database)

    @contextmanager
    def database(self, name: str) -> Iterator[str]:
        """Make an empty database with pgvector; yields where its administrator connects, and drops it in the end."""
        admin = self.url(_MAINTENANCE)
        create_database(admin, name)
        try:
            with psycopg.connect(self.url(name)) as connection:
                connection.execute("CREATE EXTENSION vector")
            yield self.url(name)
        finally:
            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def versions(self) -> dict[str, str]:
        """Return the versions of the server and of pgvector."""
        with psycopg.connect(self.url(_MAINTENANCE)) as connection:
            server, vector = connection.execute(_VERSIONS).fetchone() or ("", "")
        return {"PostgreSQL": server, "pgvector": vector}


def size(url: str) -> int:
    """Return the bytes of a database's tables with their indexes."""
    with psycopg.connect(url) as connection:
        return int((connection.execute(_SIZE).fetchone() or (0,))[0])
