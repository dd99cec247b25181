"""Uploads: streams bodies into the database and enqueues their jobs.

One job is enqueued for each idempotency key.
"""

import asyncio
import contextvars
import hashlib
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ParamSpec, TypeVar

import psycopg

from kosmos_rag.apps.http.toolkit.streaming import has_room
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import KosmosError, Overloaded, RequestError
from kosmos_rag.core.types import EVERYONE, SourceDocument
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.uploads import CHUNK_BYTES, delete_uploads, require_complete, store_chunk
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import create_tenant
from kosmos_rag.storage.tenants import tenant as tenant_record

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = 2
"""Threads, and connections, that write chunks: a slow client holds neither."""
_KEY_LIFETIME = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredUpload:
    """An upload in the database, before its job."""

    id: uuid.UUID
    sha256: str
    size: int
    """Number of bytes."""


class Uploads:
    """Receives uploads, at most `service.max_uploads` at once.

    They take no slots of questions. A tenant below its share gets more; see `has_room`. An upload is written in chunks,
    so that it takes a few megabytes of memory whatever its size. Not thread-safe: for one event loop.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self._database = database
        self._limit = settings.max_uploads
        self._reserved: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kosmos-rag-upload")

    @contextmanager
    def reserve(self, tenant: str) -> Iterator[None]:
        """Reserve a place for one upload. Raises Overloaded at the limit."""
        if not has_room(self._reserved, tenant, self._limit):
            raise Overloaded(f"{self._reserved.total()} of {self._limit} uploads are being received already; try again")
        self._reserved[tenant] += 1
        try:
            yield
        finally:
            self._reserved[tenant] -= 1
            self._reserved = +self._reserved  # without tenants that have none

    async def store(self, tenant: Tenant, body: AsyncIterator[bytes]) -> StoredUpload:
        """Write a body to the database.

        What is written of one that does not end is deleted. Raises DatabaseError.
        """
        writer = _UploadWriter(self._database, tenant)
        buffer = bytearray()
        try:
            async for data in body:
                buffer += data
                while len(buffer) >= CHUNK_BYTES:
                    await self.run(writer.write, bytes(buffer[:CHUNK_BYTES]))
                    del buffer[:CHUNK_BYTES]
            if buffer or not writer.chunks:
                await self.run(writer.write, bytes(buffer))
        except BaseException:
            await self.discard(tenant, writer.id)
            raise
        return StoredUpload(id=writer.id, sha256=writer.sha256.hexdigest(), size=writer.size)

    async def discard(self, tenant: Tenant, upload_id: uuid.UUID) -> None:
        """Delete an upload without a job.

        Where that fails, maintenance deletes it a day later.
        """
        with suppress(KosmosError):
            await asyncio.shield(self.run(_delete, self._database, tenant, upload_id))

    async def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a short call in a thread for uploads."""
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: context.run(call, *args, **kwargs)
        )

    def close(self) -> None:
        """Shut down the threads without waiting for them."""
        self._threads.shutdown(wait=False)


class _UploadWriter:
    """Writes the chunks of one upload.

    Each chunk has a transaction of its own: a slow client holds none open.
    """

    def __init__(self, database: Database, tenant: Tenant) -> None:
        self._database, self._tenant = database, tenant
        self.id = uuid.uuid4()
        self.chunks = self.size = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Write the next chunk. Raises DatabaseError."""
        self.sha256.update(data)
        with self._database.worker.transaction(self._tenant.id, [EVERYONE]) as connection:
            if not self.chunks:
                create_tenant(connection, tenant_record(self._tenant.name), now=datetime.now(UTC))
            store_chunk(connection, self._tenant.id, self.id, self.chunks, data)
        self.chunks += 1
        self.size += len(data)


def _delete(database: Database, tenant: Tenant, upload_id: uuid.UUID) -> None:
    with database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        delete_uploads(connection, tenant.id, [upload_id])


def enqueue_upload(database: Database, tenant: Tenant, document: SourceDocument, upload: StoredUpload) -> uuid.UUID:
    """Enqueue a document whose bytes are stored. Returns the job's id.

    Raises SourceError, RequestError, DatabaseError.

    Args:
        database: connections.
        tenant: the tenant of the document.
        document: the document without its bytes.
        upload: the stored bytes.
    """
    with database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        return _enqueue(connection, tenant, document, upload)


def _enqueue(
    connection: psycopg.Connection, tenant: Tenant, document: SourceDocument, upload: StoredUpload
) -> uuid.UUID:
    require_complete(connection, tenant.id, upload.id, upload.size)
    return tenant.jobs.enqueue_upload(document, upload.id, connection)


def enqueue_once(
    database: Database,
    tenant: Tenant,
    document: SourceDocument,
    upload: StoredUpload,
    *,
    collection: str,
    subject: str,
    key: str | None,
) -> uuid.UUID:
    """Enqueue an uploaded document.

    Return the job that an earlier call with the key created.

    Key and job are written in one transaction. Where there is an earlier job, the upload is deleted.

    Args:
        database: where keys are stored.
        tenant: the tenant, opened with the caller's principals and collection.
        document: the document to ingest, without its bytes.
        upload: its bytes.
        collection: name of the collection, part of the request's digest.
        subject: who uploads; keys are separate for each subject.
        key: the idempotency key; None to enqueue always.

    Raises:
        RequestError: the key was used with another document, or an erasure removed bytes of the upload.
        KosmosError: SourceError, ConfigError or DatabaseError.
    """
    if key is None:
        return enqueue_upload(database, tenant, document, upload)
    now = datetime.now(UTC)
    values = {
        "tenant_id": tenant.id,
        # Separate keys for each subject: nobody learns of another's job by guessing keys.
        "key": hashlib.sha256(json.dumps([subject, key]).encode()).hexdigest(),
        "request_sha256": _digest(document, upload, collection),
        "now": now,
        "before": now - _KEY_LIFETIME,
    }
    with database.worker.transaction(tenant.id, [EVERYONE]) as connection:
        create_tenant(connection, tenant_record(tenant.name), now=now)
        connection.execute(statement("delete_expired_idempotency_keys"), values)
        if connection.execute(statement("claim_idempotency_key"), values).fetchone() is None:
            claimed = connection.execute(statement("idempotency_key"), values).fetchone()
            assert claimed is not None, "a claim fails only where the key exists"
            if claimed[0] != values["request_sha256"]:
                raise RequestError("this Idempotency-Key was used with another document; use a new one")
            delete_uploads(connection, tenant.id, [upload.id])
            existing_job: uuid.UUID = claimed[1]
            return existing_job
        job_id = _enqueue(connection, tenant, document, upload)
        connection.execute(statement("set_idempotency_key_job"), {**values, "job_id": job_id})
        return job_id


def _digest(document: SourceDocument, upload: StoredUpload, collection: str) -> str:
    fields = [
        collection,
        document.source,
        document.title,
        dict(document.metadata),
        sorted(document.acl),
        document.language,
        upload.sha256,
    ]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
