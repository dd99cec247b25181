"""The lower bound in the database: the statements of a question without the library."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import psycopg
from pgvector.psycopg import register_vector
from psycopg.pq import Format

from kosmos_rag.storage.binary import register_arrays
from kosmos_rag.storage.sql import statement


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """A statement with the values that were bound."""

    query: Any
    values: Any
    binary: bool
    """Whether its rows come in binary form."""


@contextmanager
def record_statements() -> Iterator[list[Statement]]:
    """Collect the statements that this process executes meanwhile, in order."""
    execute = psycopg.Cursor.execute
    statements: list[Statement] = []

    def record(cursor: psycopg.Cursor[Any], query: Any, values: Any = None, **options: Any) -> psycopg.Cursor[Any]:
        # A pool tests a connection that it lends with an empty statement. `replay` begins and commits by itself.
        if query and query not in (statement("begin_read"), statement("commit")):
            statements.append(Statement(query=query, values=values, binary=cursor.format == Format.BINARY))
        return execute(cursor, query, values, **options)

    with patch.object(psycopg.Cursor, "execute", record):
        yield statements


@contextmanager
def reader(url: str) -> Iterator[psycopg.Connection]:
    """Open a connection as the library's readers have it."""
    with psycopg.connect(url, prepare_threshold=None) as connection:
        register_vector(connection)
        register_arrays(connection)
        connection.rollback()
        connection.autocommit = True
        yield connection


def replay(connection: psycopg.Connection, statements: Sequence[Statement]) -> None:
    """Execute the statements in one transaction and one round trip, and fetch all rows."""
    with connection.pipeline():
        connection.execute(statement("begin_read"))
        cursors = [
            connection.cursor(binary=statement.binary).execute(statement.query, statement.values)
            for statement in statements
        ]
        connection.execute(statement("commit"))
        for cursor in cursors:
            cursor.fetchall()
