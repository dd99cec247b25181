"""Handler of document jobs.

It supplies the leases, outcomes and threads of the ingest pipeline.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import psycopg
from cachetools import LRUCache

from kosmos_rag.core.errors import (
    DISK_FULL,
    GONE,
    IngestionError,
    KosmosError,
    ModelUnavailable,
    RequestError,
    SourceError,
    concerns_all_tenants,
    is_disk_full,
)
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import EVERYONE, Job, Outcome, SourceDocument
from kosmos_rag.ingestion.discovery import PendingDocument
from kosmos_rag.ingestion.division import PendingPart
from kosmos_rag.ingestion.document import ChunkedDocument, document_id
from kosmos_rag.ingestion.executor import FIRST_BATCH_CHUNKS, BatchLimit
from kosmos_rag.ingestion.pipeline import IngestPipeline
from kosmos_rag.ingestion.publisher import Completion
from kosmos_rag.ingestion.report import PublishedDocument
from kosmos_rag.ingestion.sources.listing import Entry, Source
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.uploads import UploadStore
from kosmos_rag.storage.queue.writing import JobLeases
from kosmos_rag.storage.tenants import TenantRef
from kosmos_rag.worker.channel import CounterBuffer, SupervisorChannel

log = logging.getLogger("kosmos_rag.worker")

_Loaded = TypeVar("_Loaded")

BATCH_TIME_SLICE_S = 2.0
"""Seconds after which the jobs of a claim that have not started are released: another worker may be free for them, and
another tenant may be due."""
LOAD_TIMEOUT_S = 3600.0
"""Seconds that loading a document and finding its parts may take before the process counts as stuck: a file of rows may
have many gigabytes."""
EMBED_TIMEOUT_S = 60.0
"""Seconds that embedding and writing a batch may take, plus one for each chunk, before the process counts as stuck."""
SOURCE_CACHE_SIZE = 256
"""Sources that are kept open for the next jobs from them."""
SLOW_S = 0.1
"""Seconds after which a document is slow: the others do not wait for it."""
PUBLISH_THREADS = 2
"""Batches published at the same time, behind the one that is parsed: one is written while the other is embedded."""
_BATCH_CHUNKS = 1024
"""Chunks of a batch on a machine that embeds slowly: texts of one length are embedded together, and few are padded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _JobDocument:
    """The document of a job."""

    job: Job
    load_document: Callable[[Job], SourceDocument]

    @property
    def source(self) -> str:
        return source_name(self.job)

    @property
    def etag(self) -> str | None:
        return self.job.payload.get("source_etag")

    @property
    def is_listed(self) -> bool:
        return "entry" in self.job.payload

    @property
    def may_be_divided(self) -> bool:
        # A stored file is one document of a vector store.
        return "file" not in self.job.payload

    def load(self) -> SourceDocument:
        return self.load_document(self.job)

    def start_span(self) -> AbstractContextManager[None]:
        return tracing.start_entry_span("kosmos.job.document", [self.job.payload.get("traceparent")])


class _JobLeases:
    """The leases of the jobs of one claim and collection."""

    def __init__(
        self, jobs: Mapping[uuid.UUID, Job], tenant_id: uuid.UUID, channel: SupervisorChannel, deadline: float
    ) -> None:
        """Create the leases.

        Args:
            jobs: jobs by document id.
            channel: releases jobs.
            deadline: monotonic time after which no further job starts.
        """
        self._jobs = jobs
        self._tenant_id = tenant_id
        self._channel = channel
        self._deadline = deadline
        self._pending = {job.token: job for job in jobs.values()}
        self._started = 0

    def may_start(self, document: PendingDocument) -> bool:
        """Whether to start the job of a document.

        Past the deadline, release all that have not started.
        """
        job = _get_job(document)
        self._release_late()
        if self._pending.pop(job.token, None) is None or self._is_lost(job):
            return False
        self._started += 1
        return True

    def may_continue(self, document: PendingDocument) -> bool:
        """Whether to continue with the job of a document that takes long.

        If the worker stops, the job is released.
        """
        job = _get_job(document)
        self._release_late()
        if self._channel.stopping:
            self._channel.release([job])
            return False
        return not self._is_lost(job)

    def _release_late(self) -> None:
        self._channel.report_progress()
        if self._started and (self._channel.stopping or time.monotonic() > self._deadline):
            self._channel.release(list(self._pending.values()))
            self._pending.clear()

    def _is_lost(self, job: Job) -> bool:
        if is_lost := self._channel.is_revoked(job):
            self._channel.report_ended([job])
        return is_lost

    def verify(self, queue: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:
        """Lock the jobs of these documents whose leases are still valid."""
        documents = {self._jobs[key].token: key for key in document_ids}
        return {documents[token] for token in JobLeases(queue).lock(list(documents))}

    def complete(
        self, queue: psycopg.Connection, data: psycopg.Connection, completions: Mapping[uuid.UUID, Completion]
    ) -> None:
        """Finish the jobs, and delete the uploads that they read."""
        jobs = {key: self._jobs[key] for key in completions}
        outcomes = {jobs[key].token: completion.outcome for key, completion in completions.items()}
        chunks = {jobs[key].token: completion.chunks for key, completion in completions.items()}
        JobLeases(queue).finish(outcomes, chunks)
        UploadStore(data, self._tenant_id).delete(upload_ids(jobs.values()))


class _JobOutcomes:
    """Reports the outcomes of jobs to the queue and to the supervisor."""

    def __init__(self, channel: SupervisorChannel, counters: CounterBuffer) -> None:
        self._channel = channel
        self._counters = counters

    def record_published(self, published: Sequence[PublishedDocument]) -> None:
        """End the jobs of a published batch."""
        counts = CounterBuffer()
        counts.add("batches")
        for result in published:
            counts.add("documents", label=str(result.outcome))
            counts.add("chunks", result.chunks)
            counts.add("truncated_tokens", result.truncated_tokens)
        counts.update(self._counters.drain())
        self._channel.report_ended([_get_job(result.pending) for result in published], counts)

    def record_unchanged(self, documents: Sequence[PendingDocument]) -> None:
        """End the jobs of unchanged documents."""
        if documents:
            counts = CounterBuffer.from_counter("documents", len(documents), "unchanged")
            self._channel.report_ended([_get_job(document) for document in documents], counts)

    def record_gone(self, documents: Sequence[PendingDocument]) -> None:
        """End the jobs of documents that were removed after their listing."""
        if documents:
            counts = CounterBuffer.from_counter("documents", len(documents), Outcome.GONE)
            self._channel.report_ended([_get_job(document) for document in documents], counts)

    def record_empty(self, documents: Sequence[PendingDocument]) -> None:
        """End the jobs of documents without text."""
        if documents:
            counts = CounterBuffer.from_counter("documents", len(documents), Outcome.EMPTY)
            self._channel.report_ended([_get_job(document) for document in documents], counts)

    def record_failure(self, documents: Sequence[PendingDocument], error: Exception) -> None:
        """Fail the jobs, or release them.

        They are released where this machine or its connection is at fault.
        """
        jobs = [_get_job(document) for document in documents]
        if isinstance(error, IngestionError) and error.code == "lease_lost":
            self._channel.report_ended(jobs)  # the supervisor counts those
        elif concerns_all_tenants(error):
            self._channel.release(jobs)
        elif isinstance(error, ModelUnavailable):
            # Without its model this machine can run no job: the process exits, and others take the jobs.
            self._channel.release(jobs)
            self._channel.fatal_error = error
        else:
            for job in jobs:
                if isinstance(error, KosmosError):
                    fail(self._channel, job, error)
                else:
                    fail_unexpected(self._channel, job, error)

    def record_removed(self, documents: Sequence[PendingDocument]) -> None:
        """Log that the stored version of failed documents was removed."""
        for document in documents:
            job = _get_job(document)
            log.warning(
                "a document is removed: everyone could still read its old version",
                extra={
                    "action": "document_removed", "tenant": job.tenant, "job": str(job.id),
                    "texts": {"source": document.source},
                },
            )  # fmt: skip


class _PublishThreads:
    """Publishes batches behind the thread that parses."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(PUBLISH_THREADS)
        self._pool = ThreadPoolExecutor(PUBLISH_THREADS, thread_name_prefix="kosmos-rag-publish")
        self._last: Future[None] | None = None
        self.size = BatchLimit(_BATCH_CHUNKS)

    @property
    def idle(self) -> bool:
        return self._last is None or self._last.done()

    def submit(self, task: Callable[[], None]) -> None:
        """Run a task in the background; waits for a free thread."""
        self._slots.acquire()
        self._last = self._pool.submit(task)
        self._last.add_done_callback(lambda _: self._slots.release())

    def close(self) -> None:
        self._pool.shutdown()


class _ProcessThreads:
    """Processes documents, and a slow one at the same time.

    Used by one thread.
    """

    def __init__(self, limit_s: float) -> None:
        """Args: limit_s: seconds after which the others wait for the slow one."""
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="kosmos-rag-process")
        self._limit_s = limit_s
        self._slow: Future[ChunkedDocument] | None = None
        self._slow_since = 0.0

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        """Process a document, and wait for it for `SLOW_S`.

        Wait longer while another slow one is processed.
        """
        future = self._pool.submit(copy_context().run, work)
        wait([future], SLOW_S)
        if self._slow is not None:
            # Where it never ends, this process makes no progress, and the supervisor replaces it.
            overdue = time.monotonic() > self._slow_since + self._limit_s
            if overdue or not future.done():
                wait([self._slow] if overdue else [self._slow, future], return_when=FIRST_COMPLETED)
            if self._slow.done():
                self._slow = None
        if not future.done():
            self._slow, self._slow_since = future, time.monotonic()
        return future

    def close(self) -> None:
        """Wait until all documents are processed."""
        self._pool.shutdown()


@dataclass(frozen=True, kw_only=True, slots=True)
class _BackgroundExecutor:
    """Loads documents, and publishes batches in the background, with a heartbeat."""

    processing: _ProcessThreads
    threads: _PublishThreads
    channel: SupervisorChannel

    def load(self, work: Callable[[], _Loaded]) -> _Loaded:
        with self.channel.heartbeat(LOAD_TIMEOUT_S):
            return work()

    def process(self, work: Callable[[], ChunkedDocument]) -> Future[ChunkedDocument]:
        return self.processing.process(work)

    @property
    def batch_chunks(self) -> int:
        # The model must not wait for a whole batch to be parsed.
        return FIRST_BATCH_CHUNKS if self.threads.idle else self.threads.size.chunks

    def submit(self, documents: Sequence[PendingDocument], chunks: int, publish: Callable[[], None]) -> None:
        traceparents = [_get_job(document).payload.get("traceparent") for document in documents]

        def run() -> None:
            with (
                tracing.start_entry_span("kosmos.job.publish", traceparents),
                self.channel.heartbeat(EMBED_TIMEOUT_S + chunks),
                self.threads.size.measure(chunks),
            ):
                publish()

        self.threads.submit(run)


class DocumentHandler:
    """Ingests the documents of jobs, of any tenant.

    One thread loads, two parse: one document after the other, and a slow one at the same time. `PUBLISH_THREADS`
    publish.
    """

    def __init__(self, database: Database, pipeline: IngestPipeline, counters: CounterBuffer) -> None:
        self._database = database
        self._pipeline = pipeline
        self._counters = counters
        self._processing = _ProcessThreads(pipeline.settings.worker.stuck_s)
        self._threads = _PublishThreads()
        self._sources: LRUCache[str, Source] = LRUCache(SOURCE_CACHE_SIZE)

    def run(self, jobs: Sequence[Job], channel: SupervisorChannel, deadline: float) -> None:
        """Work on jobs.

        Args:
            jobs: jobs of any tenants and collections.
            channel: reports outcomes, releases jobs.
            deadline: monotonic time after which no further job starts.

        Returns when the last batch has been handed to a publishing thread; a slow document may still be processed.
        """
        by_batch = sorted(jobs, key=_batch_key)
        for (tenant_id, collection, preset_version, subject), group in groupby(by_batch, key=_batch_key):
            claimed = list(group)
            leases = {document_id(tenant_id, collection, source_name(job)): job for job in claimed}
            self._pipeline.run(
                TenantRef(id=tenant_id, name=claimed[0].tenant),
                collection,
                [_JobDocument(job=job, load_document=self._load) for job in claimed],
                preset_version=preset_version or None,
                subject=subject or None,
                lease=_JobLeases(leases, tenant_id, channel, deadline),
                recorder=_JobOutcomes(channel, self._counters),
                executor=_BackgroundExecutor(processing=self._processing, threads=self._threads, channel=channel),
            )

    def close(self) -> None:
        """Wait until all documents are processed and published."""
        self._processing.close()
        self._threads.close()

    def _load(self, job: Job) -> SourceDocument:
        # An upload is deleted with its job; a stored file stays.
        if stored := job.payload.get("upload") or job.payload.get("file"):
            fields = job.payload["document"]
            try:
                with self._database.worker.transaction(job.tenant_id, [EVERYONE]) as connection:
                    data = UploadStore(connection, job.tenant_id).read(uuid.UUID(stored))
            except SourceError as error:
                if "upload" not in job.payload:
                    raise
                # An upload is deleted with the publication of its document. On a cluster the job is committed after it:
                # a crash in between repeats a job whose document is stored.
                raise SourceError(GONE, f"upload {stored} was deleted when its document was published") from error
            return SourceDocument(**{**fields, "acl": tuple(fields["acl"])}, data=data)
        return self._source(job.payload["spec"]).load(Entry(**job.payload["entry"]))

    def _source(self, spec: Mapping[str, Any]) -> Source:
        # A source may have an open client, and thousands of jobs come from one source.
        key = json.dumps(spec, sort_keys=True)
        if key not in self._sources:
            self._sources[key] = create_source(spec, self._pipeline.settings.ingestion)
        return self._sources[key]


def _batch_key(job: Job) -> tuple[uuid.UUID, str, str, str]:
    """Return the key of jobs that are ingested together.

    It consists of tenant, collection, version of the preset, and the key that is charged.
    """
    return job.tenant_id, job.collection, job.payload.get("preset", ""), job.payload.get("subject", "")


def _get_job(document: PendingDocument) -> Job:
    pending = document.file if isinstance(document, PendingPart) else document
    assert isinstance(pending, _JobDocument)
    return pending.job


def upload_ids(jobs: Iterable[Job]) -> list[uuid.UUID]:
    """Return the ids of the uploads that jobs read."""
    return [uuid.UUID(job.payload["upload"]) for job in jobs if "upload" in job.payload]


def fail(channel: SupervisorChannel, job: Job, error: KosmosError) -> None:
    """Record a failed job, and retry it if that may help.

    Args:
        channel: the supervisor's channel.
        error: why it failed.
    """
    if is_disk_full(error):
        error = IngestionError(DISK_FULL, str(error))
    code = error.code if isinstance(error, IngestionError) else type(error).__name__
    # A fault of the document stays; a model or a server may be available again.
    retry = error.retryable if isinstance(error, IngestionError) else not isinstance(error, RequestError)
    log.log(
        logging.ERROR if code == DISK_FULL else logging.WARNING, "job %s failed: %s", job.id, code,
        extra={
            "action": "job_failed", "tenant": job.tenant, "job": str(job.id), "attempt": job.attempt, "code": code,
            "texts": {"source": source_name(job), "error": str(error)},
        },
    )  # fmt: skip
    channel.retry_until_available(lambda: channel.queue.fail(job, error, source=source_name(job), retry=retry))
    counts = CounterBuffer.from_counter("failures", 1, code)
    if job.kind in kinds.PASSES:
        counts.add("listing_failures", label=code)
    channel.report_ended([job], counts)


def fail_unexpected(channel: SupervisorChannel, job: Job, error: Exception) -> None:
    """Record an error that is a bug.

    The job is retried, and the log has the traceback.

    Args:
        channel: the supervisor's channel.
    """
    if is_disk_full(error):
        return fail(channel, job, IngestionError(DISK_FULL, f"{error}; make room on the disk of the worker"))
    log.error(
        "job %s raised an unexpected error", job.id, exc_info=error,
        extra={
            "action": "job_error", "tenant": job.tenant, "job": str(job.id), "texts": {"source": source_name(job)},
        },
    )  # fmt: skip
    return fail(channel, job, IngestionError("internal", f"{type(error).__name__}: {error}; the worker's log has more"))


def source_name(job: Job) -> str:
    """Return the source name of a job's document.

    The job's key where it has no document.
    """
    document = job.payload.get("entry") or job.payload.get("document") or {}
    return str(document.get("source", job.key))
