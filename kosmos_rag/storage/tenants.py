"""Create and read tenants and their embedding spaces."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import Prefixes, Space
from kosmos_rag.storage.sql import statement

_NAMESPACE = uuid.UUID("6f1d7b0e-35b4-5c9e-9a0c-2f0f6b7f0c11")

BUILDING, READY, DROPPING = "building", "ready", "dropping"
"""States of an embedding space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantRef:
    """Id and name of a tenant.

    The id is computed from the name, without a query.
    """

    id: uuid.UUID
    name: str


def tenant(name: str) -> TenantRef:
    """Return the reference of a tenant; the tenant need not exist.

    Raises:
        RequestError: the name is malformed.
    """
    return TenantRef(id=uuid.uuid5(_NAMESPACE, validate_name("tenant", name)), name=name)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSpace:
    """An embedding space with its state in the database."""

    space: Space
    state: str
    """`building`: was never live; `ready`: is or was live; `dropping`: its vectors are being deleted."""
    live: bool
    """True if searches use it."""
    live_until: datetime | None
    """When another space became live in its place."""
    truncated_tokens: int
    """Tokens that the model cut from too long chunks while the space was filled."""
    created_at: datetime


def ensure_tenant(
    connection: psycopg.Connection, owner: TenantRef, collection: str, space: Space | None, *, now: datetime
) -> None:
    """Create tenant and collection where missing, in the caller's transaction.

    Args:
        connection: within a transaction of the tenant.
        space: becomes the live space of a tenant without one; None where the tenant is known to have one.
        now: time of creation.
    """
    create_tenant(connection, owner, now=now)
    values = {"tenant_id": owner.id, "collection": collection}
    connection.execute(statement("create_collection_statistics"), values | {"state": uuid.uuid4()})
    if space is not None and find_live_space(connection, owner.id) is None:
        create_space(connection, owner.id, space, state=READY, now=now)
        connection.execute(statement("make_space_live"), {**values, "space_id": space.id})


def read_server_time(connection: psycopg.Connection) -> datetime:
    """Return the server's time of the start of the transaction.

    The clocks of processes may differ. It is bound as a value: a distributed server refuses `now()` in an upsert.
    """
    row = connection.execute(statement("server_time")).fetchone()
    assert row is not None
    time: datetime = row[0]
    return time


def create_tenant(connection: psycopg.Connection, owner: TenantRef, *, now: datetime) -> None:
    """Create the tenant if it is missing."""
    connection.execute(statement("create_tenant"), {"tenant_id": owner.id, "name": owner.name, "now": now})


def create_space(
    connection: psycopg.Connection, tenant_id: uuid.UUID, space: Space, *, state: str, now: datetime
) -> None:
    """Add a space to a tenant.

    An existing space of the same id is unchanged.

    Args:
        connection: connection of the worker role, with the tenant set.
        space: the space; its probe vector identifies the model.
        state: state of the new space.
        now: time of creation.
    """
    values = {
        "tenant_id": tenant_id,
        "space_id": space.id,
        "model": space.model,
        "dimensions": space.dimensions,
        "normalized": space.normalized,
        "probe": "[" + ",".join(f"{value:.6g}" for value in space.probe) + "]",
        "query_prefix": space.prefixes.query,
        "passage_prefix": space.prefixes.passage,
        "state": state,
        "now": now,
    }
    connection.execute(statement("create_space"), values)


def find_live_space(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Space | None:
    """Return the live space of a tenant.

    The result is None for a tenant without documents.
    """
    with connection.cursor(row_factory=kwargs_row(_space)) as cursor:
        return cursor.execute(statement("live_space"), {"tenant_id": tenant_id}).fetchone()


def list_spaces(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[StoredSpace]:
    """Return the spaces of a tenant, the live one first.

    Then former live ones, newest first, then the others.
    """
    with connection.cursor(row_factory=kwargs_row(_stored_space)) as cursor:
        return cursor.execute(statement("spaces_of_tenant"), {"tenant_id": tenant_id}).fetchall()


def list_writable_spaces(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[Space]:
    """Return the spaces that a publication writes vectors of.

    The live one comes first.
    """
    return [stored.space for stored in list_spaces(connection, tenant_id) if stored.state != DROPPING]


def _stored_space(
    *,
    state: str,
    live: bool,
    live_until: datetime | None,
    truncated_tokens: int,
    created_at: datetime,
    **columns: Any,
) -> StoredSpace:
    return StoredSpace(
        space=_space(**columns),
        state=state,
        live=live,
        live_until=live_until,
        truncated_tokens=truncated_tokens,
        created_at=created_at,
    )


def _space(
    *,
    id: uuid.UUID,  # noqa: A002 — named like the column
    model: str,
    dimensions: int,
    normalized: bool,
    probe: str,
    query_prefix: str,
    passage_prefix: str,
) -> Space:
    return Space(
        id=id,
        model=model,
        dimensions=dimensions,
        normalized=normalized,
        probe=np.array(probe.strip("[]").split(","), dtype=np.float32),
        prefixes=Prefixes(query_prefix, passage_prefix),
    )
