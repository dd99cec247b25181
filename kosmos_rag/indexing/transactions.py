"""Transactions of maintenance: without a statement timeout, and with publications locked out."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef


@contextmanager
def maintenance_transaction(database: Database, tenant: TenantRef) -> Iterator[psycopg.Connection]:
    """Open a transaction of the worker role without a statement timeout.

    Raises DatabaseError.
    """
    with database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        # The timeout is meant for queries: to count, to merge and to wait for publications take longer.
        connection.execute(statement("no_statement_timeout"))
        yield connection


@contextmanager
def exclusive_transaction(database: Database, tenant: TenantRef) -> Iterator[psycopg.Connection]:
    """Open a transaction that no publication of the tenant overlaps. Raises DatabaseError."""
    with maintenance_transaction(database, tenant) as connection:
        connection.execute(statement("lock_collections"), {"tenant_id": tenant.id})
        connection.execute(statement("lock_spaces_exclusively"), {"tenant_id": tenant.id})
        yield connection


@contextmanager
def ensure_lock_release(session: psycopg.Connection, tenant_id: uuid.UUID) -> Iterator[None]:
    """Release the maintenance lock at the end, also after an error."""
    try:
        yield
    finally:
        # The server releases the locks of a closed session only when it notices the end: the next maintenance, at once
        # after this one, would be refused. A session that is lost has no lock to release.
        with suppress(psycopg.OperationalError):
            session.execute(statement("release_maintenance_lock"), {"tenant_id": tenant_id})
