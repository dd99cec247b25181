"""Uploads on their way to a job: a file while they come in, one job however often they are sent."""

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
from kosmos_rag.storage.tenants import create_tenant, tenant

_IN_MEMORY = 1 << 20
_KEPT = timedelta(days=1)


async def spooled(pieces: AsyncIterator[bytes]) -> BinaryIO:
    """Write a body to a temporary file as it comes, and return the file at its beginning."""
    file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 — the caller closes it
    try:
        async for piece in pieces:
            if file.tell() + len(piece) > _IN_MEMORY:
                await asyncio.to_thread(file.write, piece)
            else:
                file.write(piece)
    except BaseException:
        file.close()
        raise
    file.seek(0)
    return file  # type: ignore[return-value]  # of bytes, as it was opened


def enqueue_once(
    database: Database, scope: Tenant, document: SourceDocument, *, collection: str, subject: str, key: str | None
) -> int:
    """Put a document into the scope's queue and return its job; under a key that came before, the job of then.

    Key, upload and job are written in one transaction. Raises RequestError where the key came with another document,
    SourceError, ConfigError, DatabaseError.
    """
    if key is None:
        return scope.jobs.enqueue(document)
    now = datetime.now(UTC)
    values = {
        "tenant_id": scope.id,
        # Of each subject its own: nobody learns of another's job by guessing keys.
        "key": hashlib.sha256(json.dumps([subject, key]).encode()).hexdigest(),
        "request_sha256": _digest(document, collection),
        "now": now,
        "before": now - _KEPT,
    }
    with database.worker.transaction(scope.id, [EVERYONE]) as connection:
        create_tenant(connection, tenant(scope.name), now=now)
        connection.execute(statement("delete_expired_idempotency_keys"), values)
        if connection.execute(statement("claim_idempotency_key"), values).fetchone() is None:
            before = connection.execute(statement("idempotency_key"), values).fetchone()
            assert before is not None, "it was in the way of the claim"
            if before[0] != values["request_sha256"]:
                raise RequestError("the Idempotency-Key came with another document before; use a new one")
            known: int = before[1]
            return known
        job_id = scope.jobs.enqueue(document, connection=connection)
        connection.execute(statement("set_idempotency_key_job"), {**values, "job_id": job_id})
        return job_id


def _digest(document: SourceDocument, collection: str) -> str:
    told = [
        collection,
        document.source,
        document.title,
        dict(document.metadata),
        sorted(document.acl),
        document.language,
        hashlib.sha256(document.data).hexdigest(),
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
