"""Uploads: bytes that wait in the database for the job that ingests them."""

import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import psycopg

from kosmos_rag.core.errors import SourceError
from kosmos_rag.storage.sql import statement


def store_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, data: bytes) -> uuid.UUID:
    """Keep bytes for a job, in the caller's transaction. Returns the id that the job finds them by."""
    upload_id = uuid.uuid4()
    values = {"tenant_id": tenant_id, "upload_id": upload_id, "data": data, "now": datetime.now(UTC)}
    connection.execute(statement("store_upload"), values)
    return upload_id


def read_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_id: uuid.UUID) -> bytes:
    """Return the bytes of an upload. Raises SourceError, code `not_found`."""
    values = {"tenant_id": tenant_id, "upload_id": upload_id}
    row = connection.execute(statement("read_upload"), values).fetchone()
    if row is None:
        raise SourceError("not_found", f"upload {upload_id} is no longer stored; send the document again")
    data: bytes = row[0]
    return data


def delete_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_ids: Collection[uuid.UUID]) -> None:
    """Remove uploads, in the caller's transaction."""
    if upload_ids:
        values = {"tenant_id": tenant_id, "upload_ids": list(upload_ids)}
        connection.execute(statement("delete_uploads"), values)


def abandoned_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, *, age: timedelta) -> list[uuid.UUID]:
    """Return the uploads older than that which no job will read any more."""
    values = {"tenant_id": tenant_id, "before": datetime.now(UTC) - age}
    old = {key for (key,) in connection.execute(statement("uploads_before"), values).fetchall()}
    used = {key for (key,) in connection.execute(statement("uploads_in_use"), values).fetchall()} if old else set()
    return sorted(old - used)
