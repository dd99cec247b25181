"""Uploads: bytes that the database keeps until a job ingests them."""

import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import psycopg

from kosmos_rag.core.errors import SourceError
from kosmos_rag.storage.sql import statement


def store_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, data: bytes) -> uuid.UUID:
    """Store bytes for a job, and return the upload's id.

    In the caller's transaction.
    """
    upload_id = uuid.uuid4()
    values = {"tenant_id": tenant_id, "upload_id": upload_id, "data": data, "now": datetime.now(UTC)}
    connection.execute(statement("store_upload"), values)
    return upload_id


def read_upload(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_id: uuid.UUID) -> bytes:
    """Return the bytes of an upload.

    Raises:
        SourceError: the upload is no longer stored; code `not_found`.
    """
    values = {"tenant_id": tenant_id, "upload_id": upload_id}
    row = connection.execute(statement("read_upload"), values).fetchone()
    if row is None:
        raise SourceError("not_found", f"upload {upload_id} is no longer stored; send the document again")
    data: bytes = row[0]
    return data


def delete_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, upload_ids: Collection[uuid.UUID]) -> None:
    """Delete uploads in the caller's transaction."""
    if upload_ids:
        values = {"tenant_id": tenant_id, "upload_ids": list(upload_ids)}
        connection.execute(statement("delete_uploads"), values)


def abandoned_uploads(connection: psycopg.Connection, tenant_id: uuid.UUID, *, age: timedelta) -> list[uuid.UUID]:
    """Return the uploads older than `age` that no job refers to."""
    values = {"tenant_id": tenant_id, "before": datetime.now(UTC) - age}
    old = {key for (key,) in connection.execute(statement("uploads_before"), values).fetchall()}
    used = {key for (key,) in connection.execute(statement("uploads_in_use"), values).fetchall()} if old else set()
    return sorted(old - used)
