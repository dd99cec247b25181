"""Process the documents of one collection in order, and publish them in batches."""

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import psycopg

from kosmos_rag.core.errors import GONE, IngestionError, SourceError
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import EVERYONE, Outcome, SourceDocument
from kosmos_rag.ingestion.acl import find_unauthorised
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.division import DividedDocument, PartLeases, PartOutcomes, PendingPart, divide
from kosmos_rag.ingestion.document import ChunkedDocument, DocumentProcessor, document_id
from kosmos_rag.ingestion.executor import Executor
from kosmos_rag.ingestion.parts import join_etag, strip_part
from kosmos_rag.ingestion.publisher import NO_LEASE, Completion, Lease, Publisher
from kosmos_rag.ingestion.report import OutcomeRecorder, PublishedDocument
from kosmos_rag.ingestion.state import (
    CollectionState,
    find_namesakes,
    find_part_ids,
    find_stale_parts,
    load_fingerprints,
)
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.tenants import TenantRef

_EMPTY = "empty"
"""Code of a document without text: no failure of a file that a source lists."""
BATCH_BYTES = 8 * 1024 * 1024
"""Bytes of documents in a batch."""
LARGE_BYTES = 4 * 1024 * 1024
"""Bytes of a document that takes long to parse: what is parsed already is published before."""


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


DocumentEntry = tuple[uuid.UUID, PendingDocument]
_Rejected = list[tuple[uuid.UUID, PendingDocument, IngestionError]]


@dataclass(kw_only=True)
class _Collected:
    """The documents of a run by their results."""

    batch: _Batch = field(default_factory=_Batch)
    unchanged: list[DocumentEntry] = field(default_factory=list)
    missing: list[DocumentEntry] = field(default_factory=list)
    empty: list[DocumentEntry] = field(default_factory=list)
    rejected: _Rejected = field(default_factory=list)
    slow: list[tuple[DocumentEntry, Future[ChunkedDocument]]] = field(default_factory=list)
    """Those that other threads process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestRun:
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
    reserved: frozenset[uuid.UUID]
    """Documents of the caller that have the name of a part."""

    def ingest(self, documents: Iterable[DocumentEntry]) -> None:
        """Process the documents in order and publish them in batches.

        Unchanged and rejected documents are completed last. A document that takes long joins a later batch; where it
        ends after all others, it is published alone.
        """
        collected = _Collected()
        try:
            for document in documents:
                key, pending = document
                if not self.lease.may_start(pending):
                    continue
                if key in collected.batch.documents:  # the same source twice: the later one replaces the earlier
                    self._submit(collected.batch)
                self._collect(document, partial(self._process, document, collected), collected)
                self._collect_slow(collected)
        except KeyboardInterrupt:
            if self.lease is NO_LEASE:  # the caller gets a report
                self.recorder.record_unchanged([pending for _, pending in collected.unchanged])
            raise
        self._complete(collected)
        for document, future in collected.slow:
            future.add_done_callback(usage.bind(partial(self._publish_alone, document)))

    def _process(self, entry: DocumentEntry, collected: _Collected) -> ChunkedDocument | None:
        """Load, parse and chunk a document.

        The result is None where it is stored with the same fingerprint, or takes long. A large document does not hold
        the others: they are published before it is parsed.
        """
        key, pending = entry
        with pending.start_span():
            document, divided = self.executor.load(partial(self._load, pending))
            if divided is not None:
                with closing(divided):
                    self._submit(collected.batch)
                    self._ingest_parts(entry, document, divided)
                return None
            self.processor.check(document)
            self._require_own_name(entry)
            if self.state.fingerprints.get(key) == self.processor.fingerprint(document):
                collected.unchanged.append(entry)
                return None
            if len(document.data) >= LARGE_BYTES:
                self._submit(collected.batch)
            future = self.executor.process(
                partial(
                    self.processor.process,
                    key,
                    document,
                    self.state.languages,
                    etag=pending.etag,
                    file_id=self._find_file(pending),
                )
            )
            if future.done():
                return future.result()
            collected.slow.append((entry, future))
            return None

    def _load(self, pending: PendingDocument) -> tuple[SourceDocument, DividedDocument | None]:
        """Load a document, and find its parts where it is divided."""
        document = pending.load()
        divided = divide(document, self.processor.settings.ingestion) if pending.may_be_divided else document
        return document, divided if isinstance(divided, DividedDocument) else None

    def _find_file(self, pending: PendingDocument) -> uuid.UUID | None:
        """Return the id of the file of a part; None for other documents."""
        if isinstance(pending, PendingPart):
            return document_id(self.tenant.id, self.collection, pending.file.source)
        return None

    def _require_own_name(self, entry: DocumentEntry) -> None:
        """Raise SourceError where a part of another file has the name of a document.

        The publication checks it again: another process may publish the part meanwhile.
        """
        key, pending = entry
        file = strip_part(pending.source)
        if file == pending.source or isinstance(pending, PendingPart):
            return
        is_part = key in self.state.parts
        if not is_part and key in self.state.fingerprints:
            with self.database.worker.transaction(self.tenant.id, [EVERYONE], on_node=True) as connection:
                is_part = any(StoredDocuments(connection, self.tenant.id).read_file_ids([key]).values())
        if is_part:
            raise SourceError("duplicate", f"{pending.source} has the name of a part of {file}; rename it")
        self.state.namesakes.add(key)

    def _ingest_parts(self, file: DocumentEntry, document: SourceDocument, divided: DividedDocument) -> None:
        """Ingest the parts of a document as a run of their own.

        The last one of them ends the document.
        """
        key, pending = file
        self.processor.check(replace(document, data=b""))
        parts = [PendingPart(file=pending, divided=divided, part=part) for part in divided.parts]
        entries = [(document_id(self.tenant.id, self.collection, part.source), part) for part in parts]
        ids = [part_id for part_id, _ in entries]
        with self.database.worker.transaction(self.tenant.id, [EVERYONE], on_node=True) as connection:
            fingerprints = load_fingerprints(connection, self.tenant.id, ids)
            namesakes = find_namesakes(connection, self.tenant.id, fingerprints)
        # The caller's document with the name of a stored part is refused instead of the file.
        reserved = self.reserved - fingerprints.keys()
        if not {*namesakes, *reserved, *self.state.namesakes}.isdisjoint(ids):
            raise SourceError(
                "duplicate", f"{document.source} is divided, and another document has the name of a part; rename that"
            )
        self.state.divided.add(document.source)
        self.state.parts.update(ids)
        for part_id in ids:  # the same file may follow, in another version
            self.state.fingerprints.pop(part_id, None)
        self.state.fingerprints.update(fingerprints)
        outcomes = PartOutcomes(
            len(parts),
            succeed=usage.bind(partial(self._complete_parts, file, ids)),
            fail=usage.bind(partial(self._fail_parts, file)),
        )
        run = replace(
            self,
            recorder=outcomes,
            lease=PartLeases(lease=self.lease, key=key, file=pending, outcomes=outcomes),
        )
        run.ingest(entries)

    def _complete_parts(self, file: DocumentEntry, ids: Sequence[uuid.UUID], outcomes: PartOutcomes) -> None:
        """Remove what the parts replace, store their etags, and complete the lease of their file."""
        key, pending = file
        if outcomes.is_empty and not pending.is_listed:
            return self._fail_parts(file, IngestionError(_EMPTY, f"no text in {pending.source}; give rows with text"))
        etag = join_etag(pending.etag, len(ids), empty=len(outcomes.empty))
        chunks = sum(part.chunks for part in outcomes.published)
        try:
            with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                if key not in self.lease.verify(connection, [key]):
                    raise IngestionError("lease_lost", f"another writer took {pending.source} over")
                stale = find_stale_parts(
                    connection, self.tenant, self.collection, pending.source, len(ids), frozenset(outcomes.empty)
                )
                removed = remove_documents(connection, self.tenant.id, stale, collection=self.collection, events=events)
                if etag is not None:
                    stored = StoredDocuments(connection, self.tenant.id)
                    stored.update_etags(dict.fromkeys(ids, etag), collection=self.collection)
                outcome = outcomes.find_outcome(has_replaced=removed > 0)
                completion = Completion(outcome=outcome, chunks=chunks)
                self.lease.complete(connection, connection, {key: completion})
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            return self.recorder.record_failure([pending], error)
        self.state.fingerprints.pop(key, None)
        if outcome is Outcome.UNCHANGED:
            return self.recorder.record_unchanged([pending])
        if outcome is Outcome.EMPTY:
            return self.recorder.record_empty([pending])
        return self.recorder.record_published([outcomes.build_published(pending, outcome)])

    def _fail_parts(self, file: DocumentEntry, error: Exception) -> None:
        if isinstance(error, IngestionError) and error.code != "lease_lost":
            key, pending = file
            self._reject([(key, pending, error)])
        else:
            self.recorder.record_failure([file[1]], error)

    def _collect_slow(self, collected: _Collected) -> None:
        """Collect the documents that other threads have processed."""
        for document, future in [slow for slow in collected.slow if slow[1].done()]:
            collected.slow.remove((document, future))
            self._collect(document, future.result, collected)

    def _publish_alone(self, document: DocumentEntry, future: Future[ChunkedDocument]) -> None:
        collected = _Collected()
        self._collect(document, future.result, collected)
        self._complete(collected)

    def _collect(
        self, document: DocumentEntry, result: Callable[[], ChunkedDocument | None], collected: _Collected
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
        entries = [(key, pending) for key, (pending, _) in remaining.items()]
        try:
            for result in self.publisher.publish(
                self.tenant,
                self.collection,
                [document for _, document in batch.documents.values()],
                preset_version=self.state.preset_version,
                spaces=self.state.spaces,
                lease=self.lease,
                find_replaced=partial(self._find_former_parts, self._find_divided(entries)),
            ):
                pending, document = remaining.pop(result.document.id)
                if result.error is not None:
                    rejected.append((document.id, pending, result.error))
                elif result.outcome is not None:
                    self.state.fingerprints[document.id] = document.fingerprint
                    usage.record(usage.Quantity.DOCUMENTS, 1)
                    usage.record(usage.Quantity.BYTES, len(document.source.data))
                    published.append(
                        PublishedDocument.from_document(pending, document, result.outcome, reused=result.reused)
                    )
        except Exception as error:  # noqa: BLE001 — the recorder decides what an error means
            self.recorder.record_failure([pending for pending, _ in remaining.values()], error)
        self.recorder.record_published(published)
        self._reject(rejected)

    def _find_divided(self, entries: Iterable[DocumentEntry]) -> dict[uuid.UUID, str]:
        """Return the names of files that may have stored parts, by document id, without a query."""
        return {
            key: pending.source
            for key, pending in entries
            if pending.may_be_divided and pending.source in self.state.divided
        }

    def _find_former_parts(
        self, divided: Mapping[uuid.UUID, str], connection: psycopg.Connection, stored: Collection[uuid.UUID]
    ) -> list[uuid.UUID]:
        """Return the parts of divided files of which one document is stored now.

        In a transaction that has locked the collection.
        """
        files = [file for key, file in divided.items() if key in stored]
        return list(find_part_ids(connection, self.tenant, self.collection, files))

    def _complete_unchanged(self, unchanged: Sequence[DocumentEntry]) -> None:
        """Complete the leases of unchanged documents, and store their etags."""
        documents = [pending for _, pending in unchanged]
        etags = {key: pending.etag for key, pending in unchanged if pending.etag is not None}
        divided = self._find_divided(unchanged)
        if not documents or (self.lease is NO_LEASE and not etags and not divided):
            return self.recorder.record_unchanged(documents)
        try:
            with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                leased = self.lease.verify(connection, [key for key, _ in unchanged])
                stored = {key: etag for key, etag in etags.items() if key in leased}
                StoredDocuments(connection, self.tenant.id).update_etags(stored, collection=self.collection)
                if divided:
                    keys = load_fingerprints(connection, self.tenant.id, [key for key in divided if key in leased])
                    former = self._find_former_parts(divided, connection, keys)
                    remove_documents(connection, self.tenant.id, former, collection=self.collection, events=events)
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
        return self.recorder.record_unchanged([pending for key, pending in unchanged if key in leased])

    def _complete_absent(
        self,
        absent: Sequence[DocumentEntry],
        outcome: Outcome,
        record: Callable[[Sequence[PendingDocument]], None],
    ) -> None:
        """Complete the leases of documents that were removed after listing, or have no text.

        The next pass prunes the former. The stored version of the latter is removed.
        """
        documents = [pending for _, pending in absent]
        keeps_stored = outcome is Outcome.GONE and self.lease is NO_LEASE
        if not documents or keeps_stored or isinstance(self.lease, PartLeases):
            return record(documents)  # the file removes the stored parts that have no text now
        divided = self._find_divided(absent)
        try:
            with self.database.worker.transaction_with_events(self.tenant.id, [EVERYONE]) as (connection, events):
                leased = self.lease.verify(connection, [key for key, _ in absent])
                if outcome is Outcome.EMPTY:
                    former = self._find_former_parts(divided, connection, leased)
                    remove_documents(
                        connection, self.tenant.id, [*leased, *former], collection=self.collection, events=events
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
