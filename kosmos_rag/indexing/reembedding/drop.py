"""Removing a space that is not live, in slices: first nobody uses it any more, then its vectors go, then itself."""

import uuid
from collections.abc import Callable

import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Space
from kosmos_rag.indexing.reembedding.backfill import EVERY_ID
from kosmos_rag.indexing.reembedding.transactions import alone, count_vectors, transaction
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, spaces_of

_SLICE = 4_096
"""Vectors deleted in one transaction: publications wait for it."""


def condemn(database: Database, tenant: TenantRef, name: str) -> Space:
    """Take the space of that id or model out of use, so that nobody writes to it or switches to it; returns it.

    Raises RequestError where it is live, not there or ambiguous.
    """
    with alone(database, tenant) as connection:
        named = [
            stored for stored in spaces_of(connection, tenant.id) if name in (stored.space.model, str(stored.space.id))
        ]
        if len(named) != 1:
            count = f"{len(named)} spaces" if named else "no space"
            raise RequestError(
                f"tenant {tenant.name!r} has {count} of {name!r}; give an id that kosmos-rag embed status shows"
            )
        [found] = named
        if found.live:
            raise RequestError(
                f"the space of {found.space.model!r} is live: questions are answered from it; switch first"
            )
        connection.execute(statement("mark_space_dropping"), {"tenant_id": tenant.id, "space_id": found.space.id})
    return found.space


def delete_space(database: Database, tenant: TenantRef, space: Space, on_progress: Callable[[int, int], None]) -> None:
    """Delete a condemned space without indexes, and tell how many of how many vectors are gone."""
    with transaction(database, tenant) as connection:
        total = count_vectors(connection, tenant, space)
    done, after = 0, EVERY_ID.after
    while True:
        with transaction(database, tenant) as connection:
            # Who deletes chunks deletes their vectors, in another order: without taking turns the two could deadlock.
            connection.execute(statement("lock_collections"), {"tenant_id": tenant.id})
            gone = _delete_slice(connection, tenant, space, after)
        if not gone:
            break
        done, after = done + len(gone), max(gone)
        on_progress(done, total)
    with alone(database, tenant) as connection:
        # What publications that were under way have still written.
        while _delete_slice(connection, tenant, space, EVERY_ID.after):
            pass
        connection.execute(statement("delete_space"), {"tenant_id": tenant.id, "space_id": space.id})


def _delete_slice(connection: psycopg.Connection, tenant: TenantRef, space: Space, after: uuid.UUID) -> list[uuid.UUID]:
    values = {"tenant_id": tenant.id, "space_id": space.id, "after": after, "limit": _SLICE}
    return [key for (key,) in connection.execute(statement("delete_vectors"), values).fetchall()]
