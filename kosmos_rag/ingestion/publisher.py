"""Embed a batch of chunked documents and publish it in one transaction."""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Protocol

import psycopg

from kosmos_rag.core.errors import (
    DISK_FULL,
    EmbeddingSpaceChanged,
    IngestionError,
    InputRefused,
    SourceError,
    StatementFailed,
    is_disk_full,
)
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.telemetry.metrics import (
    INGESTION_EMBEDDED_CHUNKS,
    INGESTION_EMBEDDED_DOCUMENTS,
    INGESTION_STAGE_SECONDS,
)
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, Outcome, Space
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.document import ChunkedDocument, content_hash, version_id
from kosmos_rag.ingestion.embedding import TextVectors
from kosmos_rag.ingestion.state import load_preset
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.publish import PreparedDocument, publish, remove_documents
from kosmos_rag.storage.tenants import SpaceStore, TenantRef, ensure_tenant, read_server_time

INLINE_TEXTS = 16
"""Texts that are embedded within the publishing transaction, before it locks anything.

So few take the model less time than a second transaction takes; for more, no connection is held while it works.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """Outcome of a document in a transaction, with its chunk count."""

    outcome: Outcome
    """NEW, CHANGED or UNCHANGED."""
    chunks: int = 0


class Lease(Protocol):
    """Fencing for concurrent writers.

    `verify` comes first in the transaction that writes documents, `complete` after all but events. The documents and
    the completion of the lease are committed together or not at all. Where the queue is on another server than the
    tenant, the completion is committed right after the documents: a crash in between repeats the job, which finds its
    documents unchanged.
    """

    def may_start(self, document: PendingDocument) -> bool:
        """Return whether to start work on a document, without a query.

        False: it has no outcome.
        """
        ...

    def may_continue(self, document: PendingDocument) -> bool:
        """Return whether to continue with a document that takes long, without a query.

        False: it has no outcome.
        """
        ...

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:
        """Return the documents with a valid lease, and lock these leases.

        Until the transaction ends.
        """
        ...

    def complete(
        self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[uuid.UUID, Completion]
    ) -> None:
        """Record that verified documents are written or unchanged.

        Args:
            queue: transaction of the queue; that of `verify`.
            data: transaction of the tenant's rows.
            completions: outcomes by document.
        """
        ...


class _NoLease:
    def may_start(self, document: PendingDocument) -> bool:  # noqa: ARG002
        return True

    def may_continue(self, document: PendingDocument) -> bool:  # noqa: ARG002
        return True

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:  # noqa: ARG002
        return document_ids

    def complete(
        self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[uuid.UUID, Completion]
    ) -> None:
        pass


NO_LEASE: Lease = _NoLease()
"""For a writer that competes with no other: every document is its own."""

FindReplaced = Callable[[psycopg.Connection, Collection[uuid.UUID]], Sequence[uuid.UUID]]
"""Returns the documents that these ones replace, in the transaction that has locked their collection."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishResult:
    """The result of one document of a batch."""

    document: ChunkedDocument
    outcome: Outcome | None
    """NEW or CHANGED; None where it was not written."""
    error: IngestionError | None
    """Code `storage`: the database refused it; `text_refused`: the model did; `lease_lost`: another writer has it.

    `duplicate`: a part of a file has the name of another document.
    """
    reused: int
    """Chunks whose text had been embedded before, in each space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Batch:
    tenant: TenantRef
    collection: str
    documents: Sequence[ChunkedDocument]
    vectors: TextVectors
    preset_version: str | None
    """Version of the preset that the documents were processed under."""
    first_space: Space | None
    """The space to create with the first document of a tenant; None where the tenant has one."""
    find_replaced: FindReplaced

    def spans(self) -> Iterator[tuple[ChunkedDocument, int, int]]:
        """Yield each document with its range of the batch's texts."""
        ends = accumulate(len(document.chunks) for document in self.documents)
        for document, end in zip(self.documents, ends, strict=True):
            yield document, end - len(document.chunks), end


class Publisher:
    """Embeds and publishes batches of documents of any collection. Thread-safe."""

    def __init__(self, database: Database, embedders: EmbedderRegistry, telemetry: Telemetry | None = None) -> None:
        self._database = database
        self._embedders = embedders
        self._telemetry = telemetry or Telemetry()

    def publish(
        self,
        tenant: TenantRef,
        collection: str,
        documents: Sequence[ChunkedDocument],
        *,
        preset_version: str | None = None,
        spaces: Sequence[Space] | None = None,
        lease: Lease = NO_LEASE,
        find_replaced: FindReplaced = lambda _connection, _document_ids: (),
    ) -> Iterator[PublishResult]:
        """Embed and publish a batch; yields the result of each document.

        The first document of a tenant creates tenant, collection and embedding space.

        Args:
            tenant: owner of the collection.
            documents: the batch; ids are distinct.
            preset_version: version of the preset of the collection that they were processed under.
            spaces: embedding spaces of the tenant, the live one first; None to read them.
            lease: verified first and completed last in the publishing transaction.
            find_replaced: finds other documents, which the publishing transaction removes.

        Raises:
            EmbeddingSpaceMismatch: the model of the live space is not configured here.
            ModelError: the model cannot embed.
            DatabaseUnavailable: nothing more can be written.
            IngestionError: code `preset_changed`; nothing is written.
        """
        if not documents:
            return
        batch = self._prepare(tenant, collection, documents, preset_version, spaces, find_replaced)
        publish_again = partial(
            self.publish, tenant, collection, preset_version=preset_version, lease=lease, find_replaced=find_replaced
        )
        try:
            results = self._write(batch, lease)
        except EmbeddingSpaceChanged:
            # Texts with a vector in both spaces are found by their hash, the others are embedded by the other model.
            yield from publish_again(documents)
        except (StatementFailed, InputRefused, SourceError):
            # One document may have failed the transaction or a request of all: find it by writing them one by one.
            for document, start, end in batch.spans():
                try:
                    result = self._write_alone(batch, document, start, end, lease)
                except EmbeddingSpaceChanged:  # the statement failed because the tenant was erased
                    yield from publish_again([document])
                else:
                    yield result
        else:
            yield from results

    def _prepare(
        self,
        tenant: TenantRef,
        collection: str,
        documents: Sequence[ChunkedDocument],
        preset_version: str | None,
        spaces: Sequence[Space] | None,
        find_replaced: FindReplaced,
    ) -> _Batch:
        if spaces is None:
            with self._database.worker.transaction(tenant.id, [EVERYONE], on_node=True) as connection:
                spaces = SpaceStore(connection, tenant.id).list_writable()
        first_space = None if spaces else self._embedders.default_space(tenant.id)
        writable = self._embedders.get_writable([first_space] if first_space else spaces, tenant.name)
        texts = [text for document in documents for text in document.embedded]
        return _Batch(
            tenant=tenant,
            collection=collection,
            documents=documents,
            vectors=TextVectors(texts, writable),
            preset_version=preset_version,
            first_space=first_space,
            find_replaced=find_replaced,
        )

    def _write(self, batch: _Batch, lease: Lease) -> list[PublishResult]:
        """Look the vectors up, embed what is missing, publish.

        Few texts take one transaction, many take two.
        """
        vectors, tenant = batch.vectors, batch.tenant
        with ExitStack() as stack:
            data, queue = stack.enter_context(self._transaction(tenant))
            vectors.load_stored(data, tenant.id)
            if vectors.missing > INLINE_TEXTS:
                stack.close()
                self._embed(batch)
                data, queue = stack.enter_context(self._transaction(tenant))
            else:
                self._embed(batch)
            prepared = [
                (_prepare(document, vectors.select(start, end)), vectors.count_reused(start, end))
                for document, start, end in batch.spans()
            ]
            with self._telemetry.time_stage(INGESTION_STAGE_SECONDS, "write"):
                completions = self._publish(data, queue, batch, [document for document, _ in prepared], lease)
                stack.close()  # commits
        return [
            _result(document, completions.get(document.id), reused)
            for document, (_, reused) in zip(batch.documents, prepared, strict=True)
        ]

    def _embed(self, batch: _Batch) -> None:
        with self._telemetry.time_stage(INGESTION_STAGE_SECONDS, "embed"):
            batch.vectors.embed_missing(partial(self._telemetry.record, INGESTION_EMBEDDED_CHUNKS))
        self._telemetry.record(INGESTION_EMBEDDED_DOCUMENTS, len(batch.documents))

    @contextmanager
    def _transaction(self, tenant: TenantRef) -> Iterator[tuple[psycopg.Connection, psycopg.Connection]]:
        """Open a transaction for the data and one for the queue.

        They are the same one on a single server.
        """
        worker = self._database.worker
        with ExitStack() as stack:
            # What is entered last commits first: the data before the queue.
            queue = None if worker.router is None else stack.enter_context(worker.untenanted())
            data = stack.enter_context(worker.transaction(tenant.id, [EVERYONE], on_node=True))
            yield data, queue or data

    def _publish(
        self,
        connection: psycopg.Connection,
        queue: psycopg.Connection,
        batch: _Batch,
        documents: Sequence[PreparedDocument],
        lease: Lease,
    ) -> Mapping[uuid.UUID, Completion]:
        """Publish the documents that are still leased, and complete their leases."""
        leased = lease.verify(queue, [document.id for document in documents])
        leased_documents = [document for document in documents if document.id in leased]
        if not leased_documents:
            return {}
        now = read_server_time(connection)
        ensure_tenant(connection, batch.tenant, batch.collection, batch.first_space, now=now)
        with self._database.worker.record_events(connection, batch.tenant.id) as events:
            replaced = publish(
                connection, batch.tenant.id, leased_documents, collection=batch.collection, now=now, events=events
            )
            _require_unchanged_preset(connection, batch)
            if former := batch.find_replaced(connection, leased):
                remove_documents(connection, batch.tenant.id, former, collection=batch.collection, events=events)
            completions = {
                document.id: Completion(
                    outcome=Outcome.CHANGED if document.id in replaced else Outcome.NEW, chunks=len(document.chunks)
                )
                for document in leased_documents
            }
            lease.complete(queue, connection, completions)
        return completions

    def _write_alone(
        self, batch: _Batch, document: ChunkedDocument, start: int, end: int, lease: Lease
    ) -> PublishResult:
        try:
            batch.vectors.embed_missing(span=(start, end))
        except InputRefused as error:
            refused = IngestionError("text_refused", f"the embedding model refused {document.source.source}: {error}")
            return PublishResult(document=document, outcome=None, error=refused, reused=0)
        reused = batch.vectors.count_reused(start, end)
        prepared = _prepare(document, batch.vectors.select(start, end))
        try:
            with (
                self._telemetry.time_stage(INGESTION_STAGE_SECONDS, "write"),
                self._transaction(batch.tenant) as (data, queue),
            ):
                completions = self._publish(data, queue, batch, [prepared], lease)
        except SourceError as error:
            return PublishResult(document=document, outcome=None, error=error, reused=reused)
        except StatementFailed as error:
            message = f"{prepared.source} was refused by the database: {error}"
            refused = IngestionError(DISK_FULL if is_disk_full(error) else "storage", message)
            return PublishResult(document=document, outcome=None, error=refused, reused=reused)
        return _result(document, completions.get(document.id), reused)


def _require_unchanged_preset(connection: psycopg.Connection, batch: _Batch) -> None:
    """Raise IngestionError if the preset changed since the batch was processed.

    After the lock on the collection.
    """
    preset = load_preset(connection, batch.tenant.id, batch.collection)
    if (None if preset is None else preset.version) != batch.preset_version:
        raise IngestionError(
            "preset_changed", f"the preset of the collection {batch.collection} changed meanwhile; ingest it again"
        )


def _result(document: ChunkedDocument, completion: Completion | None, reused: int) -> PublishResult:
    if completion is not None:
        return PublishResult(document=document, outcome=completion.outcome, error=None, reused=reused)
    message = f"another writer took over {document.source.source}; the result of that writer is kept"
    return PublishResult(document=document, outcome=None, error=IngestionError("lease_lost", message), reused=reused)


def _prepare(document: ChunkedDocument, vectors: Mapping[uuid.UUID, Vectors]) -> PreparedDocument:
    source = document.source
    return PreparedDocument(
        id=document.id,
        file_id=document.file_id,
        version_id=version_id(document),
        source=source.source,
        title=document.title,
        media_type=document.parsed.media_type,
        language=document.language,
        languages=document.languages,
        metadata=dict(source.metadata),
        acl=source.acl,
        readers=source.readers,
        content_hash=content_hash(source),
        fingerprint=document.fingerprint,
        bytes=len(source.data),
        text=document.parsed.text,
        pages=document.parsed.pages,
        chunks=document.chunks,
        embedded=document.embedded,
        analysed=document.analysed,
        vectors=vectors,
        boxes=document.parsed.boxes,
        original=source.data if document.keeps_original else None,
        notes=document.parsed.notes,
        source_etag=document.etag,
    )
