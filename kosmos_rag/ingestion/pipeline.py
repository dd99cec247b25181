"""Ingest documents, for `Tenant.ingest` and for the worker.

Load the state of the collection once, then for each document: skip it where its fingerprint is stored, else load,
parse and chunk it; batches of chunks are embedded and published in one transaction.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from cachetools import LRUCache

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import GONE, DatabaseError, IngestInterrupted, IngestionError, RequestError
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, IngestReport, Outcome, SourceDocument, is_text
from kosmos_rag.ingestion.acl import find_unauthorised
from kosmos_rag.ingestion.discovery import Discovery, PendingDocument, discover, find_unlisted_sources, split_windows
from kosmos_rag.ingestion.document import (
    ChunkedDocument,
    DocumentProcessor,
    check_json,
    check_source_name,
    document_id,
)
from kosmos_rag.ingestion.publisher import NO_LEASE, Completion, Lease, Publisher
from kosmos_rag.ingestion.report import OutcomeRecorder, PublishedDocument, ReportBuilder
from kosmos_rag.ingestion.sources.parts import strip_part
from kosmos_rag.ingestion.state import (
    CollectionState,
    find_part_ids,
    find_replaced_parts,
    find_stale_parts,
    find_unfinished_jobs,
    load_preset,
    load_sources,
    load_state,
    require_preset,
)
from kosmos_rag.models.embedding.registry import EmbedderRegistry
from kosmos_rag.storage.audit.log import AuditContext
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import TenantRef

log = logging.getLogger("kosmos_rag.ingestion")

_EMPTY = "empty"
"""Code of a document without text: no failure of a file that a source lists."""
Charge = Callable[[AuditContext], AbstractContextManager[None]]
"""Charges what a block uses to a reader."""
Progress = Callable[[int, int, str], None]
"""Called after each document with how many are done, how many there are, and its source."""

BATCH_CHUNKS = 1024
"""Chunks that are embedded and published together. The lexical statistics change once for a batch and lexeme."""
FIRST_BATCH_CHUNKS = BATCH_CHUNKS // 8
"""Chunks of the first batch, before it is known how fast this machine embeds."""
BATCH_S = 5.0
"""Seconds that a batch of an `ingest` call takes, about: what an interrupted call loses."""
BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of documents in a batch."""
LARGE_BYTES = 4 * 1024 * 1024
"""Bytes of a document that takes long to parse: what is parsed already is published before."""
WINDOW_DOCUMENTS = 256
"""Documents of an `ingest` call for which the state is loaded together."""
_CACHED_PROCESSORS = 64


class Executor(Protocol):
    """Runs the processing of documents and the publishing of batches.

    In the calling thread, or in others.
    """

    @property
    def batch_chunks(self) -> int:
        """Chunks after which a batch is published."""
        ...

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        """Parse and chunk a document by calling `work`.

        Returns at the end, or earlier where it takes long: another thread continues. The documents have
        different sources, because a later one may end first.
        """
        ...

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:
        """Publish a batch by calling `publish`, now or later.

        It raises only what the recorder raises.

        Args:
            documents: documents of the batch.
            chunks: how many chunks they have together.
            publish: embeds and writes them.
        """
        ...


class SynchronousExecutor:
    """Works in the calling thread, with batches that take about `BATCH_S`."""

    def __init__(self) -> None:
        self.batch_chunks = FIRST_BATCH_CHUNKS

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        """Process a document by calling `work`."""
        future: Future[ChunkedDocument] = Future()
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 — the future raises it
            future.set_exception(error)
        return future

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:  # noqa: ARG002
        """Publish a batch, and choose the size of the next one. Args: see `Executor.submit`."""
        start = time.monotonic()
        publish()
        chunks_in_time = int(chunks * BATCH_S / max(time.monotonic() - start, 1e-3))
        self.batch_chunks = min(BATCH_CHUNKS, max(FIRST_BATCH_CHUNKS, chunks_in_time))


class IngestPipeline:
    """Ingests documents into any collection of any tenant of one database. Thread-safe."""

    def __init__(
        self,
        database: Database,
        embedders: EmbedderRegistry,
        settings: Settings,
        telemetry: Telemetry,
        charge: Charge | None = None,
    ) -> None:
        """Create a pipeline.

        Args:
            database: database of the collections.
            embedders: models by embedding space; that of the settings is the default.
            settings: settings of collections without a preset; presets change them.
            telemetry: records what is ingested.
            charge: charges work that no caller is charged for; None to charge nobody.
        """
        self._database = database
        self._embedders = embedders
        self._telemetry = telemetry
        self._charge = charge
        self._processors: LRUCache[str, DocumentProcessor] = LRUCache(_CACHED_PROCESSORS)
        self._lock = threading.Lock()
        self.settings = settings
        self.processor = DocumentProcessor(settings, embedders.default, telemetry)
        self.publisher = Publisher(database, embedders, telemetry)

    def ingest(
        self,
        tenant: TenantRef,
        collection: str,
        items: Iterable[SourceDocument | Path],
        *,
        prune: bool,
        root: str | None,
        on_progress: Progress | None,
    ) -> IngestReport:
        """Ingest files, folders and documents in the calling thread.

        Args:
            tenant: owner of the collection.
            collection: name of the collection; it is created with its first document.
            items: documents, files and folders.
            prune: remove documents whose file is gone from one of the folders.
            root: what the names of files begin with; None for the name of their folder.
            on_progress: called after each document.

        Raises:
            RequestError: the root is malformed, or is that of two of the folders.
            DatabaseUnavailable: the run ends; what was published stays.
            DatabaseNotReady: the database is not one to write to.
            ModelError: the model cannot embed, or is not the one of the tenant.
            ConfigError: the preset of the collection does not fit the settings of this process.
            IngestInterrupted: the user has interrupted the call; what was published stays.
        """
        discovery = discover(items, self.settings.ingestion, root=root)
        report = ReportBuilder(failed=list(discovery.failures))
        try:
            self._ingest(tenant, collection, discovery, report, on_progress)
            self._remove_missing(tenant, collection, discovery, report, prune=prune)
        except KeyboardInterrupt:
            raise IngestInterrupted(report.build(), total=len(discovery.documents)) from None
        return report.build()

    def _ingest(
        self,
        tenant: TenantRef,
        collection: str,
        discovery: Discovery,
        report: ReportBuilder,
        on_progress: Progress | None,
    ) -> None:
        position, total = 0, len(discovery.documents)
        executor = SynchronousExecutor()
        for window in split_windows(discovery.documents, WINDOW_DOCUMENTS):
            self.run(tenant, collection, window, recorder=report, executor=executor)
            for document in window:
                position += 1
                if on_progress is not None:
                    on_progress(position, total, str(document.source))

    def run(
        self,
        tenant: TenantRef,
        collection: str,
        documents: Sequence[PendingDocument],
        *,
        recorder: OutcomeRecorder,
        preset_version: str | None = None,
        subject: str | None = None,
        lease: Lease = NO_LEASE,
        executor: Executor | None = None,
    ) -> None:
        """Ingest documents of one collection.

        Each one that is started gets one outcome.

        Args:
            tenant: owner of the collection.
            documents: what to ingest, in this order.
            recorder: receives the outcomes. An error that it raises ends the run.
            preset_version: version of the preset that the collection must have, or all documents fail; None for any.
            subject: who is charged, where the caller is not; None for the collection alone.
            lease: fences the documents off from other writers.
            executor: processes the documents and publishes the batches; None for the calling thread.
        """
        charged: AbstractContextManager[None] = nullcontext()
        if self._charge is not None and usage.current_account() is None:
            reader = AuditContext(tenant=tenant, principals=(), subject=subject, collection=collection)
            charged = self._charge(reader)
        entries = _assign_ids(tenant, collection, documents, recorder)
        try:
            with self._database.worker.transaction(tenant.id, [EVERYONE], on_node=True) as connection:
                state = load_state(connection, tenant.id, collection, [key for key, _ in entries])
            require_preset(collection, preset_version, state.preset)
            processor = self._get_processor(state.preset)
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            return recorder.record_failure([document for _, document in entries], error)
        run = _Run(
            database=self._database, publisher=self.publisher, processor=processor, tenant=tenant,
            collection=collection, state=state, recorder=recorder, lease=lease,
            executor=executor or SynchronousExecutor(),
        )  # fmt: skip
        with charged:
            return run.ingest(entries)

    def load_processor(self, tenant: TenantRef, collection: str) -> DocumentProcessor:
        """Return the processor of a collection's documents. Raises ConfigError, DatabaseError."""
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            preset = load_preset(connection, tenant.id, collection)
        return self._get_processor(preset)

    def require_preset(self, tenant: TenantRef, collection: str, job_version: str | None) -> None:
        """Raise IngestionError unless the collection has the job's preset.

        Args:
            tenant: Owner of the collection.
            job_version: Version of the preset that the job was enqueued under; None requires none.
        """
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            require_preset(collection, job_version, load_preset(connection, tenant.id, collection))

    def list_sources(self, tenant: TenantRef, collection: str) -> dict[str, uuid.UUID]:
        """Return the document ids of a collection by source, in source order.

        Regardless of the acl.
        """
        with self._database.worker.transaction(tenant.id, [EVERYONE]) as connection:
            return load_sources(connection, tenant.id, collection)

    def delete(self, tenant: TenantRef, collection: str, sources: Sequence[str]) -> int:
        """Delete documents by source with all their rows, and cancel their unfinished jobs.

        The parts of a large file go with its name. Returns the number of deleted documents.
        """
        ids = [document_id(tenant.id, collection, source) for source in sources if is_text(source)]
        with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
            ids += find_part_ids(connection, tenant, collection, sources)
            JobWriter(connection, tenant).cancel_documents(
                [*ids, *find_unfinished_jobs(connection, tenant, collection, sources)]
            )
            return remove_documents(connection, tenant.id, ids, collection=collection, events=events)

    def update_metadata(
        self, tenant: TenantRef, collection: str, sources: Sequence[str], changes: Mapping[str, Any]
    ) -> int:
        """Change metadata of documents, and return how many had other metadata.

        Nothing is loaded or embedded.

        Args:
            tenant: Owner of the collection.
            sources: The documents; the name of a large file means its parts.
            changes: New values by key; None removes the key.

        Raises:
            RequestError: The values cannot be stored, or decide who may read the documents.
            DatabaseError: Nothing is changed.
        """
        ids = [document_id(tenant.id, collection, source) for source in sources if is_text(source)]
        try:
            check_json(dict(changes))
        except (RecursionError, TypeError, ValueError) as error:
            raise RequestError(f"the metadata cannot be stored as JSON ({error}); correct them") from error
        with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
            access = self._get_processor(load_preset(connection, tenant.id, collection)).settings.rag.access
            if access.department_from is not None and access.key in changes:
                raise RequestError(
                    f"{access.key} decides who may read documents of {collection}; ingest the document with another one"
                )
            ids += find_part_ids(connection, tenant, collection, sources)
            stored = StoredDocuments(connection, tenant.id)
            return stored.update_metadata(ids, changes, collection=collection, events=events)

    def _get_processor(self, preset: Preset | None) -> DocumentProcessor:
        if preset is None:
            return self.processor
        with self._lock:
            if preset.version not in self._processors:
                settings = preset.apply(self.settings)
                processor = DocumentProcessor(settings, self._embedders.default, self._telemetry)
                self._processors[preset.version] = processor
            return self._processors[preset.version]

    def _remove_missing(
        self, tenant: TenantRef, collection: str, discovery: Discovery, report: ReportBuilder, *, prune: bool
    ) -> None:
        """Delete documents that a folder no longer lists, and parts that a file no longer has.

        Unlistable ones are deleted too if they would stay readable by everyone.
        """
        listings = discovery.listings if prune else []
        discovery.drop_failed_files({failure.source for failure in report.failed[len(discovery.failures) :]})
        failed = {failure.source: failure.code for failure in discovery.failures}
        if not listings and not failed and not discovery.parts:
            return
        listed = {document.source for document in discovery.documents}
        with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
            missing: dict[str, uuid.UUID] = {}
            for listing in listings:
                stored = load_sources(connection, tenant.id, collection, prefix=listing.prefix)
                sources = find_unlisted_sources(listing, stored, listed)
                if refusal := listing.refusal_to_prune(sources):
                    report.failed.append(refusal)
                else:
                    missing |= {source: stored[source] for source in sources}
            access = self._get_processor(load_preset(connection, tenant.id, collection)).settings.rag.access
            error_codes = {document_id(tenant.id, collection, source): code for source, code in failed.items()}
            for key, part in find_part_ids(connection, tenant, collection, failed).items():
                error_codes.setdefault(key, failed[strip_part(part)])
            ids = {*missing.values(), *find_unauthorised(connection, tenant.id, error_codes, access)}
            # A listed document may have the name of a part.
            listed_ids = {document_id(tenant.id, collection, source) for source in filter(is_text, listed)}
            ids.update(set(find_stale_parts(connection, tenant, collection, discovery.parts)) - listed_ids)
            removed = 0
            if ids:
                removed = remove_documents(connection, tenant.id, list(ids), collection=collection, events=events)
        report.counts[Outcome.REMOVED] += removed


def _assign_ids(
    tenant: TenantRef, collection: str, documents: Sequence[PendingDocument], recorder: OutcomeRecorder
) -> list[tuple[uuid.UUID, PendingDocument]]:
    """Return the documents with their ids.

    Those whose name cannot be stored have failed.
    """
    entries: list[tuple[uuid.UUID, PendingDocument]] = []
    for document in documents:
        try:
            check_source_name(document.source)
        except IngestionError as error:
            recorder.record_failure([document], error)
        else:
            entries.append((document_id(tenant.id, collection, document.source), document))
    return entries


@dataclass(kw_only=True)
class _Batch:
    """Documents that are published together, by id."""

    documents: dict[uuid.UUID, tuple[PendingDocument, ChunkedDocument]] = field(default_factory=dict)
    chunks: int = 0
    bytes: int = 0

    def add(self, pending: PendingDocument, document: ChunkedDocument) -> None:
        self.documents[document.id] = pending, document
        self.chunks += len(document.chunks)
        self.bytes += len(document.source.data)

    def take(self) -> "_Batch":
        """Return the documents as another batch, and empty this one."""
        batch = replace(self)
        self.documents, self.chunks, self.bytes = {}, 0, 0
        return batch


_Document = tuple[uuid.UUID, PendingDocument]
_Rejected = list[tuple[uuid.UUID, PendingDocument, IngestionError]]


@dataclass(kw_only=True)
class _Collected:
    """The documents of a run by their results."""

    batch: _Batch = field(default_factory=_Batch)
    unchanged: list[_Document] = field(default_factory=list)
    missing: list[_Document] = field(default_factory=list)
    empty: list[_Document] = field(default_factory=list)
    rejected: _Rejected = field(default_factory=list)
    slow: list[tuple[_Document, Future[ChunkedDocument]]] = field(default_factory=list)
    """Those that other threads process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One run over documents of a collection.

    Batches may be published by several threads.
    """

    database: Database
    publisher: Publisher
    processor: DocumentProcessor
    tenant: TenantRef
    collection: str
    state: CollectionState
    recorder: OutcomeRecorder
    lease: Lease
    executor: Executor

    def ingest(self, documents: Iterable[_Document]) -> None:
        """Process the documents in order and publish them in batches.

        Unchanged and rejected documents are completed last. A document that takes long joins a later batch; where it
        ends after all others, it is published alone.
        """
        collected = _Collected()
        for document in documents:
            key, pending = document
            if not self.lease.may_start(pending):
                continue
            if key in collected.batch.documents:  # the same source twice: the later one replaces the earlier
                self._submit(collected.batch)
            self._collect(document, partial(self._process, document, collected), collected)
            self._collect_slow(collected)
        self._complete(collected)
        for document, future in collected.slow:
            future.add_done_callback(usage.bind(partial(self._publish_alone, document)))

    def _process(self, entry: _Document, collected: _Collected) -> ChunkedDocument | None:
        """Load, parse and chunk a document.

        The result is None where it is stored with the same fingerprint, or takes long. A large document does not hold
        the others: they are published before it is parsed.
        """
        key, pending = entry
        with pending.start_span():
            document = pending.load()
            self.processor.check(document)
            if self.state.fingerprints.get(key) == self.processor.fingerprint(document):
                collected.unchanged.append(entry)
                return None
            if len(document.data) >= LARGE_BYTES:
                self._submit(collected.batch)
            future = self.executor.process(
                partial(self.processor.process, key, document, self.state.languages, etag=pending.etag)
            )
            if future.done():
                return future.result()
            collected.slow.append((entry, future))
            return None

    def _collect_slow(self, collected: _Collected) -> None:
        """Collect the documents that other threads have processed."""
        for document, future in [slow for slow in collected.slow if slow[1].done()]:
            collected.slow.remove((document, future))
            self._collect(document, future.result, collected)

    def _publish_alone(self, document: _Document, future: Future[ChunkedDocument]) -> None:
        collected = _Collected()
        self._collect(document, future.result, collected)
        self._complete(collected)

    def _collect(
        self, document: _Document, result: Callable[[], ChunkedDocument | None], collected: _Collected
    ) -> None:
        """Add a processed document to the batch, or to the failed ones.

        Publish a full batch.
        """
        key, pending = document
        batch = collected.batch
        try:
            processed = result()
        except IngestionError as error:
            if error.code == GONE:
                collected.missing.append(document)
            elif error.code == _EMPTY and pending.is_listed:
                collected.empty.append(document)
            else:
                collected.rejected.append((key, pending, error))
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            self.recorder.record_failure([pending], error)
        else:
            if processed is not None:
                if len(processed.chunks) >= self.executor.batch_chunks:
                    self._submit(batch)
                batch.add(pending, processed)
        if batch.chunks >= self.executor.batch_chunks or batch.bytes >= BATCH_BYTES:
            self._submit(batch)

    def _complete(self, collected: _Collected) -> None:
        self._submit(collected.batch)
        self._complete_unchanged(collected.unchanged)
        self._complete_absent(collected.missing, Outcome.GONE, self.recorder.record_gone)
        self._complete_absent(collected.empty, Outcome.EMPTY, self.recorder.record_empty)
        self._reject(collected.rejected)

    def _submit(self, batch: _Batch) -> None:
        """Hand the documents of a batch to the executor, and empty it."""
        if batch.documents:
            full = batch.take()
            documents = [pending for pending, _ in full.documents.values()]
            self.executor.submit(documents, full.chunks, usage.bind(partial(self._publish, full)))

    def _publish(self, batch: _Batch) -> None:
        remaining = dict(batch.documents)
        published: list[PublishedDocument] = []
        rejected: _Rejected = []
        try:
            for result in self.publisher.publish(
                self.tenant,
                self.collection,
                [document for _, document in batch.documents.values()],
                preset_version=self.state.preset_version,
                spaces=self.state.spaces,
                lease=self.lease,
            ):
                pending, document = remaining.pop(result.document.id)
                if result.error is not None:
                    rejected.append((document.id, pending, result.error))
                elif result.outcome is not None:
                    self.state.fingerprints[document.id] = document.fingerprint
                    usage.record(usage.Quantity.DOCUMENTS, 1)
                    usage.record(usage.Quantity.BYTES, len(document.source.data))
                    published.append(
                        PublishedDocument(
                            pending=pending, document=document, outcome=result.outcome, reused=result.reused
                        )
                    )
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            self.recorder.record_failure([pending for pending, _ in remaining.values()], error)
        self._remove_replaced([result.pending for result in published])
        self.recorder.record_published(published)
        self._reject(rejected)

    def _remove_replaced(self, documents: Sequence[PendingDocument]) -> None:
        """Remove what files no longer have, once all their documents are stored.

        Where it fails, the next pass removes it.
        """
        parts = {strip_part(document.source): document.parts for document in documents if document.parts is not None}
        if not parts:
            return
        try:
            with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                replaced = find_replaced_parts(connection, self.tenant, self.collection, parts)
                if replaced:
                    remove_documents(connection, self.tenant.id, replaced, collection=self.collection, events=events)
        except DatabaseError as error:
            log.warning(
                "the documents that new ones replace stay until the next pass: %s", error,
                extra={"action": "replaced_documents_stay", "tenant": self.tenant.name},
            )  # fmt: skip

    def _complete_unchanged(self, unchanged: Sequence[_Document]) -> None:
        """Complete the leases of unchanged documents, and store their etags."""
        documents = [pending for _, pending in unchanged]
        etags = {key: pending.etag for key, pending in unchanged if pending.etag is not None}
        if not documents or (self.lease is NO_LEASE and not etags):
            return self.recorder.record_unchanged(documents)
        try:
            with self.database.worker.transaction(self.tenant.id, [EVERYONE]) as connection:
                leased = self.lease.verify(connection, [key for key, _ in unchanged])
                stored = {key: etag for key, etag in etags.items() if key in leased}
                StoredDocuments(connection, self.tenant.id).update_etags(stored, collection=self.collection)
                self.lease.complete(
                    connection, connection, {key: Completion(outcome=Outcome.UNCHANGED) for key in leased}
                )
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            return self.recorder.record_failure(documents, error)
        lost_documents = [pending for key, pending in unchanged if key not in leased]
        if lost_documents:
            self.recorder.record_failure(
                lost_documents, IngestionError("lease_lost", "another writer took the documents over")
            )
        self._remove_replaced([pending for key, pending in unchanged if key in leased])
        return self.recorder.record_unchanged([pending for key, pending in unchanged if key in leased])

    def _complete_absent(
        self,
        absent: Sequence[_Document],
        outcome: Outcome,
        record: Callable[[Sequence[PendingDocument]], None],
    ) -> None:
        """Complete the leases of documents that were removed after listing, or have no text.

        The next pass prunes the former. The stored version of the latter is removed.
        """
        documents = [pending for _, pending in absent]
        if not documents or (self.lease is NO_LEASE and outcome is Outcome.GONE):
            return record(documents)
        try:
            with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                leased = self.lease.verify(connection, [key for key, _ in absent])
                if outcome is Outcome.EMPTY:
                    remove_documents(
                        connection, self.tenant.id, list(leased), collection=self.collection, events=events
                    )
                self.lease.complete(connection, connection, {key: Completion(outcome=outcome) for key in leased})
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            return self.recorder.record_failure(documents, error)
        # A lost lease needs no other outcome: the job is another worker's.
        return record(documents)

    def _reject(self, rejected: _Rejected) -> None:
        """Record failed documents.

        Remove the stored version of those that would stay open to everyone.
        """
        access = self.processor.settings.rag.access
        if rejected and access.department_from is not None:
            documents = {key: pending for key, pending, _ in rejected}
            try:
                with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                    leased = self.lease.verify(connection, list(documents))
                    failed = {key: reason.code for key, _, reason in rejected if key in leased}
                    files = {pending.source: key for key, pending in documents.items() if key in leased}
                    parts = find_part_ids(connection, self.tenant, self.collection, files)
                    owners = {part: files[strip_part(name)] for part, name in parts.items()}
                    failed = {part: failed[key] for part, key in owners.items()} | failed
                    removed = find_unauthorised(connection, self.tenant.id, failed, access)
                    if removed:
                        remove_documents(connection, self.tenant.id, removed, collection=self.collection, events=events)
            except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
                return self.recorder.record_failure(list(documents.values()), error)
            self.recorder.record_removed([documents[owners.get(key, key)] for key in removed])
        for _, pending, reason in rejected:
            self.recorder.record_failure([pending], reason)
        return None
