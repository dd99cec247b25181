"""Tenants and their embedding spaces in the database."""

import re
import uuid
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import Space
from kosmos_rag.storage.sql import statement

_NAMESPACE = uuid.UUID("6f1d7b0e-35b4-5c9e-9a0c-2f0f6b7f0c11")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

BUILDING, READY, DROPPING = "building", "ready", "dropping"
"""States of a space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantRef:
    """A tenant: the scope that every row belongs to. The id follows from the name, so none has to be looked up."""

    id: uuid.UUID
    name: str


def tenant(name: str) -> TenantRef:
    """Return the tenant of that name, whether it has documents or not. Raises RequestError on a malformed name."""
    return TenantRef(id=uuid.uuid5(_NAMESPACE, well_formed("tenant", name)), name=name)


def well_formed(what: str, name: str) -> str:
    """Return the name of a tenant or a collection. Raises RequestError on a malformed one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{what} name {str(name)[:80]!r} is malformed; "
            "use 1 to 63 of a-z, 0-9, '-' and '_', a letter or digit first"
        )
    return name


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredSpace:
    """An embedding space as the database has it."""

    space: Space
    state: str
    """`building`: has never been live; `ready`: has; `dropping`: its vectors are being deleted."""
    live: bool
    """Whether questions are answered from it."""
    live_until: datetime | None
    """When another became live in its place."""
    truncated_tokens: int
    """Tokens that its model did not read of chunks that were too long for it, while the space was filled."""
    created_at: datetime


def ensure_tenant(
    connection: psycopg.Connection, owner: TenantRef, collection: str, space: Space | None, *, now: datetime
) -> None:
    """Create tenant and collection where missing, in the caller's transaction.

    Args:
        connection: within a transaction of the tenant.
        owner: the tenant.
        collection: name of the collection.
        space: becomes the live space of a tenant without one; None where the tenant is known to have one.
        now: time of creation.
    """
    create_tenant(connection, owner, now=now)
    values = {"tenant_id": owner.id, "collection": collection}
    connection.execute(statement("create_collection_statistics"), values)
    if space is not None and live_space(connection, owner.id) is None:
        create_space(connection, owner.id, space, state=READY, now=now)
        connection.execute(statement("make_space_live"), {**values, "space_id": space.id})


def create_tenant(connection: psycopg.Connection, owner: TenantRef, *, now: datetime) -> None:
    """Create the tenant where it is missing."""
    connection.execute(statement("create_tenant"), {"tenant_id": owner.id, "name": owner.name, "now": now})


def create_space(
    connection: psycopg.Connection, tenant_id: uuid.UUID, space: Space, *, state: str, now: datetime
) -> None:
    """Add a space to a tenant; one of the same id stays as it is."""
    values = {
        "tenant_id": tenant_id,
        "space_id": space.id,
        "model": space.model,
        "dimensions": space.dimensions,
        "normalized": space.normalized,
        "probe": "[" + ",".join(f"{value:.6g}" for value in space.probe) + "]",
        "state": state,
        "now": now,
    }
    connection.execute(statement("create_space"), values)


def live_space(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Space | None:
    """Return the space that the tenant's questions are answered from; None for a tenant without documents."""
    row = connection.execute(statement("live_space"), {"tenant_id": tenant_id}).fetchone()
    return None if row is None else _space(*row)


def spaces_of(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[StoredSpace]:
    """Return the spaces of a tenant: the live one, those that were live, the last first, and those being built."""
    rows = connection.execute(statement("spaces_of_tenant"), {"tenant_id": tenant_id}).fetchall()
    return [
        StoredSpace(
            space=_space(*row[:5]),
            state=row[5],
            live=row[6],
            live_until=row[7],
            truncated_tokens=row[8],
            created_at=row[9],
        )
        for row in rows
    ]


def written_spaces(connection: psycopg.Connection, tenant_id: uuid.UUID) -> list[Space]:
    """Return the spaces that a publication writes vectors of, where it has their models; the live one comes first."""
    return [stored.space for stored in spaces_of(connection, tenant_id) if stored.state != DROPPING]


def _space(space_id: uuid.UUID, model: str, dimensions: int, normalized: bool, probe: str) -> Space:
    return Space(
        id=space_id,
        model=model,
        dimensions=dimensions,
        normalized=normalized,
        probe=np.array(probe.strip("[]").split(","), dtype=np.float32),
    )
