"""Transactions of maintenance: without a statement timeout, with publications locked out, with a lock."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import LiteralString

import psycopg

from kosmos_rag.core.errors import IndexLocked
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_HAS_TRANSACTION_TIMEOUT = 170000
"""Version of the server since which there is `transaction_timeout`."""


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
def maintenance_lock(database: Database, tenant: TenantRef) -> Iterator[None]:
    """Hold the maintenance lock of a tenant.

    A transaction of its own holds it, so that a pooler cannot give the session with it to another client.

    Raises IndexLocked, DatabaseError.
    """
    values = {"tenant_id": tenant.id}
    with database.worker.session() as session:
        session.execute(statement("begin_maintenance"))
        if session.execute(statement("try_maintenance_lock_of_transaction"), values).fetchone() != (True,):
            raise IndexLocked(
                f"the indexes of tenant {tenant.name} are being worked on by another process; try again later"
            )
        # Last: a statement with values keeps its snapshot until the next one, and index builds wait for it.
        session.execute(statement("no_idle_timeout"))
        if session.info.server_version >= _HAS_TRANSACTION_TIMEOUT:
            session.execute(statement("no_transaction_timeout"))
        with _released_at_end(session, statement("commit")):
            yield


@contextmanager
def ensure_lock_release(session: psycopg.Connection, tenant_id: uuid.UUID) -> Iterator[None]:
    """Release the maintenance lock of a session at the end, also after an error."""
    with _released_at_end(session, statement("release_maintenance_lock"), {"tenant_id": tenant_id}):
        yield


@contextmanager
def _released_at_end(
    session: psycopg.Connection, release: LiteralString, values: Mapping[str, object] | None = None
) -> Iterator[None]:
    try:
        yield
    finally:
        # The server releases the locks of a closed session only when it notices the end: the next maintenance, at once
        # after this one, would be refused. A session that is lost has no lock to release.
        with suppress(psycopg.OperationalError):
            session.execute(release, values)
