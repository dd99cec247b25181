"""Notes, etags and metadata of stored documents."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from kosmos_rag.core.types import EventType, Note
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.filter_terms import replace_filter_terms
from kosmos_rag.storage.lexical_statistics import Acl, LexicalCounts, RemovedCounts, lock_collection, update_statistics
from kosmos_rag.storage.permissions import find_other_acls, write_acls
from kosmos_rag.storage.sql import statement


def parse_notes(stored: Iterable[Mapping[str, str]]) -> tuple[Note, ...]:
    """Return the notes of a document from the column `notes`."""
    return tuple(Note(code=note["code"], message=note["message"]) for note in stored)


_UPDATED, _SOURCE_UPDATED = "updated", "kosmos:source_updated"
"""Keys of the metadata: when a document changed, and what its source said of that where somebody has changed it.

Statements leave the second one out of what clients get."""


class StoredDocuments:
    """Etags and metadata of a tenant's stored documents, within a transaction of the tenant."""

    def __init__(self, connection: psycopg.Connection, tenant_id: uuid.UUID) -> None:
        self._connection = connection
        self._tenant_id = tenant_id

    def read_etags(self, document_ids: Collection[uuid.UUID]) -> dict[str, str | None]:
        """Return the stored etags of documents by source; None where the source gave none."""
        values = {"tenant_id": self._tenant_id, "document_ids": list(document_ids)}
        return dict(self._connection.execute(statement("source_etags"), values).fetchall())

    def read_file_ids(self, document_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, uuid.UUID | None]:
        """Return the id of its file for each stored document; None where it is no part."""
        values = {"tenant_id": self._tenant_id, "document_ids": list(document_ids)}
        return dict(self._connection.execute(statement("file_ids_of_documents"), values).fetchall())

    def find_other_acls(self, acls: Mapping[uuid.UUID, Acl]) -> list[uuid.UUID]:
        """Return the documents whose acl is not this one; nothing is locked."""
        return find_other_acls(self._connection, self._tenant_id, acls)

    def write_acls(
        self, acls: Mapping[uuid.UUID, Acl], *, collection: str, read_at: datetime | None, events: EventBuffer
    ) -> int:
        """Give documents the readers that their source has, and return how many have other ones now.

        Args:
            acls: Acl by document, also of documents that are not stored.
            read_at: Time of the server from which the acls were read: documents whose text was published since get no
                new reader. None: no document gets one.
            events: Gets an event of each document with another acl.
        """
        return write_acls(self._connection, self._tenant_id, collection, acls, read_at=read_at, events=events)

    def update_etags(self, etags: Mapping[uuid.UUID, str], *, collection: str) -> None:
        """Set the source etags of documents with unchanged content.

        Documents that are not stored are left out.

        Args:
            etags: New etag by document id.
        """
        scope = {"tenant_id": self._tenant_id, "collection": collection}
        # Every writer of several documents takes this lock: two writers would lock the rows in different orders.
        lock_collection(self._connection, scope)
        values = {"document_ids": list(etags), "source_etags": list(etags.values())}
        self._connection.execute(statement("update_source_etags"), {**scope, **values})

    def update_metadata(
        self, document_ids: Collection[uuid.UUID], changes: Mapping[str, Any], *, collection: str, events: EventBuffer
    ) -> int:
        """Change metadata of documents, and return how many had other metadata.

        Args:
            changes: New values by key; None removes the key. The time of the source is no client's to change.
            events: Gets an event of each document with other metadata.
        """
        changes = {key: value for key, value in changes.items() if key != _SOURCE_UPDATED}
        connection, scope = self._connection, {"tenant_id": self._tenant_id, "collection": collection}
        statistics = lock_collection(connection, scope)
        if statistics is None:
            return 0
        values = {
            "document_ids": list(document_ids),
            "changes": Jsonb({key: value for key, value in changes.items() if value is not None}),
            "removed": [key for key, value in changes.items() if value is None],
            "has_time": _UPDATED in changes,
        }
        changed = connection.execute(statement("update_metadata"), {**scope, **values}).fetchall()
        if changed:
            changed_ids = [document_id for document_id, _ in changed]
            replace_filter_terms(connection, self._tenant_id, changed_ids)
            # No count changes, and a new state: cached results of all readers of the documents are out of date.
            added = {tuple(acl): LexicalCounts() for _, acl in changed}
            versions = connection.execute(
                statement("versions_of_documents"), {**scope, "document_ids": changed_ids}
            ).fetchall()
            nothing = RemovedCounts(version_ids=[], counts={})
            version_ids = [version_id for version_id, *_ in versions]
            update_statistics(connection, scope, statistics, added, nothing, changed=version_ids)
            entries = [{"document_id": document_id} for document_id in changed_ids]
            events.add(collection, EventType.METADATA_CHANGED, entries)
        return len(changed)
