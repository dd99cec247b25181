"""The collections of one tenant as vector stores."""

import uuid
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from psycopg.types.json import Jsonb

from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.stored_files import file_name
from kosmos_rag.core.types import JobInfo, JobState, SourceDocument, is_text
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.openai.files import TenantFiles
from kosmos_rag.openai.records import (
    FileBatchInfo,
    FileCounts,
    FileInfo,
    FileStatus,
    VectorStoreFileInfo,
    VectorStoreInfo,
)
from kosmos_rag.openai.rows import (
    ALL,
    PageRequest,
    PendingAttachment,
    PendingFile,
    list_file_ids,
    list_pending_attachments,
    list_vector_store_files,
    list_vector_stores,
)
from kosmos_rag.openai.sql import statement

_NO_STORE = "there is no such vector store, or none with a document that you may read"
_BATCH = 1000
"""Jobs in memory at a time, some kilobytes each."""
_FILTERED_BATCH = 10 * _BATCH
"""Files at a time where few have the wanted status: each time the server sorts those of the store."""
_STATES = {
    JobState.DONE: FileStatus.COMPLETED,
    JobState.DEAD: FileStatus.FAILED,
    JobState.CANCELLED: FileStatus.CANCELLED,
}


class TenantVectorStores:
    """The collections of a tenant as vector stores."""

    def __init__(self, tenant: Tenant, *, administrator: bool = False) -> None:
        """Bind a reader; see `TenantFiles`. Raises ConfigError without `database.worker_url`."""
        self._tenant = tenant
        self._files = TenantFiles(tenant, administrator=administrator)
        self._jobs = tenant.jobs

    def create(self, name: str | None, *, description: str | None, metadata: Mapping[str, str]) -> VectorStoreInfo:
        """Create an empty collection with a name of its own. Raises DatabaseError.

        Args:
            name: Name for people; None for that of the collection.
            metadata: Texts by key.
        """
        collection = f"vs_{uuid.uuid4().hex}"
        self._write(collection, name=name or collection, description=description, metadata=metadata)
        return self.get(collection)

    def update(self, collection: str, **changes: Any) -> VectorStoreInfo:
        """Change `name`, `description` or `metadata` of a vector store. Raises NotFound, DatabaseError."""
        info = self.get(collection)
        fields = {"name": info.name, "description": info.description, "metadata": info.metadata}
        self._write(collection, **(fields | changes))
        return self.get(collection)

    def _write(self, collection: str, *, name: str, description: str | None, metadata: Mapping[str, str]) -> None:
        values = {
            "tenant_id": self._tenant.id,
            "collection": collection,
            "name": name,
            "description": description,
            "metadata": Jsonb(dict(metadata)),
        }
        with self._tenant.sessions.write() as connection:
            now = self._tenant.sessions.create_tenant(connection)
            connection.execute(statement("insert_vector_store"), {**values, "now": now})

    def find(self, *, ids: Collection[str] | None = None, page: PageRequest = ALL) -> list[VectorStoreInfo]:
        """List the vector stores. Raises DatabaseError.

        Args:
            page: Order and position.
        """
        with self._tenant.sessions.read(self._files.principals) as connection:
            stores = list_vector_stores(connection, self._tenant.id, ids=ids, page=page)
        counts = {store.collection: Counter(completed=store.counts.completed) for store in stores}
        for entry in self._list_pending(list(counts)):
            counts[entry.collection][str(_read_status(entry.state))] += 1
            counts[entry.collection]["completed"] -= entry.replaces
        return [replace(store, counts=FileCounts(**counts[store.collection])) for store in stores]

    def get(self, collection: str) -> VectorStoreInfo:
        """Return a vector store. Raises NotFound, DatabaseError."""
        for info in self.find(ids=[collection]):
            return info
        raise NotFound(_NO_STORE)

    def require(self, collection: str) -> None:
        """Raise NotFound unless the reader may know of the vector store."""
        if not is_text(collection):
            raise NotFound(_NO_STORE)
        values = {"tenant_id": self._tenant.id, "collection": collection}
        with self._tenant.sessions.read(self._files.principals) as connection:
            if connection.execute(statement("vector_store_exists"), values).fetchone() != (True,):
                raise NotFound(_NO_STORE)

    def delete(self, collection: str) -> None:
        """Delete a collection with its documents; stored files stay. Raises NotFound, DatabaseError."""
        self.require(collection)
        self._tenant.collections.delete(collection)

    def attach(self, collection: str, files: Mapping[uuid.UUID, Mapping[str, Any]]) -> None:
        """Enqueue documents made from stored files.

        A file that is attached already is ingested again. All or none are enqueued.

        Args:
            files: Attributes of each file: the metadata of its document.

        Raises:
            NotFound: There is no such collection or file.
            SourceError: The attributes cannot be stored.
            DatabaseError: Nothing is enqueued.
        """
        self.require(collection)
        infos = self.require_files(files)
        jobs = self._tenant.with_collection(collection).jobs
        with self._tenant.sessions.write() as connection:
            now = self._tenant.sessions.create_tenant(connection)
            locked = {"tenant_id": self._tenant.id, "file_ids": list(files)}
            if len(connection.execute(statement("lock_file"), locked).fetchall()) < len(files):
                raise NotFound("a file was deleted meanwhile; leave it out")
            # Sorted, as the queue locks its rows: two batches with the same files do not deadlock.
            for file_id in sorted(files):
                document = SourceDocument(
                    source=infos[file_id].source, data=b"", metadata=files[file_id], acl=infos[file_id].readers
                )
                values = {
                    "tenant_id": self._tenant.id,
                    "collection": collection,
                    "file_id": file_id,
                    "document_id": jobs.document_id(document.source),
                    "job_id": jobs.enqueue_file(document, file_id, connection),
                    "now": now,
                }
                connection.execute(statement("attach_file"), values)

    def require_files(self, file_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, FileInfo]:
        """Return stored files by id.

        Raises NotFound where the subject does not see one of them.
        """
        infos = {info.id: info for info in self._files.find(ids=file_ids)}
        if missing := [file_id for file_id in file_ids if file_id not in infos]:
            raise NotFound(f"there is no {file_name(missing[0])}, or none that you may see")
        return infos

    def files(
        self,
        collection: str,
        *,
        ids: Collection[uuid.UUID] | None = None,
        status: FileStatus | None = None,
        page: PageRequest = ALL,
    ) -> list[VectorStoreFileInfo]:
        """List the files of a vector store. Raises NotFound, DatabaseError.

        Args:
            page: Order and position.
        """
        self.require(collection)
        if ids is not None:
            return self._read_files(collection, ids, status, page)
        files: list[VectorStoreFileInfo] = []
        # What a page shows depends on jobs, which the statement of the page cannot join: those of others are not read.
        for listed in self._iterate_ids(collection, page, _FILTERED_BATCH if status else page.limit or _BATCH):
            files += self._read_files(collection, listed, status, replace(page, position=None))
            if page.limit is not None and len(files) >= page.limit:
                return files[: page.limit]
        return files

    def _iterate_ids(self, collection: str, page: PageRequest, size: int) -> Iterator[list[uuid.UUID]]:
        """Yield the ids of files in the order of a page, some at a time."""
        listed = page
        while True:
            with self._tenant.sessions.read(self._files.principals) as connection:
                entries = list_file_ids(connection, self._tenant.id, collection, page=replace(listed, limit=size))
            if entries:
                yield [file_id for _, file_id in entries]
            if len(entries) < size:
                return
            listed = replace(page, position=entries[-1])

    def _read_files(
        self, collection: str, ids: Collection[uuid.UUID], status: FileStatus | None, page: PageRequest
    ) -> list[VectorStoreFileInfo]:
        jobs_of = {entry.job_id: entry for entry in self._list_pending([collection], ids)}
        jobs = self._jobs.find(ids=list(jobs_of), limit=len(jobs_of)) if jobs_of else []
        pending = [_build_pending_file(jobs_of[job.id].document_id, job) for job in jobs]
        with self._tenant.sessions.read(self._files.principals) as connection:
            return list_vector_store_files(
                connection, self._tenant.id, collection, pending, ids=ids, status=status, page=page
            )

    def file(self, collection: str, file_id: uuid.UUID) -> VectorStoreFileInfo:
        """Return a file of a vector store. Raises NotFound, DatabaseError."""
        for info in self.files(collection, ids=[file_id]):
            return info
        raise NotFound("there is no such file in the vector store, or none that you may see")

    def set_attributes(self, collection: str, file_id: uuid.UUID, attributes: Mapping[str, Any]) -> VectorStoreFileInfo:
        """Replace the attributes of a file's document.

        Raises RequestError for a file without a document and for the key that decides who may read, NotFound,
        DatabaseError.
        """
        info = self.file(collection, file_id)
        if info.status is not FileStatus.COMPLETED:
            raise RequestError(
                f"the file is {info.status}; set its attributes once it is completed, or attach it again"
            )
        # What the parser found of a file is no attribute, and stays.
        before = scalars(info.attributes)
        removed = {key: None for key in before if key not in attributes}
        changed = {key: value for key, value in attributes.items() if key not in before or before[key] != value}
        self._tenant.with_collection(collection).update_metadata(info.source, {**removed, **changed})
        return self.file(collection, file_id)

    def detach(self, collection: str, file_id: uuid.UUID) -> None:
        """Remove a file with its document; the stored file stays.

        Raises NotFound, DatabaseError.
        """
        info = self.file(collection, file_id)
        self._cancel(collection, [file_id])
        self._tenant.with_collection(collection).delete(info.source)
        values = {"tenant_id": self._tenant.id, "collection": collection, "file_ids": [file_id]}
        with self._tenant.sessions.write() as connection:
            connection.execute(statement("detach_files"), values)

    def create_batch(self, collection: str, files: Mapping[uuid.UUID, Mapping[str, Any]]) -> FileBatchInfo:
        """Attach files, and record them as a batch.

        Args and errors: see `attach`.
        """
        self.attach(collection, files)
        batch_id = uuid.uuid4()
        values = {
            "tenant_id": self._tenant.id,
            "batch_id": batch_id,
            "collection": collection,
            "file_ids": list(files),
        }
        with self._tenant.sessions.write() as connection:
            now = self._tenant.sessions.create_tenant(connection)
            connection.execute(statement("insert_file_batch"), {**values, "now": now})
        return self.batch(collection, batch_id)

    def batch(self, collection: str, batch_id: uuid.UUID) -> FileBatchInfo:
        """Return a batch with the present states of its files.

        Raises NotFound, DatabaseError.
        """
        values = {"tenant_id": self._tenant.id, "batch_id": batch_id, "collection": collection}
        with self._tenant.sessions.read(self._files.principals) as connection:
            row = connection.execute(statement("file_batch"), values).fetchone()
        if row is None:
            raise NotFound("there is no such batch of files in the vector store")
        file_ids = tuple(row[0])
        states = [info.status for info in self.files(collection, ids=file_ids)]
        counts = FileCounts(**{str(state): states.count(state) for state in FileStatus})
        return FileBatchInfo(id=batch_id, collection=collection, file_ids=file_ids, created_at=row[1], counts=counts)

    def cancel_batch(self, collection: str, batch_id: uuid.UUID) -> FileBatchInfo:
        """Cancel the unfinished jobs of a batch. Raises NotFound, DatabaseError."""
        visible = self.files(collection, ids=self.batch(collection, batch_id).file_ids)
        self._cancel(collection, [info.id for info in visible])
        return self.batch(collection, batch_id)

    def _cancel(self, collection: str, file_ids: Sequence[uuid.UUID]) -> None:
        values = {"tenant_id": self._tenant.id, "file_ids": list(file_ids), "collection": collection}
        with self._tenant.sessions.write() as connection:
            attachments = connection.execute(statement("attachments"), values).fetchall()
        self._jobs.cancel([job_id for _, job_id in attachments])

    def _list_pending(
        self, collections: Sequence[str], ids: Collection[uuid.UUID] | None = None
    ) -> list[PendingAttachment]:
        """Return the attached files without a readable document, or with an unfinished job."""
        if not collections:
            return []
        unfinished = self._list_unfinished(collections, ids)
        with self._tenant.sessions.read(self._files.principals) as connection:
            rows = list_pending_attachments(connection, self._tenant.id, collections, unfinished=unfinished, ids=ids)
        states = self._read_states([row.job_id for row in rows])
        entries = [replace(row, state=states[row.job_id]) for row in rows if row.job_id in states]
        published = self._list_existing([entry.document_id for entry in entries if entry.state is JobState.DONE])
        return [entry for entry in entries if entry.state is not JobState.DONE or entry.document_id in published]

    def _read_states(self, job_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, JobState]:
        """Return the states of jobs without what they contain."""
        values = {"tenant_id": self._tenant.id, "job_ids": list(job_ids)}
        with self._tenant.sessions.write() as connection:
            return {row[0]: JobState(row[1]) for row in connection.execute(statement("file_job_states"), values)}

    def _list_unfinished(self, collections: Sequence[str], ids: Collection[uuid.UUID] | None) -> list[uuid.UUID]:
        """Return unfinished jobs of files, which the reader may not see.

        A transaction of a reader may be on the node of the tenant, where no jobs are.
        """
        scope = {"tenant_id": self._tenant.id, "collections": list(collections), "job_ids": None}
        with self._tenant.sessions.write() as connection:
            if ids is not None:
                of_files = {**scope, "file_ids": list(ids), "collection": None}
                scope["job_ids"] = [job_id for _, job_id in connection.execute(statement("attachments"), of_files)]
            return [job_id for (job_id,) in connection.execute(statement("unfinished_file_jobs"), scope)]

    def _list_existing(self, document_ids: Sequence[uuid.UUID]) -> set[uuid.UUID]:
        """Return which documents exist, readable or not.

        An uploader may not be among the readers.
        """
        if not document_ids:
            return set()
        values = {"tenant_id": self._tenant.id, "document_ids": list(document_ids)}
        with self._tenant.sessions.write() as connection:
            return {row[0] for row in connection.execute(statement("existing_documents"), values)}


def scalars(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata that are attributes: texts, numbers, true and false."""
    return {key: value for key, value in metadata.items() if isinstance(value, str | int | float)}


def _read_status(state: JobState) -> FileStatus:
    return _STATES.get(state, FileStatus.IN_PROGRESS)


def _build_pending_file(document_id: uuid.UUID, job: JobInfo) -> PendingFile:
    fields = job.payload["document"]
    return PendingFile(
        document_id=document_id,
        source=fields["source"],
        attributes=fields["metadata"],
        status=_read_status(job.state),
        code=job.code if job.state is JobState.DEAD else None,
        message=job.error if job.state is JobState.DEAD else None,
    )
