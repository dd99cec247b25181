"""Stored files of one tenant."""

import uuid
from collections.abc import Collection, Sequence

from kosmos_rag.core.errors import NotFound
from kosmos_rag.core.stored_files import FILE_ADMINISTRATOR, source_of_file, uploader_principal
from kosmos_rag.core.types import EVERYONE, SourceDocument
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.openai.records import FileInfo
from kosmos_rag.openai.rows import ALL, PageRequest, list_files
from kosmos_rag.openai.sql import statement


class TenantFiles:
    """The stored files of a tenant that one subject sees.

    These are its own ones, those that name it as a reader and, for an administrator, all.
    """

    def __init__(self, tenant: Tenant, *, administrator: bool = False) -> None:
        """Bind a reader.

        Args:
            tenant: The tenant as the reader sees it.
            administrator: Whether the reader sees all files.
        """
        self._tenant = tenant
        self._uploader = () if tenant.subject is None else (uploader_principal(tenant.subject),)
        self.principals = (*tenant.principals, *self._uploader, *((FILE_ADMINISTRATOR,) if administrator else ()))

    def create(
        self, upload_id: uuid.UUID, filename: str, *, size: int, purpose: str, readers: Sequence[str] = ()
    ) -> FileInfo:
        """Keep an upload as a file.

        Args:
            upload_id: The stored bytes; also the id of the file.
            size: Number of bytes.
            purpose: What it is for, as its uploader says.
            readers: Who may read the file and its documents. Without any, the file is its uploader's, and the readers
                of its documents follow from the settings, as of any document.

        Raises:
            SourceError: The name or the readers cannot be stored.
            RequestError: An erasure removed bytes of the upload.
            DatabaseError: It is not stored.
        """
        source = source_of_file(upload_id, filename)
        document = SourceDocument(source=source, data=b"", acl=tuple(readers or (EVERYONE,)))
        self._tenant.jobs.check(document)
        values = {
            "tenant_id": self._tenant.id,
            "file_id": upload_id,
            "filename": filename,
            "bytes": size,
            "purpose": purpose,
            "readers": list(document.acl),
            "acl": [FILE_ADMINISTRATOR, *self._uploader, *readers],
        }
        with self._tenant.sessions.write() as connection:
            now = self._tenant.sessions.create_tenant(connection)
            connection.execute(statement("insert_file"), {**values, "now": now})
            self._tenant.uploads.require_complete(upload_id, size, connection)
        return FileInfo(
            id=upload_id, filename=filename, bytes=size, purpose=purpose, readers=document.acl, created_at=now
        )

    def find(
        self, *, ids: Collection[uuid.UUID] | None = None, purpose: str | None = None, page: PageRequest = ALL
    ) -> list[FileInfo]:
        """List files. Raises DatabaseError.

        Args:
            page: Order and position.
        """
        with self._tenant.sessions.read(self.principals) as connection:
            return list_files(connection, self._tenant.id, ids=ids, purpose=purpose, page=page)

    def get(self, file_id: uuid.UUID) -> FileInfo:
        """Return a file. Raises NotFound, DatabaseError."""
        for info in self.find(ids=[file_id]):
            return info
        raise NotFound("there is no such file, or none that you may see")

    def read_chunk(self, file_id: uuid.UUID, number: int) -> bytes | None:
        """Return a chunk of a file by its position from 0.

        The result is None after the last.

        The caller has seen the file with `get`. Raises DatabaseError.
        """
        return self._tenant.uploads.read_chunk(file_id, number)

    def delete(self, file_id: uuid.UUID) -> None:
        """Delete a file, and its documents in all collections.

        Raises NotFound, DatabaseError.
        """
        info = self.get(file_id)
        values = {"tenant_id": self._tenant.id, "file_ids": [file_id], "collection": None}
        with self._tenant.sessions.write() as connection:
            attachments = connection.execute(statement("attachments"), values).fetchall()
        # First the jobs: a running one publishes nothing then.
        self._tenant.jobs.cancel([job_id for _, job_id in attachments])
        for collection, _ in attachments:
            self._tenant.with_collection(collection).delete(info.source)
        with self._tenant.sessions.write() as connection:
            connection.execute(statement("delete_files"), values)
            self._tenant.uploads.delete(file_id, connection)
