"""Ingest documents, for `Tenant.ingest` and for the worker.

Load the state of the collection once, then for each document: skip it where its fingerprint is stored, else load,
parse and chunk it; batches of chunks are embedded and published in one transaction.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cachetools import LRUCache

from kosmos_rag.core.config import Settings
from kosmos_rag.core.config.presets import Preset
from kosmos_rag.core.errors import IngestInterrupted, IngestionError, RequestError
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.telemetry.observer import Telemetry
from kosmos_rag.core.types import EVERYONE, IngestReport, Outcome, SourceDocument, is_text
from kosmos_rag.ingestion.acl import find_unauthorised
from kosmos_rag.ingestion.discovery import Discovery, PendingDocument, discover, find_unlisted_sources, split_windows
from kosmos_rag.ingestion.document import (
    DocumentProcessor,
    check_json,
    check_source_name,
    document_id,
)
from kosmos_rag.ingestion.executor import Executor, SynchronousExecutor
from kosmos_rag.ingestion.parts import strip_part
from kosmos_rag.ingestion.publisher import NO_LEASE, Lease, Publisher
from kosmos_rag.ingestion.report import OutcomeRecorder, ReportBuilder
from kosmos_rag.ingestion.run import DocumentEntry, IngestRun
from kosmos_rag.ingestion.state import (
    StoredSource,
    find_part_ids,
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

Charge = Callable[[AuditContext], AbstractContextManager[None]]
"""Charges what a block uses to a reader."""
Progress = Callable[[int, int, str], None]
"""Called after each document with how many are done, how many there are, and its source."""

WINDOW_DOCUMENTS = 256
"""Documents of an `ingest` call for which the state is loaded together."""
_CACHED_PROCESSORS = 64


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
        names = [document.source for document in discovery.documents if is_text(document.source)]
        reserved = frozenset(document_id(tenant.id, collection, name) for name in names if strip_part(name) != name)
        for window in split_windows(discovery.documents, WINDOW_DOCUMENTS):
            self.run(tenant, collection, window, recorder=report, executor=executor, reserved=reserved)
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
        reserved: frozenset[uuid.UUID] = frozenset(),
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
            reserved: documents that have the name of a part and are none.
        """
        charged: AbstractContextManager[None] = nullcontext()
        if self._charge is not None and usage.current_account() is None:
            reader = AuditContext(tenant=tenant, principals=(), subject=subject, collection=collection)
            charged = self._charge(reader)
        entries = _assign_ids(tenant, collection, documents, recorder)
        try:
            with self._database.worker.transaction(tenant.id, [EVERYONE], on_node=True) as connection:
                state = load_state(connection, tenant, collection, {key: pending.source for key, pending in entries})
            require_preset(collection, preset_version, state.preset)
            processor = self._get_processor(state.preset)
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            return recorder.record_failure([document for _, document in entries], error)
        run = IngestRun(
            database=self._database, publisher=self.publisher, processor=processor, tenant=tenant,
            collection=collection, state=state, recorder=recorder, lease=lease,
            executor=executor or SynchronousExecutor(), reserved=reserved,
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

    def list_sources(self, tenant: TenantRef, collection: str) -> dict[str, StoredSource]:
        """Return the documents of a collection by source, in source order.

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
            jobs = JobWriter(connection, tenant)
            jobs.delete_documents(ids)
            ids += find_part_ids(connection, tenant, collection, sources)
            removed = remove_documents(connection, tenant.id, ids, collection=collection, events=events)
            jobs.count_cancelled()
        return removed

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
        """Delete documents that a folder no longer lists.

        Unlistable ones are deleted too if they would stay readable by everyone.
        """
        listings = discovery.listings if prune else []
        failed = {failure.source: failure.code for failure in discovery.failures}
        if not listings and not failed:
            return
        listed = {document.source for document in discovery.documents}
        with self._database.worker.transaction_with_events(tenant.id, [EVERYONE]) as (connection, events):
            missing: dict[str, uuid.UUID] = {}
            for listing in listings:
                stored = load_sources(connection, tenant.id, collection, prefix=listing.prefix)
                names = ((source, document.is_part) for source, document in stored.items())
                sources = find_unlisted_sources(listing, names, listed.__contains__)
                if refusal := listing.refusal_to_prune(sources):
                    report.failed.append(refusal)
                else:
                    missing |= {source: stored[source].id for source in sources}
            access = self._get_processor(load_preset(connection, tenant.id, collection)).settings.rag.access
            error_codes = {document_id(tenant.id, collection, source): code for source, code in failed.items()}
            for key, part in find_part_ids(connection, tenant, collection, failed).items():
                error_codes.setdefault(key, failed[strip_part(part)])
            ids = {*missing.values(), *find_unauthorised(connection, tenant.id, error_codes, access)}
            removed = 0
            if ids:
                removed = remove_documents(connection, tenant.id, list(ids), collection=collection, events=events)
        report.counts[Outcome.REMOVED] += removed


def _assign_ids(
    tenant: TenantRef, collection: str, documents: Sequence[PendingDocument], recorder: OutcomeRecorder
) -> list[DocumentEntry]:
    """Return the documents with their ids.

    Those whose name cannot be stored have failed.
    """
    entries: list[DocumentEntry] = []
    for document in documents:
        try:
            check_source_name(document.source)
        except IngestionError as error:
            recorder.record_failure([document], error)
        else:
            entries.append((document_id(tenant.id, collection, document.source), document))
    return entries
