"""Jobs about one document each: load, parse and chunk, then embed, publish and finish while the next are parsed."""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import psycopg
from cachetools import LRUCache

from kosmos_rag.apps.worker.channel import CounterBuffer, Desk
from kosmos_rag.core.errors import DatabaseUnavailable, IngestionError, KosmosError, ModelUnavailable, RequestError
from kosmos_rag.core.telemetry import tracing
from kosmos_rag.core.types import EVERYONE, Job, Outcome, SourceDocument
from kosmos_rag.ingestion.acl import remove_unauthorised
from kosmos_rag.ingestion.document import ChunkedDocument, document_id
from kosmos_rag.ingestion.pipeline import BATCH_CHUNKS, Ingestor
from kosmos_rag.ingestion.publisher import Publisher
from kosmos_rag.ingestion.sources.listing import Entry, Source
from kosmos_rag.ingestion.sources.registry import create_source
from kosmos_rag.storage.documents import update_source_etags
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.publish import PreparedDocument
from kosmos_rag.storage.queue.queue import finish, lock_leases
from kosmos_rag.storage.queue.uploads import delete_uploads, read_upload
from kosmos_rag.storage.tenants import TenantRef

log = logging.getLogger("kosmos_rag.apps.worker")

TURN_S = 2.0
"""How long a batch is worked on before the rest of it goes back to the queue: another worker may be free for it, and
another tenant's turn may have come."""
EMBEDDING_S = 60.0
"""How long a batch may take to embed and store, and a second more for each chunk, before it counts as stuck."""
KEPT = 256
"""Publishers and sources that are kept for the next jobs of theirs."""
FIRST_CHUNKS = BATCH_CHUNKS // 8
"""What is sent while nothing is on its way: the model must not wait until a whole batch has been parsed."""
PUBLISHING = 2
"""Batches embedded or stored at once beside the one that is parsed: one stores while the other embeds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ready:
    """A job whose document waits to be published."""

    job: Job
    document: ChunkedDocument
    outcome: Outcome


class _JobFence:
    """Publishes those documents whose jobs are still ours, and finishes the jobs with them."""

    def __init__(self, tenant_id: uuid.UUID, ready: Sequence[_Ready]) -> None:
        self._tenant_id = tenant_id
        self._ready = {one.document.id: one for one in ready}

    def hold(self, connection: psycopg.Connection, document_ids: Sequence[uuid.UUID]) -> Collection[uuid.UUID]:
        """Return the documents whose jobs are still ours, and keep them so."""
        tokens = {self._ready[key].job.token: key for key in document_ids}
        return {tokens[token] for token in lock_leases(connection, list(tokens))}

    def settle(self, connection: psycopg.Connection, documents: Sequence[PreparedDocument]) -> None:
        """Finish the jobs of documents that were written."""
        done = [self._ready[document.id] for document in documents]
        chunks = {one.job.token: len(one.document.chunks) for one in done}
        finish(connection, {one.job.token: one.outcome for one in done}, chunks)
        delete_uploads(connection, self._tenant_id, uploads_of(one.job for one in done))


class DocumentWork:
    """Works on documents of any tenant. One thread parses; up to `PUBLISHING` batches are on their way behind it."""

    def __init__(
        self,
        database: Database,
        ingestor: Ingestor,
        ingestor_of: Callable[[TenantRef, str], Ingestor],
        counters: CounterBuffer,
    ) -> None:
        self._database = database
        self._counters = counters
        self._ingestor = ingestor
        self._ingestor_of = ingestor_of
        self._places = threading.Semaphore(PUBLISHING)
        self._last: Future[None] | None = None
        self._pool = ThreadPoolExecutor(PUBLISHING, thread_name_prefix="kosmos-rag-publish")
        self._publishers: LRUCache[tuple[uuid.UUID, str], Publisher] = LRUCache(KEPT)
        self._sources: LRUCache[str, Source] = LRUCache(KEPT)

    def run(self, jobs: Sequence[Job], desk: Desk, until: float) -> None:
        """Work on jobs until then; returns when the last of them is on its way to be published."""
        corpora = sorted(jobs, key=lambda job: (job.tenant_id, job.collection))
        for _, group in groupby(corpora, key=lambda job: (job.tenant_id, job.collection)):
            self._corpus(list(group), desk, until)

    def close(self) -> None:
        """Wait for what is on its way."""
        self._pool.shutdown()

    def _corpus(self, jobs: Sequence[Job], desk: Desk, until: float) -> None:
        """Work on jobs of one collection."""
        first = jobs[0]
        owner = TenantRef(id=first.tenant_id, name=first.tenant)
        try:
            ingestor = self._ingestor_of(owner, first.collection)
            publisher = self._publisher(owner, first.collection)
            ids = {job.token: document_id(owner.id, job.collection, _source_name(job)) for job in jobs}
            stored = ingestor.fingerprints(owner, list(ids.values()))
            languages = publisher.languages
        except DatabaseUnavailable:
            return desk.give_back(jobs)
        except ModelUnavailable as error:
            return _broken(desk, jobs, error)
        except KosmosError as error:
            return _fail_all(desk, jobs, error)
        ready: list[_Ready] = []
        unchanged: dict[uuid.UUID, Job] = {}
        for number, job in enumerate(jobs):
            if number and (desk.stopping or time.monotonic() > until):
                desk.give_back(jobs[number:])
                break
            key = ids[job.token]
            with tracing.start_entry_span("kosmos.job.document", [job.payload.get("traceparent")]):
                found = self._prepared(ingestor, owner, job, key, stored.get(key), languages, desk)
            if isinstance(found, _Ready):
                ready.append(found)
            elif found is Outcome.UNCHANGED:
                unchanged[key] = job
            desk.progress()
            idle = self._last is None or self._last.done()
            if sum(len(one.document.chunks) for one in ready) >= (FIRST_CHUNKS if idle else BATCH_CHUNKS):
                self._send(publisher, owner, ready, desk)
                ready = []
        self._send(publisher, owner, ready, desk)
        self._finish_unchanged(owner, first.collection, unchanged, desk)
        return None

    def _prepared(
        self,
        ingestor: Ingestor,
        owner: TenantRef,
        job: Job,
        key: uuid.UUID,
        stored: str | None,
        languages: Sequence[str],
        desk: Desk,
    ) -> _Ready | Outcome | None:
        """Load and chunk the document of a job. None: the job has ended here."""
        if desk.is_dropped(job):
            desk.ended([job])
            return None
        try:
            document = self._load(owner, job)
            if stored == ingestor.fingerprint(document):
                return Outcome.UNCHANGED
            chunked = ingestor.process_document(key, document, languages, mark=job.payload.get("source_etag"))
            return _Ready(job=job, document=chunked, outcome=Outcome.CHANGED if stored else Outcome.NEW)
        except DatabaseUnavailable:
            desk.give_back([job])
        except KosmosError as error:
            self._fail(ingestor, owner, job, key, error, desk)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            fail_unexpected(desk, job, error)
        return None

    def _fail(
        self, ingestor: Ingestor, owner: TenantRef, job: Job, key: uuid.UUID, error: KosmosError, desk: Desk
    ) -> None:
        """Record that a job failed; what is stored of its document goes where it would stay open to all."""
        access = ingestor.settings.rag.access
        if access.department_from is not None:
            try:
                with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
                    failed = {key: _code(error)} if lock_leases(connection, [job.token]) else {}
                    gone = remove_unauthorised(connection, owner.id, failed, access, collection=job.collection)
            except DatabaseUnavailable:
                return desk.give_back([job])
            except KosmosError as refused:
                return fail(desk, job, refused)
            if gone:
                log.warning(
                    "a document is removed: it would have stayed open to all",
                    extra={
                        "action": "document_withdrawn", "tenant": job.tenant, "job": job.id,
                        "texts": {"source": _source_name(job)},
                    },
                )  # fmt: skip
        return fail(desk, job, error)

    def _publisher(self, owner: TenantRef, collection: str) -> Publisher:
        key = (owner.id, collection)
        if key not in self._publishers:
            self._publishers[key] = self._ingestor.publisher(owner, collection)
        return self._publishers[key]

    def _load(self, owner: TenantRef, job: Job) -> SourceDocument:
        if "upload" in job.payload:
            told = job.payload["document"]
            with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
                data = read_upload(connection, owner.id, uuid.UUID(job.payload["upload"]))
            return SourceDocument(**{**told, "acl": tuple(told["acl"])}, data=data)
        document = self._source(job.payload["spec"]).load(Entry(**job.payload["entry"]))
        self._ingestor.check(document)
        return document

    def _source(self, spec: Mapping[str, Any]) -> Source:
        # Opening one may take a client of its own, and thousands of jobs come from one source.
        key = json.dumps(spec, sort_keys=True)
        if key not in self._sources:
            self._sources[key] = create_source(spec, self._ingestor.settings.ingestion)
        return self._sources[key]

    def _send(self, publisher: Publisher, owner: TenantRef, ready: Sequence[_Ready], desk: Desk) -> None:
        if not ready:
            return
        self._places.acquire()
        self._last = self._pool.submit(self._publish, publisher, owner, list(ready), desk)
        self._last.add_done_callback(lambda _: self._places.release())

    def _publish(self, publisher: Publisher, owner: TenantRef, ready: Sequence[_Ready], desk: Desk) -> None:
        with tracing.start_entry_span("kosmos.job.publish", [one.job.payload.get("traceparent") for one in ready]):
            self._publish_batch(publisher, owner, ready, desk)

    def _publish_batch(self, publisher: Publisher, owner: TenantRef, ready: Sequence[_Ready], desk: Desk) -> None:
        counts = CounterBuffer()
        left = {one.document.id: one for one in ready}
        fence = _JobFence(owner.id, ready)
        try:
            with desk.heartbeat(EMBEDDING_S + sum(len(one.document.chunks) for one in ready)):
                for document, error in publisher.publish([one.document for one in ready], fence=fence):
                    one = left.pop(document.id)
                    if error is None:
                        counts.add("documents", label=str(one.outcome))
                        counts.add("chunks", len(document.chunks))
                        counts.add("truncated_tokens", document.truncated_tokens)
                    elif error.code != "lease_lost":  # the supervisor counts those
                        fail(desk, one.job, error)
        except DatabaseUnavailable:
            desk.give_back([one.job for one in left.values()])
        except ModelUnavailable as error:
            _broken(desk, [one.job for one in left.values()], error)
        except KosmosError as error:
            _fail_all(desk, [one.job for one in left.values()], error)
        except Exception as error:  # noqa: BLE001 — logged, and the worker goes on
            for one in left.values():
                fail_unexpected(desk, one.job, error)
        counts.add("batches")
        counts.update(self._counters.take())
        desk.ended([one.job for one in ready], counts)

    def _finish_unchanged(
        self, owner: TenantRef, collection: str, unchanged: Mapping[uuid.UUID, Job], desk: Desk
    ) -> None:
        if not unchanged:
            return None
        try:
            with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
                held = lock_leases(connection, [job.token for job in unchanged.values()])
                ours = {key: job for key, job in unchanged.items() if job.token in held}
                etags = {key: job.payload["source_etag"] for key, job in ours.items() if job.payload.get("source_etag")}
                update_source_etags(connection, owner.id, etags, collection=collection)
                finish(connection, {job.token: Outcome.UNCHANGED for job in ours.values()})
                delete_uploads(connection, owner.id, uploads_of(ours.values()))
        except DatabaseUnavailable:
            return desk.give_back(list(unchanged.values()))
        except KosmosError as error:
            return _fail_all(desk, unchanged.values(), error)
        return desk.ended(unchanged.values(), CounterBuffer.of("documents", len(ours), "unchanged"))


def _broken(desk: Desk, jobs: Sequence[Job], error: ModelUnavailable) -> None:
    """Leave the work to others: without its model this machine can do none of it."""
    desk.give_back(jobs)
    desk.broken = error


def _fail_all(desk: Desk, jobs: Iterable[Job], error: KosmosError) -> None:
    for job in jobs:
        fail(desk, job, error)


def uploads_of(jobs: Iterable[Job]) -> list[uuid.UUID]:
    """Return the ids of the uploads that jobs are about."""
    return [uuid.UUID(job.payload["upload"]) for job in jobs if "upload" in job.payload]


def fail(desk: Desk, job: Job, error: KosmosError) -> None:
    """Record that a job failed, to be tried again where that may help."""
    code = _code(error)
    # What is wrong with a document stays wrong; a model or a server that is away comes back.
    retry = error.retryable if isinstance(error, IngestionError) else not isinstance(error, RequestError)
    log.warning(
        "job %d failed: %s", job.id, code,
        extra={
            "action": "job_failed", "tenant": job.tenant, "job": job.id, "attempt": job.attempt, "code": code,
            "texts": {"source": _source_name(job), "error": str(error)},
        },
    )  # fmt: skip
    desk.insist(lambda: desk.queue.fail(job, error, source=_source_name(job), retry=retry))
    desk.ended([job], CounterBuffer.of("failures", 1, code))


def fail_unexpected(desk: Desk, job: Job, error: Exception) -> None:
    """Record a fault of ours: the job is tried again, and the log has where it happened."""
    log.exception(
        "job %d broke", job.id,
        extra={
            "action": "job_broke", "tenant": job.tenant, "job": job.id, "texts": {"source": _source_name(job)},
        },
    )  # fmt: skip
    fail(desk, job, IngestionError("internal", f"{type(error).__name__}: {error}; the worker's log has more"))


def _code(error: KosmosError) -> str:
    return error.code if isinstance(error, IngestionError) else type(error).__name__


def _source_name(job: Job) -> str:
    told = job.payload.get("entry") or job.payload.get("document") or {}
    return str(told.get("source", job.key))
