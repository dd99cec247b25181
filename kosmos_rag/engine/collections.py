"""Collections, their presets, and the pipelines of each preset."""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from cachetools import LRUCache

from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset, load
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, CollectionInfo
from kosmos_rag.retrieval.pipeline import SearchPipeline
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.storage.pool import ConnectionPool, Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant, validate_name

_PRESETS = 64
"""Presets whose pipelines are cached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectionPipelines:
    """The pipelines of one configuration: of the process, or of a preset."""

    settings: Settings
    search: SearchPipeline
    answerer: Answerer

    @property
    def settings_hash(self) -> str:
        """Hash of the settings: equal hashes answer alike."""
        return self.settings.settings_hash


class Collections:
    """The collections of the tenants of one database. Thread-safe."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings

    def create(self, owner: TenantRef, collection: str, preset: str | Path) -> None:
        """Give a collection a preset; nothing changes if it has the same one.

        Args:
            owner: Tenant of the collection.
            collection: Its name; it need not exist.
            preset: Name of a shipped preset, or path of a YAML file.

        Raises ConfigError on the preset, RequestError if the collection has another one.
        """
        requested = load(preset, self._settings, validate=build_signal_rules)
        now = datetime.now(UTC)
        values = {"tenant_id": owner.id, "collection": collection, "name": requested.name, "content": requested.content}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            create_tenant(connection, owner, now=now)
            connection.execute(statement("create_preset"), {**values, "now": now})
            name, content = connection.execute(statement("preset_of_collection"), values).fetchone() or ("", "")
        if content != requested.content:
            raise RequestError(
                f"the collection {collection} goes by the preset {name} with other settings; delete it first, or "
                "create one of another name"
            )

    def infos(self, owner: TenantRef, principals: Sequence[str]) -> list[CollectionInfo]:
        """List collections with a preset or with documents that the reader may see, by name."""
        with self._database.app.transaction(owner.id, principals) as connection:
            rows = connection.execute(statement("list_collections"), {"tenant_id": owner.id}).fetchall()
        return [CollectionInfo(name=row[0], preset=row[1], chunks=row[2], created_at=row[3]) for row in rows]

    def settings(self, owner: TenantRef, collection: str) -> dict[str, Any]:
        """Return the settings of the preset of a collection; empty without one."""
        preset = preset_of(self._database.worker, owner, collection)
        return {} if preset is None else preset.values

    def delete(self, owner: TenantRef, collection: str) -> None:
        """Remove the preset of a collection; its documents stay."""
        values = {"tenant_id": owner.id, "collection": collection}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            connection.execute(statement("delete_preset"), values)


class Documents(Protocol):
    """Lists and removes the documents of a collection."""

    def list_sources(self, tenant: TenantRef, collection: str) -> Mapping[str, uuid.UUID]:
        """Return the ids of all documents of a collection by source."""
        ...

    def delete(self, tenant: TenantRef, collection: str, sources: Sequence[str]) -> int:
        """Remove documents by source and return their number."""
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
        """Give a collection a preset: a shipped one by name, or a YAML file by path.

        Existing documents are chunked by it when they are ingested again. Raises RequestError on a malformed name and
        if the collection has another preset, ConfigError on the preset, DatabaseError.
        """
        self._collections.create(self._owner, validate_name("collection", name), preset)
        return next(info for info in self.infos() if info.name == name)

    def infos(self) -> list[CollectionInfo]:
        """List collections with a preset or with documents that the reader may see. Raises DatabaseError."""
        return self._collections.infos(self._owner, self._principals)

    def settings(self, name: str) -> dict[str, Any]:
        """Return the stored settings of the preset of a collection; empty without one.

        Raises RequestError on a malformed name, DatabaseError.
        """
        return self._collections.settings(self._owner, validate_name("collection", name))

    def delete(self, name: str) -> int:
        """Remove a collection with documents and preset, and return the number of documents.

        Raises RequestError on a malformed name, DatabaseError.
        """
        collection = validate_name("collection", name)
        removed = self._documents.delete(
            self._owner, collection, list(self._documents.list_sources(self._owner, collection))
        )
        self._collections.delete(self._owner, collection)
        return removed


def preset_of(role: ConnectionPool, owner: TenantRef, collection: str) -> Preset | None:
    """Read the stored preset of a collection; None without one."""
    values = {"tenant_id": owner.id, "collection": collection}
    with role.transaction(owner.id, [EVERYONE]) as connection:
        row = connection.execute(statement("preset_of_collection"), values).fetchone()
    return None if row is None else Preset(name=row[0], content=row[1])


class PipelineCache:
    """LRU cache of the pipelines of each preset. Thread-safe."""

    def __init__(self, default: CollectionPipelines, build: Callable[[Settings], CollectionPipelines]) -> None:
        """Create the cache.

        Args:
            default: Pipelines of the settings of the process.
            build: Builds the pipelines of other settings.
        """
        self._default = default
        self._build = build
        self._lock = threading.Lock()
        self._entries: LRUCache[str, CollectionPipelines] = LRUCache(_PRESETS)

    def get(self, role: ConnectionPool, tenant: TenantRef, collection: str | None) -> CollectionPipelines:
        """Read the preset of a collection and return its pipelines.

        Args:
            role: Whose connections read it.
            tenant: Owner of the collection.
            collection: None for the settings of the process.

        Raises ConfigError if the stored preset does not fit the settings of the process, DatabaseError.
        """
        return self.for_preset(None if collection is None else preset_of(role, tenant, collection))

    def for_preset(self, preset: Preset | None) -> CollectionPipelines:
        """Return the pipelines of a preset; those of the process without one. Raises ConfigError."""
        if preset is None:
            return self._default
        with self._lock:
            if preset.version not in self._entries:
                self._entries[preset.version] = self._build(preset.over(self._default.settings))
            return self._entries[preset.version]
