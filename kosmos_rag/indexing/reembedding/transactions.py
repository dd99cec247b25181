"""What the steps of a move share: their transactions, and how much there is and is lacking."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg

from kosmos_rag.core.types import EVERYONE, Space
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


@contextmanager
def transaction(database: Database, tenant: TenantRef) -> Iterator[psycopg.Connection]:
    """Open a transaction that takes its time: counting does, and so does waiting for a publication."""
    with database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        connection.execute(statement("no_statement_timeout"))
        yield connection


@contextmanager
def alone(database: Database, tenant: TenantRef) -> Iterator[psycopg.Connection]:
    """Open a transaction that no publication overlaps, in any collection of the tenant."""
    with transaction(database, tenant) as connection:
        connection.execute(statement("lock_collections"), {"tenant_id": tenant.id})
        connection.execute(statement("lock_spaces_exclusively"), {"tenant_id": tenant.id})
        yield connection


def count_chunks(connection: psycopg.Connection, tenant: TenantRef) -> int:
    """Return how many chunks a tenant has."""
    return _number(connection, statement("count_chunks"), {"tenant_id": tenant.id})


def count_vectors(connection: psycopg.Connection, tenant: TenantRef, space: Space) -> int:
    """Return how many of a tenant's chunks have a vector in a space."""
    return _number(connection, statement("vectors_of_space"), {"tenant_id": tenant.id, "space_id": space.id})


def count_missing(connection: psycopg.Connection, tenant: TenantRef, space: Space) -> int:
    """Return how many have none."""
    return _number(connection, statement("count_without_vectors"), {"tenant_id": tenant.id, "space_id": space.id})


def _number(connection: psycopg.Connection, query: LiteralString, values: Mapping[str, Any]) -> int:
    row = connection.execute(query, values).fetchone()
    assert row is not None, "an aggregate has a row"
    return int(row[0])
