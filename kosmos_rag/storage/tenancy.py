"""Tenants and their embedding spaces in the database."""

import re
import uuid
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import psycopg

from kosmos_rag.errors import RequestError
from kosmos_rag.records import Space
from kosmos_rag.storage.sql import statement

_NAMESPACE = uuid.UUID("6f1d7b0e-35b4-5c9e-9a0c-2f0f6b7f0c11")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tenant:
    """A tenant: the scope that every row belongs to. The id follows from the name, so none has to be looked up."""

    id: uuid.UUID
    name: str


def tenant(name: str) -> Tenant:
    """Return the tenant of that name, whether it has documents or not. Raises RequestError on a malformed name."""
    return Tenant(id=uuid.uuid5(_NAMESPACE, well_formed("tenant", name)), name=name)


def well_formed(what: str, name: str) -> str:
    """Return the name of a tenant or a collection. Raises RequestError on a malformed one."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{what} name {str(name)[:80]!r} is malformed; "
            "use 1 to 63 of a-z, 0-9, '-' and '_', a letter or digit first"
        )
    return name


def ensure_tenant(
    connection: psycopg.Connection, owner: Tenant, collection: str, space: Space, *, now: datetime
) -> None:
    """Create the tenant and the collection with this space where missing. A tenant that has a live space keeps it."""
    values = {
        "tenant_id": owner.id,
        "collection": collection,
        "name": owner.name,
        "space_id": space.id,
        "model": space.model,
        "dimensions": space.dimensions,
        "normalized": space.normalized,
        "probe": "[" + ",".join(f"{value:.6g}" for value in space.probe) + "]",
        "now": now,
    }
    connection.execute(statement("create_tenant"), values)
    connection.execute(statement("create_corpus_statistics"), values)
    if live_space(connection, owner.id) is None:
        connection.execute(statement("create_space"), values)
        connection.execute(statement("make_space_live"), values)


def live_space(connection: psycopg.Connection, tenant_id: uuid.UUID) -> Space | None:
    """Return the space that the tenant's questions are answered from; None for a tenant without documents."""
    row = connection.execute(statement("live_space"), {"tenant_id": tenant_id}).fetchone()
    if row is None:
        return None
    space_id, model, dimensions, normalized, probe = row
    return Space(
        id=space_id,
        model=model,
        dimensions=dimensions,
        normalized=normalized,
        probe=np.array(probe.strip("[]").split(","), dtype=np.float32),
    )
