"""Collections, their presets, and the pipelines of each preset."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cachetools import LRUCache
from psycopg.rows import class_row

from kosmos_rag.answering.pipeline import Answerer
from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset, load
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import EVERYONE, CollectionInfo
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.ingestion.state import load_preset, load_sources
from kosmos_rag.retrieval.pipeline import SearchPipeline
from kosmos_rag.retrieval.signals.apply import build_signal_rules
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.lexical_statistics import lock_collection
from kosmos_rag.storage.pool import ConnectionPool
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant

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
        """Assign a preset to a collection without one.

        Nothing changes if it has the same one.

        Raises ConfigError on the preset, RequestError if the collection has another one.

        Args:
            collection: Its name; it need not exist.
            preset: Name of a shipped preset, or path of a YAML file.
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
                f"the collection {collection} has the preset {name} with other settings; change it with "
                f"`collection set-preset {collection}`, or create one of another name"
            )

    def set_preset(self, owner: TenantRef, collection: str, preset: str | Path) -> None:
        """Replace the preset of a collection.

        Its unfinished jobs use the new one. Raises ConfigError on the preset.

        Args:
            collection: Its name; it need not exist.
            preset: Name of a shipped preset, or path of a YAML file.
        """
        requested = load(preset, self._settings, validate=build_signal_rules)
        now = datetime.now(UTC)
        scope = {"tenant_id": owner.id, "collection": collection}
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            create_tenant(connection, owner, now=now)
            row = connection.execute(statement("lock_preset"), scope).fetchone()
            values = {**scope, "name": requested.name, "content": requested.content, "now": now}
            connection.execute(statement("set_preset"), values)
            if row is not None:
                before = Preset(name=row[0], content=row[1]).version
                JobWriter(connection, owner).change_preset(collection, before=before, after=requested.version)

    def infos(self, owner: TenantRef, principals: Sequence[str]) -> list[CollectionInfo]:
        """List collections with a preset or readable documents, by name."""
        with (
            self._database.app.transaction(owner.id, principals) as connection,
            connection.cursor(row_factory=class_row(CollectionInfo)) as cursor,
        ):
            return cursor.execute(statement("list_collections"), {"tenant_id": owner.id}).fetchall()

    def settings(self, owner: TenantRef, collection: str) -> dict[str, Any]:
        """Return the settings of the preset of a collection; empty without one."""
        preset = find_preset(self._database.worker, owner, collection)
        return {} if preset is None else preset.values

    def delete(self, owner: TenantRef, collection: str) -> int:
        """Delete a collection with its documents, jobs and preset.

        Returns the number of documents. The locks are taken in the order of every other transaction: preset, jobs,
        collection, runs.
        """
        scope = {"tenant_id": owner.id, "collection": collection}
        with self._database.worker.transaction_with_events(owner.id, [EVERYONE]) as (connection, events):
            connection.execute(statement("lock_preset"), scope)
            jobs = JobWriter(connection, owner)
            jobs.cancel_collection(collection)
            lock_collection(connection, scope)
            jobs.count_cancelled()
            ids = [document.id for document in load_sources(connection, owner.id, collection).values()]
            removed = remove_documents(connection, owner.id, ids, collection=collection, events=events)
            connection.execute(statement("delete_preset"), scope)
            connection.execute(statement("delete_vector_store"), scope)
            connection.execute(statement("detach_files_of_collection"), scope)
            connection.execute(statement("delete_file_batches"), scope)
            connection.execute(statement("delete_permission_feeds"), scope)
        return removed


@name_wrong_arguments()
class TenantCollections:
    """The collections of one tenant."""

    def __init__(self, collections: Collections, owner: TenantRef, principals: Sequence[str]) -> None:
        self._collections = collections
        self._owner = owner
        self._principals = principals

    def create(self, name: str, *, preset: str | Path) -> CollectionInfo:
        """Assign a preset to a collection.

        The preset is a shipped name, or the path of a YAML file.

        Existing documents are chunked by it when they are ingested again. Raises RequestError on a malformed name and
        if the collection has another preset, ConfigError on the preset, DatabaseError.
        """
        self._collections.create(self._owner, validate_name("collection", name), preset)
        return self._find(name)

    def set_preset(self, name: str, *, preset: str | Path) -> CollectionInfo:
        """Replace the preset of a collection.

        The preset is a shipped name, or the path of a YAML file. The collection is never without a preset meanwhile,
        and its jobs use the new one. It applies to documents when they are ingested again. Raises RequestError on a
        malformed name, ConfigError on the preset, DatabaseError.
        """
        self._collections.set_preset(self._owner, validate_name("collection", name), preset)
        return self._find(name)

    def _find(self, name: str) -> CollectionInfo:
        for info in self.infos():
            if info.name == name:
                return info
        raise RequestError(f"the collection {name} was deleted meanwhile; create it again")

    def infos(self) -> list[CollectionInfo]:
        """List collections with a preset or readable documents.

        Raises DatabaseError.
        """
        return self._collections.infos(self._owner, self._principals)

    def settings(self, name: str) -> dict[str, Any]:
        """Return the stored settings of the preset of a collection.

        The result is empty without one. Raises RequestError on a malformed name, DatabaseError.
        """
        return self._collections.settings(self._owner, validate_name("collection", name))

    def delete(self, name: str) -> int:
        """Delete a collection with its documents, jobs and preset.

        Returns the number of documents.

        Raises RequestError on a malformed name, DatabaseError.
        """
        return self._collections.delete(self._owner, validate_name("collection", name))


def find_preset(role: ConnectionPool, owner: TenantRef, collection: str) -> Preset | None:
    """Return the stored preset of a collection; None without one."""
    with role.transaction(owner.id, [EVERYONE]) as connection:
        return load_preset(connection, owner.id, collection)


class PipelineCache:
    """LRU cache of the pipelines of each preset. Thread-safe."""

    def __init__(self, default: CollectionPipelines, build: Callable[[Settings], CollectionPipelines]) -> None:
        """Create the cache.

        Args:
            default: Pipelines of the settings of the process.
            build: Builds the pipelines of other settings.
        """
        self.default = default
        self._build = build
        self._lock = threading.Lock()
        self._entries: LRUCache[str, CollectionPipelines] = LRUCache(_PRESETS)

    def get(self, role: ConnectionPool, tenant: TenantRef, collection: str | None) -> CollectionPipelines:
        """Read the preset of a collection and return its pipelines.

        Args:
            role: Whose connections read it.
            collection: None for the settings of the process.

        Raises ConfigError if the stored preset does not fit the settings of the process, DatabaseError.
        """
        return self.get_pipelines(None if collection is None else find_preset(role, tenant, collection))

    def get_pipelines(self, preset: Preset | None) -> CollectionPipelines:
        """Return the pipelines of a preset; those of the process without one.

        Raises ConfigError.
        """
        if preset is None:
            return self.default
        with self._lock:
            if preset.version not in self._entries:
                self._entries[preset.version] = self._build(preset.apply(self.default.settings))
            return self._entries[preset.version]
