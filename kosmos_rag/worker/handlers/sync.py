"""Handler of sync jobs.

It lists a source, enqueues new and changed documents, and removes missing ones.
"""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg

from kosmos_rag.core.errors import DatabaseUnavailable, RequestError
from kosmos_rag.core.types import EVERYONE, IngestFailure, Job, Outcome
from kosmos_rag.ingestion.discovery import find_unlisted_sources
from kosmos_rag.ingestion.document import DocumentProcessor, document_id
from kosmos_rag.ingestion.parts import may_have_parts, number_part, strip_part
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.ingestion.sources.listing import ChangeSource, CountingSource, Entry, Listing
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.state import StoredSource, find_part_ids, load_preset, read_stored_files, require_preset
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.documents import StoredDocuments
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.sync_runs import SyncRunWriter
from kosmos_rag.storage.queue.writing import JobLeases, JobWriter
from kosmos_rag.storage.tenants import TenantRef, read_server_time
from kosmos_rag.worker.channel import CounterBuffer, JobInterrupted, SupervisorChannel

log = logging.getLogger("kosmos_rag.worker")

CHANGES = "changes"
"""Key of the payload of a job that reads the changes of a source, and not its listing."""
BATCH_ENTRIES, BATCH_TIME_S = 500, 1.0
"""Entries and seconds of listing in one transaction: some sources send a request for each entry."""
LISTING_SILENCE_S = 3600.0
"""Seconds between two entries after which a source is taken for a stuck one: some read many pages without an entry."""


_T = TypeVar("_T")


class SyncHandler:
    """Synchronises a collection with a source."""

    def __init__(self, database: Database, pipeline: IngestPipeline) -> None:
        self._database = database
        self._pipeline = pipeline

    def run(self, job: Job, channel: SupervisorChannel) -> CounterBuffer:
        """Run one sync; each document becomes a job of its own."""
        try:
            owner = TenantRef(id=job.tenant_id, name=job.tenant)
            processor = self._pipeline.load_processor(owner, job.collection)
            sync = _SyncRun(self._database, self._pipeline, processor, job, channel)
            if job.payload.get(CHANGES):
                sync.run_changes()
            else:
                sync.run()
        except DatabaseUnavailable as error:
            log.warning("%s", error, extra={"action": "sync_interrupted", "tenant": job.tenant, "job": job.id})
            raise
        log.info(
            "%d listed, %d enqueued; %d removed, %d failed",
            len(sync.listed), sync.enqueued, sync.outcomes[Outcome.REMOVED], len(sync.failures),
            extra={"action": "sync_done", "tenant": job.tenant, "job": job.id, "texts": {"source": job.key}},
        )  # fmt: skip
        counts = CounterBuffer()
        for failure in sync.failures:
            counts.add("listing_failures", label=failure.code)
        for outcome in (Outcome.UNCHANGED, Outcome.REMOVED):
            counts.add("documents", sync.outcomes[outcome], outcome)
        return counts


class _SyncRun:
    """One sync of a source.

    Each transaction verifies the lease, so that a revoked sync writes nothing.
    """

    def __init__(
        self,
        database: Database,
        pipeline: IngestPipeline,
        processor: DocumentProcessor,
        job: Job,
        channel: SupervisorChannel,
    ) -> None:
        self._database = database
        self._pipeline = pipeline
        self._processor = processor
        self._job = job
        self._channel = channel
        self._owner = TenantRef(id=job.tenant_id, name=job.tenant)
        self._spec: Mapping[str, Any] = job.payload["spec"]
        self._preset_version: str | None = job.payload.get("preset")
        self._source = create_source(self._spec, processor.settings.ingestion)
        self.listed: set[bytes] = set()
        self._current: dict[str, int] = {}
        """Number of parts of unchanged files that may have some; 0 for a file that is one document."""
        self.outcomes: Counter[Outcome] = Counter()
        self.enqueued = 0
        self.failures: list[IngestFailure] = []
        self._has_more = False

    def run_changes(self) -> None:
        """Enqueue and remove the documents that changed, finish the job, confirm the changes to the source."""
        if not isinstance(self._source, ChangeSource):
            raise RequestError(f"a source of kind {self._spec['kind']} has no changes; synchronise it at an interval")
        with self._transaction() as connection:
            read_at = read_server_time(connection)
        with self._source.take_changes() as changes:
            self._has_more = changes.has_more
            if changes.compare_all:
                self.run(may_be_empty=changes.emptied, is_comparison=True)
                return
            run = self._start()
            self._enqueue_all(run, changes.listing, read_at=read_at)
            if changes.listing.error is not None:
                raise changes.listing.error
            removed = changes.removed if self._job.payload["prune"] else []
            for names in _batches(removed):
                self._remove(run, self._find_documents(names), is_known=True)
            self._finish(run, changes.listing.name, changes.listing.failures)

    def run(self, *, may_be_empty: bool = False, is_comparison: bool = False) -> None:
        """List the source, enqueue and remove documents, finish the job.

        Args:
            may_be_empty: Whether the source was emptied on purpose.
            is_comparison: Whether the listing replaces changes, which must return where it ends early. Raises
                SourceError then.
        """
        # Read before the listing: documents ingested meanwhile must not count as missing from the source.
        stored = self._pipeline.list_sources(self._owner, self._job.collection) if self._job.payload["prune"] else {}
        run = self._start()
        source, collection = self._source, f"{self._job.tenant_id}/{self._job.collection}"
        listing = source.listing_for(collection) if isinstance(source, CountingSource) else source.listing()
        self._enqueue_all(run, listing)
        if is_comparison and listing.error is not None:
            raise listing.error
        failures = list(listing.failures)
        missing = self._find_missing(listing, stored)
        if refusal := listing.refusal_to_prune(missing, may_be_empty=may_be_empty):
            failures.append(refusal)
            missing = []
        parts = (name for name, document in stored.items() if document.is_part)
        missing += [name for name in parts if not self._is_listed(name) and self._is_former_part(name)]
        for batch in _batches(stored[name].id for name in missing):
            self._remove(run, batch)
        self._finish(run, listing.name, failures)

    def _start(self) -> uuid.UUID:
        with self._transaction() as connection:
            return SyncRunWriter(connection, self._owner).start(self._job.collection, self._spec)

    def _finish(self, run: uuid.UUID, name: str, failures: Sequence[IngestFailure]) -> None:
        with (
            self._transaction() as connection,
            self._database.worker.record_events(connection, self._owner.id) as events,
        ):
            SyncRunWriter(connection, self._owner).add(run, failures=failures, state="working")
            if self._has_more:
                JobLeases(connection).run_again(self._job.token)
            JobLeases(connection).finish({self._job.token: Outcome.DONE})
            if failures:
                events.add_source_failure(self._job.collection, name, failures)
        self.failures += failures

    def _find_documents(self, sources: Sequence[str]) -> list[uuid.UUID]:
        """Return the ids of documents and of their parts."""
        with self._transaction() as connection:
            parts = find_part_ids(connection, self._owner, self._job.collection, sources)
        return [*(document_id(self._owner.id, self._job.collection, source) for source in sources), *parts]

    def _is_listed(self, source: str) -> bool:
        return document_id(self._owner.id, self._job.collection, source).bytes in self.listed

    def _is_former_part(self, source: str) -> bool:
        """Whether an unchanged file no longer has a part.

        The worker that replaced it could not remove it.
        """
        parts = self._current.get(strip_part(source))
        return parts is not None and number_part(source) > parts

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        self._channel.report_progress()
        self._channel.require_running(self._job)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            if not JobLeases(connection).lock([self._job.token]):
                raise JobInterrupted
            preset = load_preset(connection, self._owner.id, self._job.collection)
            require_preset(self._job.collection, self._preset_version, preset)
            yield connection

    def _enqueue_all(self, run: uuid.UUID, listing: Listing, *, read_at: datetime | None = None) -> None:
        """Enqueue what a source lists, and report progress while it looks for the next entry."""
        with self._channel.heartbeat(LISTING_SILENCE_S) as restart:
            for entries in _batches(listing):
                self._enqueue(run, entries, read_at=read_at)
                restart()

    def _find_missing(self, listing: Listing, stored: Mapping[str, StoredSource]) -> list[str]:
        """Return the stored sources that a listing lacks, and report progress while the source confirms each."""
        with self._channel.heartbeat(LISTING_SILENCE_S) as restart:

            def restart_at_each() -> Iterator[tuple[str, bool]]:
                for source, document in stored.items():
                    restart()
                    yield source, document.is_part

            return find_unlisted_sources(listing, restart_at_each(), self._is_listed)

    def _enqueue(self, run: uuid.UUID, entries: Sequence[Entry], *, read_at: datetime | None = None) -> None:
        """Enqueue the entries that changed: those with another etag, or all of them.

        A complete pass compares etags.

        Args:
            read_at: Time of the server from which a pass over changes reads; None for a complete pass. A document
                that changed may be back at its stored etag while a job still has another.
        """
        has_changed = read_at is not None
        owner, collection = self._owner, self._job.collection
        ids = {entry.source: document_id(owner.id, collection, entry.source) for entry in entries}
        self.listed.update(key.bytes for key in ids.values())
        with (
            self._transaction() as connection,
            self._database.worker.record_events(connection, owner.id) as events,
        ):
            documents, jobs = StoredDocuments(connection, owner.id), JobWriter(connection, owner)
            payloads = {entry.source: self._payload(entry) for entry in entries}
            etags = {source: payload["source_etag"] for source, payload in payloads.items()}
            acls = {ids[entry.source]: entry.readers for entry in entries if entry.readers is not None}
            # A row may be back at its stored etag while a job has read it with other readers: it is read again. What a
            # job has published that is not among these is seen below.
            other = set(jobs.find_other_readers(acls))
            stored = read_stored_files(connection, owner.id, collection, etags)
            unchanged = {
                source
                for source, etag in etags.items()
                if not has_changed
                and etag is not None
                and source in stored
                and stored[source].etag == etag
                and ids[source] not in other
            }
            self._current |= {source: stored[source].parts for source in unchanged if may_have_parts(source)}
            changed = {str(ids[source]): payload for source, payload in payloads.items() if source not in unchanged}
            # A document that failed permanently is not read again while its etag is the same.
            broken = jobs.find_permanent_failures({key: payload["source_etag"] for key, payload in changed.items()})
            failures = [
                IngestFailure(source=changed[key]["entry"]["source"], code=code, message=message)
                for key, (code, message) in broken.items()
            ]
            added = {key: payload for key, payload in changed.items() if key not in broken}
            preset = self._preset_version
            acls = {key: acl for key, acl in acls.items() if str(key) in changed}
            sources = {source: key for source, key in ids.items() if key in acls}
            owners = {
                part: sources[strip_part(name)]
                for part, name in find_part_ids(connection, owner, collection, sources).items()
            }
            acls |= {part: acls[file] for part, file in owners.items()}
            # Nobody keeps access that the source has ended: neither until the documents are read, which may fail, nor
            # by a job that has read them before. The acls come last: publications too lock jobs before the collection.
            # A listing may be older than the work of a pass over changes, so it gives no access.
            present = {ids[source] for source in stored} | set(owners.values())
            absent = [key for key in sources.values() if has_changed and key not in present]
            stale = {*(owners.get(key, key) for key in documents.find_other_acls(acls)), *absent, *other}
            jobs.cancel_documents(list(stale))
            jobs.enqueue(collection, kinds.DOCUMENT, added, run=run, preset=preset)
            # The jobs are locked now: a part that one of them has published meanwhile is visible.
            parts = find_part_ids(connection, owner, collection, sources)
            acls |= {part: acls[sources[strip_part(name)]] for part, name in parts.items()}
            documents.write_acls(acls, collection=collection, read_at=read_at, events=events)
            # Runs come after the collection: a publication that holds it counts its outcome there.
            jobs.count_cancelled()
            counts = SyncRunWriter(connection, owner)
            counts.add(run, documents=len(ids) - len(broken), unchanged=len(unchanged), failures=failures)
        self.failures += failures
        self.outcomes[Outcome.UNCHANGED] += len(unchanged)
        self.enqueued += len(added)

    def _payload(self, entry: Entry) -> dict[str, Any]:
        # Without the list of URLs: it may be long, and the locator has the URL of the document.
        spec = {**self._spec, "urls": [entry.source]} if "urls" in self._spec else self._spec
        entry_fields = {
            "source": entry.source, "etag": entry.etag, "locator": dict(entry.locator), "readers": entry.readers,
        }  # fmt: skip
        return {"spec": spec, "entry": entry_fields, "source_etag": self._processor.compute_etag(entry)}

    def _remove(self, run: uuid.UUID, missing: Sequence[uuid.UUID], *, is_known: bool = False) -> None:
        """Remove documents.

        Args:
            is_known: Whether the source named them as deleted; else they were missing in a listing, which may be older
                than their jobs.
        """
        with (
            self._transaction() as connection,
            self._database.worker.record_events(connection, self._owner.id) as events,
        ):
            jobs = JobWriter(connection, self._owner)
            if is_known:
                # A job that has read the document before it was deleted must not publish it.
                jobs.cancel_documents(missing)
            removed = remove_documents(
                connection, self._owner.id, missing, collection=self._job.collection, events=events
            )
            jobs.count_cancelled()
            SyncRunWriter(connection, self._owner).add(run, documents=removed, removed=removed)
        self.outcomes[Outcome.REMOVED] += removed


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    """Split into batches by number and by listing time."""
    batch: list[_T] = []
    started = time.monotonic()
    for item in items:
        batch.append(item)
        if len(batch) == BATCH_ENTRIES or time.monotonic() - started > BATCH_TIME_S:
            yield batch
            batch, started = [], time.monotonic()
    if batch:
        yield batch
