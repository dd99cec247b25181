"""Uploaded files, in chunks, until a job ingests them."""

import uuid
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import LiteralString

import psycopg

from kosmos_rag.core.errors import RequestError, SourceError
from kosmos_rag.storage.sql import statement

CHUNK_BYTES = 1 << 20
"""Bytes of a row: what a process holds of an upload that it writes or reads."""


class UploadStore:
    """The uploads of a tenant, in the caller's transaction."""

    def __init__(self, connection: psycopg.Connection, tenant_id: uuid.UUID) -> None:
        """Create the store of a transaction of the worker role. The row of the tenant exists."""
        self._connection = connection
        self._tenant_id = tenant_id

    def store(self, data: bytes) -> uuid.UUID:
        """Store bytes for a job, and return the upload's id."""
        upload_id = uuid.uuid4()
        for number, start in enumerate(range(0, max(1, len(data)), CHUNK_BYTES)):
            self.store_chunk(upload_id, number, data[start : start + CHUNK_BYTES])
        return upload_id

    def store_chunk(self, upload_id: uuid.UUID, number: int, data: bytes) -> None:
        """Store a chunk of an upload.

        Args:
            number: Position of the chunk, from 0.
            data: At most `CHUNK_BYTES`.
        """
        values = {
            "tenant_id": self._tenant_id,
            "upload_id": upload_id,
            "number": number,
            "data": data,
            "now": datetime.now(UTC),
        }
        self._connection.execute(statement("store_upload_chunk"), values)

    def read(self, upload_id: uuid.UUID) -> bytes:
        """Return the bytes of an upload.

        Raises:
            SourceError: the upload is no longer stored; code `not_found`.
        """
        values = {"tenant_id": self._tenant_id, "upload_id": upload_id}
        # Row by row: all rows at once would be in memory twice, and as text four times.
        rows = self._connection.cursor().stream(statement("read_upload"), values, binary=True)
        chunks = [data for (data,) in rows]
        if not chunks:
            raise SourceError("not_found", f"upload {upload_id} is no longer stored; send the document again")
        return b"".join(chunks)

    def require_complete(self, upload_id: uuid.UUID, size: int) -> None:
        """Check an upload after something refers to it, and keep it until the transaction ends.

        An erasure removes what nothing refers to, also the chunks of an upload that is arriving.

        Args:
            size: Number of bytes that were written.

        Raises:
            RequestError: bytes are missing.
        """
        values = {"tenant_id": self._tenant_id, "upload_id": upload_id}
        if self._connection.execute(statement("size_of_upload"), values).fetchone() != (size,):
            raise RequestError("an erasure removed a part of the upload while it arrived; send it again")

    def delete(self, upload_ids: Collection[uuid.UUID]) -> None:
        """Delete uploads."""
        if upload_ids:
            values = {"tenant_id": self._tenant_id, "upload_ids": list(upload_ids)}
            self._connection.execute(statement("delete_uploads"), values)

    def delete_abandoned(self, *, age: timedelta) -> int:
        """Delete the uploads older than `age` that nothing refers to, and return how many."""
        scope = {"tenant_id": self._tenant_id}
        old = self._read_ids(statement("uploads_before"), {**scope, "before": datetime.now(UTC) - age})
        if abandoned := self._select_unused(old):
            # What refers to one of them meanwhile has ended after this, or is refused.
            self._connection.execute(statement("lock_uploads"), {**scope, "upload_ids": sorted(abandoned)})
            abandoned = self._select_unused(abandoned)
        self.delete(abandoned)
        return len(abandoned)

    def _select_unused(self, upload_ids: set[uuid.UUID]) -> set[uuid.UUID]:
        scope = {"tenant_id": self._tenant_id}
        unused = upload_ids - self._read_ids(statement("uploads_in_use"), scope) if upload_ids else upload_ids
        if unused:
            unused -= self._read_ids(statement("stored_files"), {**scope, "file_ids": list(unused)})
        return unused

    def _read_ids(self, query: LiteralString, values: Mapping[str, object]) -> set[uuid.UUID]:
        return {key for (key,) in self._connection.execute(query, values).fetchall()}
