"""Transactions of one tenant, in which a wing runs statements of its own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg

from kosmos_rag.core.types import EVERYONE, EventType
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant, read_server_time


class TenantSessions:
    """Transactions of one tenant. Thread-safe.

    Every statement binds `tenant_id`; row-level security hides the rows of other tenants.
    """

    def __init__(self, database: Database, owner: TenantRef, principals: Sequence[str]) -> None:
        self._database = database
        self._owner = owner
        self._principals = tuple(principals)

    @contextmanager
    def read(self, principals: Sequence[str] | None = None) -> Iterator[psycopg.Connection]:
        """Open a read-only transaction that sees what a reader may read.

        Raises DatabaseError.

        Args:
            principals: What the reader holds; None for the reader of the tenant.
        """
        reader = self._principals if principals is None else principals
        with self._database.app.transaction(self._owner.id, reader) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[psycopg.Connection]:
        """Open a transaction of the worker role, which sees and changes all rows of the tenant.

        Raises ConfigError without `database.worker_url`, DatabaseError.
        """
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            yield connection

    def lock_erasures(self, connection: psycopg.Connection) -> None:
        """Wait for an erasure in the tenant, and exclude others until the transaction ends.

        What is derived from rows of a reader must not be stored after they were erased. Take it before the rows are
        read.

        Args:
            connection: A transaction that `write` opened.
        """
        connection.execute(statement("lock_erasures"), {"tenant_id": self._owner.id})

    def record_event(self, collection: str, kind: EventType, data: Mapping[str, Any]) -> None:
        """Record an event, if the tenant records events. Raises ConfigError, DatabaseError.

        Args:
            collection: What it is about; `*` for the whole tenant.
        """
        with self._database.worker.transaction_with_events(self._owner.id, [EVERYONE]) as (_, events):
            events.add(collection, kind, [data])

    def create_tenant(self, connection: psycopg.Connection) -> datetime:
        """Create the tenant's row if it is missing, and return the time of the server.

        Args:
            connection: A transaction that `write` opened.
        """
        now = read_server_time(connection)
        create_tenant(connection, self._owner, now=now)
        return now
