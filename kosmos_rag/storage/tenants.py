"""Create and read tenants and their embedding spaces."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import Prefixes, Space
from kosmos_rag.storage.sql import statement

_NAMESPACE = uuid.UUID("6f1d7b0e-35b4-5c9e-9a0c-2f0f6b7f0c11")


class SpaceState(StrEnum):
    """The state of an embedding space."""

    BUILDING = "building"
    """It was never live."""
    READY = "ready"
    """It is or was live."""
    DROPPING = "dropping"
    """Its vectors are being deleted."""


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
    state: SpaceState
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
    """
    create_tenant(connection, owner, now=now)
    values = {"tenant_id": owner.id, "collection": collection}
    connection.execute(statement("create_collection_statistics"), values | {"state": uuid.uuid4()})
    spaces = SpaceStore(connection, owner.id)
    if space is not None and spaces.find_live() is None:
        spaces.create(space, state=SpaceState.READY, now=now)
        connection.execute(statement("make_space_live"), {**values, "space_id": space.id})


def read_server_time(connection: psycopg.Connection) -> datetime:
    """Return the server's time of the start of the transaction.

    The clocks of processes may differ. It is bound as a value: a distributed server refuses `now()` in an upsert.
    """
    row = connection.execute(statement("server_time")).fetchone()
    assert row is not None
    time: datetime = row[0]
    return time


def create_tenant(connection: psycopg.Connection, owner: TenantRef, *, now: datetime) -> bool:
    """Create the tenant if it is missing, and return whether it was."""
    values = {"tenant_id": owner.id, "name": owner.name, "now": now}
    return connection.execute(statement("create_tenant"), values).rowcount == 1


class SpaceStore:
    """The embedding spaces of a tenant, in the caller's transaction."""

    def __init__(self, connection: psycopg.Connection, tenant_id: uuid.UUID) -> None:
        self._connection = connection
        self._tenant_id = tenant_id

    def create(self, space: Space, *, state: SpaceState, now: datetime) -> None:
        """Add a space, as the worker role; one of the same id is unchanged.

        Args:
            space: Its probe vector identifies the model.
        """
        values = {
            "tenant_id": self._tenant_id,
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
        self._connection.execute(statement("create_space"), values)

    def find_live(self) -> Space | None:
        """Return the live space; None for a tenant without documents."""
        with self._connection.cursor(row_factory=kwargs_row(_space)) as cursor:
            return cursor.execute(statement("live_space"), {"tenant_id": self._tenant_id}).fetchone()

    def list(self) -> list[StoredSpace]:
        """Return the live space, then former live ones, newest first, then the others."""
        with self._connection.cursor(row_factory=kwargs_row(_stored_space)) as cursor:
            return cursor.execute(statement("spaces_of_tenant"), {"tenant_id": self._tenant_id}).fetchall()

    def list_writable(self) -> Sequence[Space]:
        """Return the spaces that a publication writes vectors of, the live one first."""
        return [stored.space for stored in self.list() if stored.state != SpaceState.DROPPING]


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
        state=SpaceState(state),
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
