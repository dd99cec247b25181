"""Uploaded files, in chunks, until a job ingests them."""

import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import psycopg

from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.storage.sql import statement

CHUNK_BYTES = 1 << 20
"""Bytes of a row: what a process holds of an upload that it writes or reads."""


def store_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, data: bytes) -> uuid.UUID:
    """Store bytes for a job, and return the upload's id.

    In the caller's transaction.
    """
    upload_id = uuid.uuid4()
    for number, start in enumerate(range(0, max(1, len(data)), CHUNK_BYTES)):
        store_chunk(connection, tenant_id, upload_id, number, data[start : start + CHUNK_BYTES])
    return upload_id


def store_chunk(
    connection: psycopg.Connection, tenant_id: uuid.UUID, upload_id: uuid.UUID, number: int, data: bytes
) -> None:
    """Store a chunk of an upload in the caller's transaction.

    Args:
        connection: a transaction of the worker role.
        tenant_id: the tenant; its row exists.
        number: position of the chunk, from 0.
        data: at most `CHUNK_BYTES`.
    """
    values = {
        "tenant_id": tenant_id,
        "upload_id": upload_id,
        "number": number,
        "data": data,
        "now": datetime.now(UTC),
    }
    connection.execute(statement("store_upload_chunk"), values)


def read_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_id: uuid.UUID) -> bytes:
    """Return the bytes of an upload.

    Raises:
        SourceError: the upload is no longer stored; code `not_found`.
    """
    values = {"tenant_id": tenant_id, "upload_id": upload_id}
    # Row by row: all rows at once would be in memory twice, and as text four times.
    rows = connection.cursor().stream(statement("read_upload"), values, binary=True)
    chunks = [data for (data,) in rows]
    if not chunks:
        raise SourceError("not_found", f"upload {upload_id} is no longer stored; send the document again")
    return b"".join(chunks)


def require_complete(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_id: uuid.UUID, size: int) -> None:
    """Check an upload before something refers to it.

    An erasure removes what nothing refers to, also the chunks of an upload that is arriving.

    Args:
        connection: a transaction of the worker role.
        size: number of bytes that were written.

    Raises:
        RequestError: bytes are missing.
    """
    values = {"tenant_id": tenant_id, "upload_id": upload_id}
    if connection.execute(statement("size_of_upload"), values).fetchone() != (size,):
        raise RequestError("an erasure removed a part of the upload while it arrived; send it again")


def delete_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_ids: Collection[uuid.UUID]) -> None:
    """Delete uploads in the caller's transaction."""
    if upload_ids:
        values = {"tenant_id": tenant_id, "upload_ids": list(upload_ids)}
        connection.execute(statement("delete_uploads"), values)


def find_abandoned_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, *, age: timedelta) -> list[uuid.UUID]:
    """Return the uploads older than `age` that nothing refers to."""
    values = {"tenant_id": tenant_id, "before": datetime.now(UTC) - age}
    old = {key for (key,) in connection.execute(statement("uploads_before"), values).fetchall()}
    in_use = {key for (key,) in connection.execute(statement("uploads_in_use"), values).fetchall()} if old else set()
    if waiting := old - in_use:
        stored = connection.execute(statement("stored_files"), {"tenant_id": tenant_id, "file_ids": list(waiting)})
        waiting -= {key for (key,) in stored.fetchall()}
    return sorted(waiting)
