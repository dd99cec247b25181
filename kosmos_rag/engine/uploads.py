"""Uploads of one tenant: bytes in the database, and the jobs that ingest them."""

import hashlib
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, SourceDocument
from kosmos_rag.engine.arguments import name_wrong_arguments
from kosmos_rag.engine.jobs import TenantJobs
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.uploads import CHUNK_BYTES, UploadStore
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef, create_tenant

__all__ = ["CHUNK_BYTES", "StoredUpload", "TenantUploads", "UploadWriter"]

_KEY_LIFETIME = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredUpload:
    """An upload in the database, before its job."""

    id: uuid.UUID
    sha256: str
    size: int
    """Number of bytes."""


class UploadWriter:
    """Writes the chunks of one upload.

    Each chunk has a transaction of its own: a slow client holds none open.
    """

    def __init__(self, database: Database, owner: TenantRef) -> None:
        self._database = database
        self._owner = owner
        self._sha256 = hashlib.sha256()
        self.id = uuid.uuid4()
        self.chunks = self.size = 0

    def write(self, data: bytes) -> None:
        """Write the next chunk. Raises DatabaseError."""
        self._sha256.update(data)
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            if not self.chunks:
                create_tenant(connection, self._owner, now=datetime.now(UTC))
            UploadStore(connection, self._owner.id).store_chunk(self.id, self.chunks, data)
        self.chunks += 1
        self.size += len(data)

    def finish(self) -> StoredUpload:
        """Return the upload after its last chunk."""
        return StoredUpload(id=self.id, sha256=self._sha256.hexdigest(), size=self.size)


@name_wrong_arguments()
class TenantUploads:
    """The uploads of one tenant. Thread-safe."""

    def __init__(
        self, database: Database, owner: TenantRef, open_jobs: Callable[[], TenantJobs], admit: Callable[[], None]
    ) -> None:
        """Bind a tenant.

        Args:
            open_jobs: Returns its jobs, for the collection of the documents.
            admit: Raises LimitReached where the tenant or the uploader may add no more documents.
        """
        self._admit = admit
        self._database = database
        self._owner = owner
        self._open_jobs = open_jobs

    def open(self) -> UploadWriter:
        """Begin an upload; nothing is written yet. Raises LimitReached."""
        self._admit()
        return UploadWriter(self._database, self._owner)

    def read_chunk(self, upload_id: uuid.UUID, number: int) -> bytes | None:
        """Return a chunk of an upload by its position from 0; None after the last.

        Raises ConfigError, DatabaseError.
        """
        values = {"tenant_id": self._owner.id, "upload_id": upload_id, "number": number}
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            row = connection.execute(statement("read_upload_chunk"), values).fetchone()
        return None if row is None else row[0]

    def require_complete(self, upload_id: uuid.UUID, size: int, connection: psycopg.Connection) -> None:
        """Check an upload after something refers to it, and keep it until the transaction ends.

        Args:
            size: Number of bytes that were written.
            connection: A transaction of `Tenant.sessions.write`.

        Raises:
            RequestError: An erasure removed bytes of the upload.
        """
        UploadStore(connection, self._owner.id).require_complete(upload_id, size)

    def delete(self, upload_id: uuid.UUID, connection: psycopg.Connection | None = None) -> None:
        """Delete an upload without a job. Raises ConfigError, DatabaseError.

        Args:
            connection: A transaction of `Tenant.sessions.write`; None for one of its own.
        """
        if connection is not None:
            UploadStore(connection, self._owner.id).delete([upload_id])
            return
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as own_connection:
            UploadStore(own_connection, self._owner.id).delete([upload_id])

    def enqueue(self, document: SourceDocument, upload: StoredUpload, *, named_by_file: bool = False) -> uuid.UUID:
        """Enqueue a document whose bytes are stored. Returns the job's id.

        Raises SourceError, RequestError, ConfigError, DatabaseError.

        Args:
            document: The document without its bytes.
            upload: The stored bytes.
            named_by_file: Whether the source is only the name of a file, which another one may have: the job warns if
                it replaces one.
        """
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            return self._enqueue(connection, document, upload, named_by_file=named_by_file)

    def _enqueue(
        self, connection: psycopg.Connection, document: SourceDocument, upload: StoredUpload, *, named_by_file: bool
    ) -> uuid.UUID:
        jobs, warning = self._open_jobs(), None
        if named_by_file and jobs.replaces_another_upload(document.source, upload.sha256, connection):
            warning = (
                f"it replaces another {document.source}; if that is another document, upload this one with its folder "
                f"as source, such as team/{document.source}, and the other one again"
            )
        job_id = jobs.enqueue_upload(document, upload.id, connection, sha256=upload.sha256, warning=warning)
        UploadStore(connection, self._owner.id).require_complete(upload.id, upload.size)
        return job_id

    def enqueue_once(
        self,
        document: SourceDocument,
        upload: StoredUpload,
        *,
        collection: str,
        subject: str,
        key: str | None,
        named_by_file: bool = False,
    ) -> uuid.UUID:
        """Enqueue an uploaded document.

        Return the job that an earlier call with the key created.

        Key and job are written in one transaction. Where there is an earlier job, the upload is deleted.

        Args:
            document: The document to ingest, without its bytes.
            upload: Its bytes.
            collection: Name of the collection, part of the request's digest.
            subject: Who uploads; keys are separate for each subject.
            key: The idempotency key; None to enqueue always.
            named_by_file: As in `enqueue`.

        Raises:
            RequestError: The key was used with another document, or an erasure removed bytes of the upload.
            KosmosError: SourceError, ConfigError or DatabaseError.
        """
        if key is None:
            return self.enqueue(document, upload, named_by_file=named_by_file)
        now = datetime.now(UTC)
        values = {
            "tenant_id": self._owner.id,
            # Separate keys for each subject: nobody learns of another's job by guessing keys.
            "key": hashlib.sha256(json.dumps([subject, key]).encode()).hexdigest(),
            "request_sha256": _digest(document, upload, collection),
            "now": now,
            "before": now - _KEY_LIFETIME,
        }
        with self._database.worker.transaction(self._owner.id, [EVERYONE]) as connection:
            create_tenant(connection, self._owner, now=now)
            connection.execute(statement("delete_expired_idempotency_keys"), values)
            if connection.execute(statement("claim_idempotency_key"), values).fetchone() is None:
                claimed = connection.execute(statement("idempotency_key"), values).fetchone()
                assert claimed is not None, "a claim fails only where the key exists"
                if claimed[0] != values["request_sha256"]:
                    raise RequestError("this Idempotency-Key was used with another document; use a new one")
                UploadStore(connection, self._owner.id).delete([upload.id])
                existing_job: uuid.UUID = claimed[1]
                return existing_job
            job_id = self._enqueue(connection, document, upload, named_by_file=named_by_file)
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
