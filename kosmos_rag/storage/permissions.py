"""Change who may read documents.

The acl changes in every table that has one, and in the statistics by acl.

Nothing is parsed or embedded: chunks keep their ids, sequence numbers, vectors and lexemes.
"""

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, LiteralString, Self

import psycopg

from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import EVERYONE, EventType
from kosmos_rag.storage import lexical_statistics
from kosmos_rag.storage.binary import Array, array, array_literal, batches
from kosmos_rag.storage.events import EventBuffer
from kosmos_rag.storage.filter_terms import replace_filter_terms
from kosmos_rag.storage.lexical_statistics import Acl, CollectionStatistics, Move
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, ensure_tenant, read_server_time

VECTOR_ROWS = 512
"""Vectors of one statement: to insert them into an hnsw index again takes milliseconds each."""

_EARLIEST = datetime.min.replace(tzinfo=UTC)

NOBODY: Acl = ()
"""No principal is in it: only the worker role, which reads all rows of a tenant, sees such a document."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPermissions:
    """The stored permissions of a collection before a pass."""

    feeds: Mapping[uuid.UUID, tuple[str, Acl]]
    """Feed and acl by document, also of documents that are not ingested yet."""
    documents: Mapping[uuid.UUID, tuple[Acl, int]]
    """Acl and number of chunks of the ingested documents."""
    parts: Mapping[uuid.UUID, uuid.UUID]
    """Id of its file for each of them that is a part of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _AclChange:
    """A document whose acl changes."""

    id: uuid.UUID
    version_id: uuid.UUID
    move: Move


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedPass:
    """One pass of a permission feed over a collection."""

    tenant_id: uuid.UUID
    collection: str
    feed: str
    """Name of the feed."""
    generation: int
    started_at: datetime
    """Time of the server, as those of publications are."""

    @classmethod
    def start(cls, connection: psycopg.Connection, owner: TenantRef, collection: str, feed: str) -> Self:
        """Start a pass of a feed.

        An earlier one that is still running changes nothing any more.

        Args:
            connection: connection of the worker role, with the tenant set.
            collection: collection of the documents; it is created where missing.
        """
        now = read_server_time(connection)
        ensure_tenant(connection, owner, collection, None, now=now)
        values = {"tenant_id": owner.id, "collection": collection, "feed": feed, "now": now}
        row = connection.execute(statement("start_permission_feed"), values).fetchone()
        assert row is not None, "an upsert returns its row"
        return cls(tenant_id=owner.id, collection=collection, feed=feed, generation=row[0], started_at=now)

    def finish(self, connection: psycopg.Connection) -> None:
        """Record when the pass ended."""
        connection.execute(statement("finish_permission_feed"), {**self._scope, "now": read_server_time(connection)})

    def load_permissions(self, connection: psycopg.Connection) -> StoredPermissions:
        """Read the permissions and the documents of the collection."""
        return self._load(connection, statement("acls_of_collection"))

    def lock_parts(self, connection: psycopg.Connection) -> StoredPermissions:
        """Read the permissions, and the documents that are parts of a file.

        Nobody publishes into the collection until the caller's transaction ends. Raises IngestionError with the code
        `superseded` if a later pass of the feed has started.
        """
        lexical_statistics.lock_collection(connection, self._scope)
        self._require_latest(connection)
        return self._load(connection, statement("acls_of_parts"))

    def delete_unnamed(self, connection: psycopg.Connection, document_ids: Collection[uuid.UUID]) -> None:
        """Delete the permissions of documents that neither the feed nor the collection has.

        Call it after `lock_parts`.
        """
        if document_ids:
            values = {**self._scope, "document_ids": list(document_ids)}
            connection.execute(statement("delete_unnamed_permissions"), values)

    def _load(self, connection: psycopg.Connection, documents: LiteralString) -> StoredPermissions:
        cursor = connection.cursor(binary=True)
        feeds = cursor.execute(statement("permissions_of_collection"), self._scope).fetchall()
        rows = cursor.execute(documents, self._scope).fetchall()
        return StoredPermissions(
            feeds={key: (feed, tuple(acl)) for key, feed, acl in feeds},
            documents={key: (tuple(acl), chunks) for key, acl, chunks, _ in rows},
            parts={key: file for key, _, _, file in rows if file is not None},
        )

    def update_permissions(
        self,
        connection: psycopg.Connection,
        acls: Mapping[uuid.UUID, Acl],
        *,
        entries: Mapping[uuid.UUID, Acl],
        updated: Mapping[uuid.UUID, str],
        events: EventBuffer,
    ) -> tuple[int, int]:
        """Write the permissions of a batch in the caller's transaction.

        Returns how many documents have another acl now, and how many lack new readers until the next pass.

        Readers see the previous permissions of the whole batch until the caller's transaction commits. A document whose
        text was published after the pass had begun gets no new readers: the feed may have been read before they lost
        the permission, and the text is newer.

        Args:
            connection: connection of the worker role, with the tenant set.
            acls: acl by document, also of documents that are not ingested yet.
            entries: what the feed says of documents; of other documents of the batch it says nothing.
            updated: when the text of documents changed last at their source: a stored text of another time gets no new
                readers, for they might see what was deleted.
            events: gets an event of each document with another acl.

        Raises:
            IngestionError: code `superseded`; a later pass of the feed has started.
        """
        scope = self._scope
        statistics = lexical_statistics.lock_collection(connection, scope)
        # Without them the tenant was erased meanwhile, and the feed with it.
        self._require_latest(connection)
        assert statistics is not None, "a feed has a collection"
        connection.execute(statement("upsert_permissions"), {**scope, **_columns(connection, entries)})
        return _change_acls(connection, scope, statistics, acls, events, narrow_from=self.started_at, updated=updated)

    @property
    def _scope(self) -> dict[str, Any]:
        return {
            "tenant_id": self.tenant_id,
            "collection": self.collection,
            "feed": self.feed,
            "generation": self.generation,
        }

    def _require_latest(self, connection: psycopg.Connection) -> None:
        row = connection.execute(statement("permission_feed_generation"), self._scope).fetchone()
        if row != (self.generation,):
            raise IngestionError(
                "superseded",
                f"the permission feed {self.feed} of the collection {self.collection} was started again, or deleted, "
                "while this pass was running; the later pass decides",
            )


def write_acls(
    connection: psycopg.Connection,
    tenant_id: uuid.UUID,
    collection: str,
    acls: Mapping[uuid.UUID, Acl],
    *,
    read_at: datetime | None,
    events: EventBuffer,
) -> int:
    """Give stored documents the readers that their source has, in the caller's transaction.

    A document that a permission feed names, itself or by its file, keeps its acl. The next ingestion publishes the
    changed ones again: their source may have had the same readers before. Returns how many documents have another acl.

    Args:
        connection: Connection of the worker role, with the tenant set; it has locked all jobs that it needs.
        acls: Acl by document, also of documents that are not stored.
        read_at: Time of the server from which the acls were read: documents whose text was published since get no new
            reader. None: no document gets one.
        events: Gets an event of each document with another acl.
    """
    scope: dict[str, Any] = {"tenant_id": tenant_id, "collection": collection}
    statistics = lexical_statistics.lock_collection(connection, scope) if acls else None
    if statistics is None:
        return 0
    values = {**scope, "document_ids": list(acls)}
    files: dict[uuid.UUID, uuid.UUID | None] = dict(
        connection.execute(statement("file_ids_of_documents"), values).fetchall()
    )
    keys = {**scope, "document_ids": [*acls, *filter(None, files.values())]}
    feeds = {row[0] for row in connection.execute(statement("permissions_of_documents"), keys).fetchall()}
    own_acls = {key: acl for key, acl in acls.items() if feeds.isdisjoint((key, files.get(key)))}
    changed, _ = _change_acls(
        connection, scope, statistics, own_acls, events, narrow_from=read_at or _EARLIEST, forgotten=True
    )
    return changed


def find_other_acls(
    connection: psycopg.Connection, tenant_id: uuid.UUID, acls: Mapping[uuid.UUID, Acl]
) -> list[uuid.UUID]:
    """Return the stored documents whose acl is not this one; nothing is locked."""
    values = {"tenant_id": tenant_id, **_columns(connection, acls)}
    rows = connection.execute(statement("documents_with_other_acl"), values).fetchall() if acls else []
    ids = list(acls)
    return [ids[number - 1] for number, *_ in rows]


def _change_acls(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    statistics: CollectionStatistics,
    acls: Mapping[uuid.UUID, Acl],
    events: EventBuffer,
    *,
    narrow_from: datetime | None,
    updated: Mapping[uuid.UUID, str] = MappingProxyType({}),
    forgotten: bool = False,
) -> tuple[int, int]:
    """Change acls, and return how many changed, and how many documents lack new readers.

    Those whose text is another one than at their source are not counted.

    Args:
        updated: when texts changed last at their source.
        forgotten: whether the next ingestion publishes the documents again.
        narrow_from: documents whose text was published since get no new reader; None for no such documents.
    """
    values = {**scope, **_columns(connection, acls)}
    rows = connection.execute(statement("documents_with_other_acl"), values).fetchall()
    batch = list(acls.items())
    changes, withheld = [], 0
    for number, version_id, stored, published_at, stored_time in rows:
        (key, acl), before = batch[number - 1], tuple(stored)
        is_former = key in updated and updated[key] != stored_time
        is_older = narrow_from is None or published_at < narrow_from
        after = acl if is_older and not is_former else _narrow(before, acl)
        withheld += after != acl and not is_former
        if after != before:
            changes.append(_AclChange(id=key, version_id=version_id, move=Move(before=before, after=after)))
    if changes:
        _move(connection, scope, statistics, changes)
        if forgotten:
            ids = {
                "version_ids": array(connection, "uuid", [change.version_id for change in changes]),
                "document_ids": array(connection, "uuid", [change.id for change in changes]),
            }
            connection.execute(statement("forget_versions"), {**scope, **ids})
            connection.execute(statement("forget_source_etags"), {**scope, **ids})
        events.add(
            scope["collection"], EventType.PERMISSIONS_CHANGED, [{"document_id": change.id} for change in changes]
        )
    return len(changes), withheld


def _move(
    connection: psycopg.Connection,
    scope: dict[str, Any],
    statistics: CollectionStatistics,
    changes: Sequence[_AclChange],
) -> None:
    tenant_id = scope["tenant_id"]
    moves = {change.version_id: change.move for change in changes}
    counts = lexical_statistics.count_moves(connection, tenant_id, moves)
    acls = array(connection, "text", [array_literal(change.move.after) for change in changes])
    version_ids = array(connection, "uuid", list(moves))
    document_ids = array(connection, "uuid", [change.id for change in changes])
    connection.execute(statement("update_document_acls"), {**scope, "document_ids": document_ids, "acls": acls})
    replace_filter_terms(connection, tenant_id, [change.id for change in changes])
    connection.execute(statement("update_version_acls"), {**scope, "version_ids": version_ids, "acls": acls})
    cursor = connection.cursor(binary=True)
    chunks = cursor.execute(
        statement("update_chunk_acls"), {**scope, "version_ids": version_ids, "acls": acls}
    ).fetchall()
    columns = {
        "chunk_ids": [row[0] for row in chunks],
        "sequences": [row[1] for row in chunks],
        "acls": [row[2] for row in chunks],
    }
    for part in batches(columns, rows=VECTOR_ROWS):
        values = {
            **scope,
            "chunk_ids": array(connection, "uuid", part["chunk_ids"]),
            "sequences": array(connection, "int4", part["sequences"]),
            "acls": array(connection, "text", part["acls"]),
        }
        connection.execute(statement("update_unsegmented_acls"), values)
        connection.execute(statement("update_embedding_acls"), values)
    lexical_statistics.move_counts(connection, scope, statistics, counts, moves)


def _narrow(before: Acl, after: Acl) -> Acl:
    """Return the principals of the new acl that may read now."""
    if EVERYONE in after:
        return before
    return after if EVERYONE in before else tuple(principal for principal in after if principal in before)


def _columns(connection: psycopg.Connection, acls: Mapping[uuid.UUID, Acl]) -> dict[str, Array]:
    literals = {acl: array_literal(acl) for acl in set(acls.values())}
    return {
        "document_ids": array(connection, "uuid", list(acls)),
        "acls": array(connection, "text", [literals[acl] for acl in acls.values()]),
    }
