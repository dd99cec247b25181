"""Jobs about a source: list it, put what is new or changed into the queue, remove what is gone, keep the ledger."""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from kosmos_rag.apps.worker.channel import CounterBuffer, SupervisorChannel
from kosmos_rag.apps.worker.handlers import documents
from kosmos_rag.core.errors import DatabaseUnavailable, KosmosError
from kosmos_rag.core.types import EVERYONE, IngestFailure, Job, Outcome
from kosmos_rag.ingestion.document import DocumentProcessor, document_id
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.ingestion.state import load_preset, require_preset
from kosmos_rag.storage.documents import source_etags
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import remove_documents
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import enqueue, finish, lock_leases, permanently_failed
from kosmos_rag.storage.queue.sync_runs import add_counts, start_sync_run
from kosmos_rag.storage.tenants import TenantRef

log = logging.getLogger("kosmos_rag.apps.worker")

SLICE, SLICE_S = 500, 1.0
"""Entries looked at in one transaction, and how long listing them may take: some sources ask a server for each."""


_T = TypeVar("_T")


class _Interrupted(Exception):
    """The worker is to stop, or the job is another's."""


class SyncHandler:
    """Brings a collection up to date with a source."""

    def __init__(self, database: Database, pipeline: IngestPipeline) -> None:
        self._database = database
        self._pipeline = pipeline

    def run(self, job: Job, channel: SupervisorChannel) -> None:
        """Make one pass; the documents themselves are jobs of their own."""
        try:
            owner = TenantRef(id=job.tenant_id, name=job.tenant)
            processor = self._pipeline.processor_of(owner, job.collection)
            done = _Pass(self._database, self._pipeline, processor, job, channel)
            done.run()
        except _Interrupted:
            return channel.release([job])
        except DatabaseUnavailable as error:
            log.warning("%s", error, extra={"action": "sync_interrupted", "tenant": job.tenant, "job": job.id})
            return channel.release([job])
        except KosmosError as error:
            return documents.fail(channel, job, error)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            return documents.fail_unexpected(channel, job, error)
        log.info(
            "%d listed, %d of them to be looked at; %d removed, %d failed",
            len(done.seen), done.to_do, done.found[Outcome.REMOVED], len(done.failures),
            extra={"action": "sync_done", "tenant": job.tenant, "job": job.id, "texts": {"source": job.key}},
        )  # fmt: skip
        counts = CounterBuffer()
        for failure in done.failures:
            counts.add("listing_failures", label=failure.code)
        for outcome in (Outcome.UNCHANGED, Outcome.REMOVED):
            counts.add("documents", done.found[outcome], outcome)
        return channel.report_ended([job], counts)


class _Pass:
    """One pass over the source of a job. Each of its transactions holds the job: a pass that was given to another
    worker, or cancelled, changes nothing any more."""

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
        self.seen: set[bytes] = set()
        self.found: Counter[Outcome] = Counter()
        self.to_do = 0
        self.failures: list[IngestFailure] = []

    def run(self) -> None:
        """List, enqueue, remove, and finish the job."""
        # What comes into the collection from now on is not gone, whether the listing is old enough to miss it or not.
        stored = self._pipeline.list_sources(self._owner, self._job.collection) if self._job.payload["prune"] else {}
        with self._transaction() as connection:
            run = start_sync_run(connection, self._owner, self._job.collection, self._spec)
        listing = self._source.listing()
        for entries in _sliced(listing):
            self._enqueue(run, entries)
        failures = list(listing.failures)
        gone = {name: key for name, key in stored.items() if key.bytes not in self.seen and listing.covers(name)}
        if refusal := listing.refusal_to_prune(list(gone)):
            failures.append(refusal)
            gone = {}
        for part in _sliced(gone.values()):
            self._remove(run, part)
        with self._transaction() as connection:
            add_counts(connection, self._owner, run, failures=failures, state="working")
            finish(connection, {self._job.token: Outcome.DONE})
        self.failures += failures

    @contextmanager
    def _transaction(self) -> Iterator[psycopg.Connection]:
        self._channel.report_progress()
        if self._channel.stopping or self._channel.is_revoked(self._job):
            raise _Interrupted
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            if not lock_leases(connection, [self._job.token]):
                raise _Interrupted
            preset = load_preset(connection, self._owner.id, self._job.collection)
            require_preset(self._job.collection, self._preset_version, preset)
            yield connection

    def _enqueue(self, run: uuid.UUID, entries: Sequence[Entry]) -> None:
        """Put those entries into the queue whose mark is not the stored one."""
        owner, collection = self._owner, self._job.collection
        ids = {entry.source: document_id(owner.id, collection, entry.source) for entry in entries}
        self.seen.update(key.bytes for key in ids.values())
        with self._transaction() as connection:
            stored = source_etags(connection, owner.id, ids.values())
            work = {str(ids[entry.source]): self._payload(entry) for entry in entries}
            work = {
                key: payload
                for key, payload in work.items()
                if payload["source_etag"] is None or stored.get(payload["entry"]["source"]) != payload["source_etag"]
            }
            # A file that was broken when it was last read, and has not changed since, is not read again.
            broken = permanently_failed(
                connection, owner, {key: payload["source_etag"] for key, payload in work.items()}
            )
            failures = [
                IngestFailure(source=work[key]["entry"]["source"], code=code, message=message)
                for key, (code, message) in broken.items()
            ]
            todo = {key: payload for key, payload in work.items() if key not in broken}
            preset = self._preset_version
            enqueue(connection, owner, collection, kinds.DOCUMENT, todo, run=run, preset=preset)
            unchanged = len(ids) - len(work)
            add_counts(connection, owner, run, seen=len(ids) - len(broken), unchanged=unchanged, failures=failures)
        self.failures += failures
        self.found[Outcome.UNCHANGED] += unchanged
        self.to_do += len(todo)

    def _payload(self, entry: Entry) -> dict[str, Any]:
        # The list of addresses is left out: it may be long, and each document has its own in the locator.
        spec = {**self._spec, "urls": [entry.source]} if "urls" in self._spec else self._spec
        told = {"source": entry.source, "etag": entry.etag, "locator": dict(entry.locator)}
        return {"spec": spec, "entry": told, "source_etag": self._processor.compute_etag(entry)}

    def _remove(self, run: uuid.UUID, gone: Sequence[uuid.UUID]) -> None:
        with self._transaction() as connection:
            removed = remove_documents(connection, self._owner.id, gone, collection=self._job.collection)
            add_counts(connection, self._owner, run, seen=removed, removed=removed)
        self.found[Outcome.REMOVED] += removed


def _sliced(items: Iterable[_T]) -> Iterator[list[_T]]:
    """Cut into slices by number and by the time that it takes to have them."""
    part: list[_T] = []
    began = time.monotonic()
    for item in items:
        part.append(item)
        if len(part) == SLICE or time.monotonic() - began > SLICE_S:
            yield part
            part, began = [], time.monotonic()
    if part:
        yield part
