"""Permission sync: update the acl of documents from a permission feed.

Nothing is parsed or embedded.
"""

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import psycopg

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, PermissionReport
from kosmos_rag.core.types.serialize import Serializable
from kosmos_rag.ingestion.document import document_id
from kosmos_rag.ingestion.permission_feed import MAX_REPORTED_CONTAINERS, read_feed
from kosmos_rag.ingestion.sources.spec import PermissionFeedSpec
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.lexical_statistics import Acl
from kosmos_rag.storage.permissions import (
    NOBODY,
    FeedPass,
    StoredPermissions,
)
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

MAX_EXAMPLES = 5
"""Documents without readers that are named."""

BATCH_CHUNKS = 2048
"""Chunks, or documents without chunks, whose acl changes in one transaction. Other writers of the collection wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UnreadableDocuments(Serializable):
    """Documents of a collection that nobody may read, because no permission feed names readers of them."""

    collection: str
    documents: int
    examples: tuple[str, ...]
    """The first names."""

    def describe(self) -> str:
        """Return a sentence for operators."""
        names = ", ".join(self.examples) + (", …" if self.documents > len(self.examples) else "")
        documents = "1 document" if self.documents == 1 else f"{self.documents:,} documents"
        return f"nobody may read {documents} of the collection {self.collection}, for no feed names readers: {names}"


class PermissionSync:
    """Applies permission feeds to the collections of one database. Thread-safe."""

    def __init__(self, database: Database, settings: IngestionSettings) -> None:
        self._database = database
        self._settings = settings

    def run(
        self,
        tenant: TenantRef,
        collection: str,
        spec: PermissionFeedSpec,
        *,
        before_batch: Callable[[], None] = lambda: None,
    ) -> PermissionReport:
        """Read the feed, then write the changes in batches.

        A pass may be repeated. One that documents were published in is repeated at once, as far as the feed names new
        readers of them: what it had read was older than their text.

        Documents that lose a principal come first. A document that the feed named once and names no more is readable
        by nobody.

        Args:
            tenant: owner of the collection.
            before_batch: called before each transaction that writes; an error that it raises ends the pass.

        Raises:
            SourceError: the feed is malformed or cannot be read; nothing is changed.
            RequestError: another feed names one of the documents; nothing is changed.
            IngestionError: code `superseded`; a later pass of the feed has started.
            ConfigError, DatabaseError: the feed, or the database, cannot be reached.
        """
        report, withheld = self._run_pass(tenant, collection, spec, before_batch)
        if not withheld:
            return report
        again, _ = self._run_pass(tenant, collection, spec, before_batch)
        return replace(again, changed=report.changed + again.changed)

    def _run_pass(
        self, tenant: TenantRef, collection: str, spec: PermissionFeedSpec, before_batch: Callable[[], None]
    ) -> tuple[PermissionReport, int]:
        """Make one pass; also return how many documents lack new readers until the next one."""
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            current = FeedPass.start(connection, tenant, collection, spec.name)
        permissions = read_feed(spec, self._settings)
        acls = {
            document_id(tenant.id, collection, source): (source, acl) for source, acl in permissions.resolve().items()
        }
        updated = {document_id(tenant.id, collection, source): time for source, time in permissions.updated.items()}
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            stored = current.load_permissions(connection)
        plan = _plan(current, stored, acls, stored.parts)
        results = []
        for batch in plan.batches():
            before_batch()
            with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
                entries = {key: plan.entries[key] for key in batch if key in plan.entries}
                times = _select_times(batch, stored.parts, updated)
                results.append(
                    current.update_permissions(connection, batch, entries=entries, updated=times, events=events)
                )
        before_batch()
        results.append(self._finish(tenant, current, plan.unnamed, updated))
        report = PermissionReport(
            documents=len(acls),
            changed=sum(changed for changed, _ in results),
            unnamed=len(plan.unnamed.intersection(stored.documents)),
            unknown_containers=tuple(permissions.unknown_containers()[:MAX_REPORTED_CONTAINERS]),
        )
        return report, sum(withheld for _, withheld in results)

    def _finish(
        self, tenant: TenantRef, current: FeedPass, unnamed: Collection[uuid.UUID], updated: Mapping[uuid.UUID, str]
    ) -> tuple[int, int]:
        """End the pass, and decide about the parts of files. The result is that of `update_permissions`.

        Parts that were published since the pass began have the earlier acl of their file. An entry of a file stays
        while the collection has parts of the file: it decides about the parts that come.
        """
        with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
            stored = current.lock_parts(connection)
            acls = _decide_parts(stored.parts, {key: acl for key, (_, acl) in stored.feeds.items()})
            acls = {key: acl for key, acl in acls.items() if stored.documents[key][0] != acl}
            result = (0, 0)
            if acls:
                times = _select_times(acls, stored.parts, updated)
                result = current.update_permissions(connection, acls, entries={}, updated=times, events=events)
            current.delete_unnamed(connection, set(unnamed).difference(stored.parts.values()))
            current.finish(connection)
        return result


@dataclass(frozen=True, kw_only=True, slots=True)
class _Change:
    """A document whose permissions a pass writes."""

    id: uuid.UUID
    before: Acl
    """Its stored acl; empty if the document is not ingested yet."""
    after: Acl
    size: int
    """Number of its chunks, at least 1."""

    @property
    def order(self) -> tuple[bool, Acl, Acl]:
        """Sort key: changes that remove a principal come first.

        Equal changes are together.
        """
        return set(self.before) <= set(self.after), self.before, self.after


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    """What a pass has to write."""

    changes: list[_Change]
    """In the order of writing."""
    unnamed: frozenset[uuid.UUID]
    """Documents that the feed named once and names no more."""
    entries: Mapping[uuid.UUID, Acl]
    """Acl of each document that the feed names, or named once. Parts of a file have the entry of the file."""

    def batches(self) -> Iterator[dict[uuid.UUID, Acl]]:
        """Yield the changes in batches of about `BATCH_CHUNKS`.

        Equal changes are together where they fit: the lexical statistics change once for a batch, acl and lexeme, and
        the rows of an acl whose documents all change at once are renamed.
        """
        batch: dict[uuid.UUID, Acl] = {}
        size = 0
        for _, equal in groupby(self.changes, key=lambda change: change.order):
            changes = list(equal)
            if batch and size + sum(change.size for change in changes) > BATCH_CHUNKS:
                yield batch
                batch, size = {}, 0
            for change in changes:
                batch[change.id] = change.after
                size += change.size
                if size >= BATCH_CHUNKS:
                    yield batch
                    batch, size = {}, 0
        if batch:
            yield batch


def _select_times(
    keys: Iterable[uuid.UUID], files: Mapping[uuid.UUID, uuid.UUID], updated: Mapping[uuid.UUID, str]
) -> dict[uuid.UUID, str]:
    """Return when documents changed last at their source; a part has the time of its file."""
    return {key: time for key in keys if (time := updated.get(files.get(key, key)))}


def _decide_parts(files: Mapping[uuid.UUID, uuid.UUID], entries: Mapping[uuid.UUID, Acl]) -> dict[uuid.UUID, Acl]:
    """Return the acl of each part whose file has an entry.

    The publication of a part decides in the same way.
    """
    return {part: entries[file] for part, file in files.items() if file in entries}


def _plan(
    current: FeedPass,
    stored: StoredPermissions,
    acls: Mapping[uuid.UUID, tuple[str, Acl]],
    files: Mapping[uuid.UUID, uuid.UUID],
) -> _Plan:
    """Compare the feed with the stored permissions.

    Raises RequestError if a document belongs to another feed.

    Args:
        acls: name and acl of the documents of the feed.
        files: id of the file of each stored part.
    """
    for key, (source, _) in acls.items():
        feed, feed_acl = stored.feeds.get(key, (current.feed, NOBODY))
        if feed != current.feed and feed_acl != NOBODY:
            message = f"the document {show(source)} is in the permission feed {feed} too; a document has one feed: "
            raise RequestError(one_line(f"{message}take it out of {feed} and sync that first. Nothing was changed"))
    unnamed = frozenset(key for key, (feed, _) in stored.feeds.items() if feed == current.feed and key not in acls)
    entries = {key: acl for key, (_, acl) in acls.items()} | dict.fromkeys(unnamed, NOBODY)
    parts = _decide_parts(files, {key: acl for key, (_, acl) in stored.feeds.items()} | entries)
    changes = []
    for key, after in (entries | parts).items():
        before, chunks = stored.documents.get(key, (NOBODY, 0))
        other_acl = key in stored.documents and before != after
        if other_acl or (key in entries and stored.feeds.get(key) != (current.feed, entries[key])):
            changes.append(_Change(id=key, before=before, after=after, size=max(1, chunks)))
    return _Plan(changes=sorted(changes, key=lambda change: change.order), unnamed=unnamed, entries=entries)


def list_unreadable(
    connection: psycopg.Connection, tenant_id: uuid.UUID, collection: str | None = None
) -> list[UnreadableDocuments]:
    """Return the documents that nobody may read, by collection.

    Args:
        connection: connection of the worker role, with the tenant set.
        collection: only this one; None for all.
    """
    values = {"tenant_id": tenant_id, "collection": collection, "examples": MAX_EXAMPLES}
    return [
        UnreadableDocuments(collection=name, documents=documents, examples=tuple(sources))
        for name, documents, sources in connection.execute(statement("unreadable_documents"), values).fetchall()
    ]
