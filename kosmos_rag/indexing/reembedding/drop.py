"""Drop a space that is not live.

It is retired, then its vectors are deleted in batches, then the space.
"""

import uuid
from collections.abc import Callable

import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Space
from kosmos_rag.indexing.reembedding.backfill import ALL_IDS, count_embedded
from kosmos_rag.indexing.transactions import exclusive_transaction, maintenance_transaction
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import SpaceStore, TenantRef

_BATCH_VECTORS = 4_096
"""Vectors deleted in one transaction: publications wait for it."""


def retire(database: Database, tenant: TenantRef, name: str) -> Space:
    """Retire a space: no more writes and no cutover to it.

    Returns the space.

    Raises RequestError if it is live, missing or ambiguous, DatabaseError.

    Args:
        name: Id or model of the space.
    """
    with exclusive_transaction(database, tenant) as connection:
        matching = [
            stored
            for stored in SpaceStore(connection, tenant.id).list()
            if name in (stored.space.model, str(stored.space.id))
        ]
        if len(matching) != 1:
            count = f"{len(matching)} spaces" if matching else "no space"
            raise RequestError(
                f"tenant {tenant.name!r} has {count} of {name!r}; give an id that kosmos-rag reembed status shows"
            )
        [stored] = matching
        if stored.live:
            raise RequestError(
                f"the space of {stored.space.model!r} is live: queries are answered from it; cut over first"
            )
        connection.execute(statement("mark_space_dropping"), {"tenant_id": tenant.id, "space_id": stored.space.id})
    return stored.space


def delete_space(database: Database, tenant: TenantRef, space: Space, on_progress: Callable[[int, int], None]) -> None:
    """Delete a retired space without indexes.

    Args:
        space: From `retire`.
        on_progress: Called with the number of deleted vectors and of all.
    """
    with maintenance_transaction(database, tenant) as connection:
        total = count_embedded(connection, tenant, space)
    completed, after = 0, ALL_IDS.after
    while True:
        with maintenance_transaction(database, tenant) as connection:
            # A publication deletes vectors with their chunks, in another order: without the lock both could deadlock.
            connection.execute(statement("lock_collections"), {"tenant_id": tenant.id})
            deleted = _delete_batch(connection, tenant, space, after)
        if not deleted:
            break
        completed, after = completed + len(deleted), max(deleted)
        on_progress(completed, total)
    with exclusive_transaction(database, tenant) as connection:
        # Publications that were running during the retirement may have written vectors.
        while _delete_batch(connection, tenant, space, ALL_IDS.after):
            pass
        connection.execute(statement("delete_space"), {"tenant_id": tenant.id, "space_id": space.id})


def _delete_batch(connection: psycopg.Connection, tenant: TenantRef, space: Space, after: uuid.UUID) -> list[uuid.UUID]:
    values = {"tenant_id": tenant.id, "space_id": space.id, "after": after, "limit": _BATCH_VECTORS}
    return [chunk_id for (chunk_id,) in connection.execute(statement("delete_vectors"), values).fetchall()]
