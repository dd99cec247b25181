"""Uploads: spools the body to a file, and enqueues one job for each idempotency key."""

import asyncio
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import EVERYONE, SourceDocument
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import create_tenant
from kosmos_rag.storage.tenants import tenant as tenant_record

_IN_MEMORY = 1 << 20
_KEY_LIFETIME = timedelta(days=1)


async def spool_body(chunks: AsyncIterator[bytes]) -> BinaryIO:
    """Write a body to a temporary file and return it, rewound; small bodies stay in memory."""
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 — the caller closes it
    try:
        async for chunk in chunks:
            if file.tell() + len(chunk) > _IN_MEMORY:
                await asyncio.to_thread(file.write, chunk)
            else:
                file.write(chunk)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file  # type: ignore[return-value]  # a file of bytes


def enqueue_once(
    database: Database, tenant: Tenant, document: SourceDocument, *, collection: str, subject: str, key: str | None
) -> int:
    """Enqueue a document; return the job that an earlier call with the key created.

    Key and job are written in one transaction.

    Args:
        database: where keys are stored.
        tenant: the tenant, opened with the caller's principals and collection.
        document: the document to ingest.
        collection: name of the collection, part of the request's digest.
        subject: who uploads; keys are separate for each subject.
        key: the idempotency key; None to enqueue always.

    Raises:
        RequestError: the key was used with another document.
        KosmosError: SourceError, ConfigError or DatabaseError.
    """
    if key is None:
        return tenant.jobs.enqueue(document)
    now = datetime.now(UTC)
    values = {
        "tenant_id": tenant.id,
        # Separate keys for each subject: nobody learns of another's job by guessing keys.
        "key": hashlib.sha256(json.dumps([subject, key]).encode()).hexdigest(),
        "request_sha256": _digest(document, collection),
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
            existing_job: int = claimed[1]
            return existing_job
        job_id = tenant.jobs.enqueue(document, connection=connection)
        connection.execute(statement("set_idempotency_key_job"), {**values, "job_id": job_id})
        return job_id


def _digest(document: SourceDocument, collection: str) -> str:
    fields = [
        collection,
        document.source,
        document.title,
        dict(document.metadata),
        sorted(document.acl),
        document.language,
        hashlib.sha256(document.data).hexdigest(),
    ]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
