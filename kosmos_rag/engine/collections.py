"""Collections and their presets in the database, and what works by them."""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from cachetools import LRUCache

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset, load
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, CollectionInfo
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.storage.pool import Database, Role
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant, well_formed

_KEPT = 64

_Part = TypeVar("_Part")


class Collections:
    """The collections of the tenants of one database. Thread-safe."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    def create(self, owner: TenantRef, collection: str, preset: str | Path) -> None:
        """Make a collection go by a preset, from now on; one that goes by the very same already stays as it is.

        Raises ConfigError on the preset, RequestError where the collection goes by another one.
        """
        wanted = load(preset, self._settings, validate=build_signal_rules)
        now = datetime.now(UTC)
        values = {"tenant_id": owner.id, "collection": collection, "name": wanted.name, "content": wanted.content}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            create_tenant(connection, owner, now=now)
            connection.execute(statement("create_preset"), {**values, "now": now})
            name, content = connection.execute(statement("preset_of_collection"), values).fetchone() or ("", "")
        if content != wanted.content:
            raise RequestError(
                f"the collection {collection} goes by the preset {name} with other settings; delete it first, or "
                "create one of another name"
            )

    def infos(self, owner: TenantRef, principals: Sequence[str]) -> list[CollectionInfo]:
        """Return the collections that have a preset, or documents that these principals may read, by name."""
        with self._database.app.transaction(owner.id, principals) as connection:
            rows = connection.execute(statement("list_collections"), {"tenant_id": owner.id}).fetchall()
        return [CollectionInfo(name=row[0], preset=row[1], chunks=row[2], created_at=row[3]) for row in rows]

    def settings(self, owner: TenantRef, collection: str) -> dict[str, Any]:
        """Return what a collection's preset sets."""
        preset = preset_of(self._database.worker, owner, collection)
        return {} if preset is None else preset.values

    def delete(self, owner: TenantRef, collection: str) -> None:
        """Take the preset of a collection away; documents in it are the business of whoever deletes them."""
        values = {"tenant_id": owner.id, "collection": collection}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            connection.execute(statement("delete_preset"), values)


class Documents(Protocol):
    """What removes the documents of a collection."""

    def list_sources(self, tenant: TenantRef, collection: str) -> Mapping[str, uuid.UUID]:
        """Return the ids of all documents of a collection by source."""
        ...

    def delete(self, tenant: TenantRef, collection: str, sources: Sequence[str]) -> int:
        """Remove documents by source. Returns how many there were."""
        ...


class TenantCollections:
    """The collections of one tenant."""

    def __init__(
        self, collections: Collections, documents: Documents, owner: TenantRef, principals: Sequence[str]
    ) -> None:
        self._collections = collections
        self._documents = documents
        self._owner = owner
        self._principals = principals

    def create(self, name: str, *, preset: str | Path) -> CollectionInfo:
        """Make a collection go by a preset: a shipped one by its name, or one of your own by the path of its file.

        Documents that it has already are chunked by it when they are ingested again. Raises RequestError on a malformed
        name and where it goes by another preset, ConfigError on the preset, DatabaseError.
        """
        self._collections.create(self._owner, well_formed("collection", name), preset)
        return next(info for info in self.infos() if info.name == name)

    def infos(self) -> list[CollectionInfo]:
        """Return those that have a preset, or documents that this reader may read, by name. Raises DatabaseError."""
        return self._collections.infos(self._owner, self._principals)

    def settings(self, name: str) -> dict[str, Any]:
        """Return the settings of a collection's preset, as they are stored; none where it goes by the plain ones.

        Raises RequestError on a malformed name, DatabaseError.
        """
        return self._collections.settings(self._owner, well_formed("collection", name))

    def delete(self, name: str) -> int:
        """Remove a collection, its documents and its preset. Returns how many documents there were.

        Raises RequestError on a malformed name, DatabaseError.
        """
        collection = well_formed("collection", name)
        removed = self._documents.delete(
            self._owner, collection, list(self._documents.list_sources(self._owner, collection))
        )
        self._collections.delete(self._owner, collection)
        return removed


def preset_of(role: Role, owner: TenantRef, collection: str) -> Preset | None:
    """Return the preset that a collection goes by, as it is stored; None where it goes by the plain settings."""
    values = {"tenant_id": owner.id, "collection": collection}
    with role.transaction(owner.id, [EVERYONE]) as connection:
        row = connection.execute(statement("preset_of_collection"), values).fetchone()
    return None if row is None else Preset(name=row[0], content=row[1])


def settings_of_presets(role: Role, owner: TenantRef, collection: str | None) -> list[dict[str, Any]]:
    """Return what the preset of a tenant's collection sets, or each preset of all of them."""
    values = {"tenant_id": owner.id, "collection": collection}
    with role.transaction(owner.id, [EVERYONE]) as connection:
        rows = connection.execute(statement("presets_of_tenant"), values).fetchall()
    return [Preset(name=name, content=content).values for name, content in rows]


class PerCollection(Generic[_Part]):
    """A part of an engine in as many shapes as there are presets; the least recently used are dropped. Thread-safe."""

    def __init__(self, plain: _Part, settings: Settings, under: Callable[[Settings, str], _Part]) -> None:
        """`under` makes the part for the settings under a preset, and the preset's version."""
        self._plain = plain
        self._settings = settings
        self._under = under
        self._lock = threading.Lock()
        self._kept: LRUCache[str, _Part] = LRUCache(_KEPT)

    def of(self, role: Role, owner: TenantRef, collection: str | None) -> _Part:
        """Return the part for a collection: it is looked up each time, so that it is never one of before.

        Raises ConfigError where the stored settings do not fit those of this process, DatabaseError.
        """
        preset = None if collection is None else preset_of(role, owner, collection)
        if preset is None:
            return self._plain
        with self._lock:
            if preset.version not in self._kept:
                self._kept[preset.version] = self._under(preset.over(self._settings), preset.version)
            return self._kept[preset.version]
