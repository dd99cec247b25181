"""Routes of vector stores, their files and batches of files."""

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from kosmos_rag.apps.http.toolkit.dependencies import Administrator, Caller, Reader, Writer
from kosmos_rag.core.errors import NotFound, RequestError
from kosmos_rag.core.stored_files import file_name
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.openai.access import open_vector_stores
from kosmos_rag.openai.bodies import (
    Attachment,
    AttributesRequest,
    FileBatchRequest,
    PageQuery,
    Paging,
    VectorStoreChanges,
    VectorStoreRequest,
    parse_id,
)
from kosmos_rag.openai.paging import read_page
from kosmos_rag.openai.records import FileBatchInfo, FileStatus, VectorStoreFileInfo, VectorStoreInfo
from kosmos_rag.openai.shapes import (
    Deleted,
    FileBatch,
    FileContent,
    ListObject,
    TextContent,
    VectorStore,
    VectorStoreFile,
    build_list,
)
from kosmos_rag.openai.vector_stores import TenantVectorStores

router = APIRouter(prefix="/openai/v1/vector_stores", tags=["openai: vector stores"])

Status = Annotated[FileStatus | None, Query(alias="filter", description="Only files in this state.")]

_POLL_AFTER_MS = "500"
_POLL_HEADER = "openai-poll-after-ms"
"""Header with the milliseconds after which the SDK asks for a state again."""
_LINES = 10_000


@router.post("")
async def create(body: VectorStoreRequest, caller: Writer) -> VectorStore:
    """Create a vector store: an empty collection, or one of stored files."""
    attachments = _attachments([Attachment(file_id=file_id) for file_id in body.file_ids or ()])
    return VectorStore.from_record(await caller.run(_create, open_vector_stores(caller), body, attachments))


def _create(
    stores: TenantVectorStores, body: VectorStoreRequest, attachments: dict[uuid.UUID, dict[str, Any]]
) -> VectorStoreInfo:
    stores.require_files(attachments)
    info = stores.create(body.name, description=body.description, metadata=body.metadata or {})
    if not attachments:
        return info
    stores.attach(info.collection, attachments)
    return stores.get(info.collection)


@router.get("")
async def list_stores(caller: Reader, paging: Paging) -> ListObject[VectorStore]:
    """List the vector stores.

    They are collections with readable documents, a preset, or a name.
    """
    find = open_vector_stores(caller).find
    page, has_more = await caller.run(read_page, find, lambda info: info.collection, str, paging)
    return ListObject[VectorStore](**build_list(VectorStore.from_record, page, has_more=has_more))


@router.get("/{vector_store_id}")
async def retrieve(vector_store_id: str, caller: Reader) -> VectorStore:
    """Return a vector store."""
    return VectorStore.from_record(await caller.run(open_vector_stores(caller).get, vector_store_id))


@router.post("/{vector_store_id}")
async def modify(vector_store_id: str, body: VectorStoreChanges, caller: Writer) -> VectorStore:
    """Change name, description or metadata of a vector store."""
    changes = {name: value for name, value in body.model_dump(exclude_unset=True).items() if value is not None}
    changes.pop("expires_after", None)
    return VectorStore.from_record(
        await caller.run(partial(open_vector_stores(caller).update, vector_store_id, **changes))
    )


@router.delete("/{vector_store_id}")
async def delete(vector_store_id: str, caller: Administrator) -> Deleted:
    """Delete a vector store with all its documents; stored files stay."""
    await caller.run(open_vector_stores(caller).delete, vector_store_id)
    return Deleted(id=vector_store_id, object="vector_store.deleted")


@router.post("/{vector_store_id}/files")
async def attach(vector_store_id: str, body: Attachment, caller: Writer, response: Response) -> VectorStoreFile:
    """Make a document of a stored file; a worker ingests it."""
    attachments = _attachments([body])
    (file_id,) = attachments
    stores = open_vector_stores(caller)
    await caller.run(stores.attach, vector_store_id, attachments)
    return await _file(vector_store_id, file_id, caller, response)


@router.get("/{vector_store_id}/files")
async def list_store_files(
    vector_store_id: str, caller: Reader, paging: Paging, status: Status = None
) -> ListObject[VectorStoreFile]:
    """List the files of a vector store.

    They are the documents that you may read, and your files that have none yet.
    """
    stores = open_vector_stores(caller)

    def find(ids: Sequence[uuid.UUID] | None = None, **options: Any) -> Sequence[VectorStoreFileInfo]:
        # The file of a cursor may have another state by now.
        return stores.files(vector_store_id, ids=ids, status=None if ids else status, **options)

    return await _list_files(caller, find, paging)


async def _list_files(
    caller: Caller, find: Callable[..., Sequence[VectorStoreFileInfo]], paging: PageQuery
) -> ListObject[VectorStoreFile]:
    page, has_more = await caller.run(read_page, find, lambda info: info.id, parse_id, paging)
    return ListObject[VectorStoreFile](**build_list(VectorStoreFile.from_record, page, has_more=has_more))


@router.get("/{vector_store_id}/files/{file_id}")
async def retrieve_file(vector_store_id: str, file_id: str, caller: Reader, response: Response) -> VectorStoreFile:
    """Return a file of a vector store with its state."""
    return await _file(vector_store_id, parse_id(file_id), caller, response)


async def _file(collection: str, file_id: uuid.UUID, caller: Caller, response: Response) -> VectorStoreFile:
    info = await caller.run(open_vector_stores(caller).file, collection, file_id)
    if info.status is FileStatus.IN_PROGRESS:
        response.headers[_POLL_HEADER] = _POLL_AFTER_MS
    return VectorStoreFile.from_record(info)


@router.post("/{vector_store_id}/files/{file_id}")
async def set_attributes(
    vector_store_id: str, file_id: str, body: AttributesRequest, caller: Writer
) -> VectorStoreFile:
    """Replace the attributes of a file."""
    info = await caller.run(
        open_vector_stores(caller).set_attributes, vector_store_id, parse_id(file_id), body.attributes or {}
    )
    return VectorStoreFile.from_record(info)


@router.delete("/{vector_store_id}/files/{file_id}")
async def detach(vector_store_id: str, file_id: str, caller: Writer) -> Deleted:
    """Remove a file from a vector store; the stored file stays."""
    key = parse_id(file_id)
    await caller.run(open_vector_stores(caller).detach, vector_store_id, key)
    return Deleted(id=file_name(key), object="vector_store.file.deleted")


@router.get("/{vector_store_id}/files/{file_id}/content")
async def content(vector_store_id: str, file_id: str, caller: Reader) -> FileContent:
    """Return the text of a file, as it was parsed."""
    info = await caller.run(open_vector_stores(caller).file, vector_store_id, parse_id(file_id))
    texts = await caller.run(_read_text, caller.tenant(), info)
    return FileContent(data=[TextContent(text=text) for text in texts])


def _read_text(tenant: Tenant, info: VectorStoreFileInfo) -> Sequence[str]:
    texts, first, total = [], 1, 1
    while first <= total:
        lines = tenant.read_lines(info.document_id, first=first, count=_LINES)
        if lines is None:
            raise NotFound("the file has no document that you may read; wait until it is completed")
        texts.append(lines.text)
        first, total = first + _LINES, lines.total_lines
    return texts


@router.post("/{vector_store_id}/file_batches")
async def create_batch(vector_store_id: str, body: FileBatchRequest, caller: Writer, response: Response) -> FileBatch:
    """Make documents of several stored files; workers ingest them."""
    attachments = _attachments(body.attachments())
    return _batch(await caller.run(open_vector_stores(caller).create_batch, vector_store_id, attachments), response)


@router.get("/{vector_store_id}/file_batches/{batch_id}")
async def retrieve_batch(vector_store_id: str, batch_id: str, caller: Reader, response: Response) -> FileBatch:
    """Return a batch of files with their states."""
    return _batch(await caller.run(open_vector_stores(caller).batch, vector_store_id, parse_id(batch_id)), response)


@router.post("/{vector_store_id}/file_batches/{batch_id}/cancel")
async def cancel_batch(vector_store_id: str, batch_id: str, caller: Writer, response: Response) -> FileBatch:
    """Cancel the files of a batch that are in progress."""
    return _batch(
        await caller.run(open_vector_stores(caller).cancel_batch, vector_store_id, parse_id(batch_id)), response
    )


@router.get("/{vector_store_id}/file_batches/{batch_id}/files")
async def list_batch_files(
    vector_store_id: str, batch_id: str, caller: Reader, paging: Paging, status: Status = None
) -> ListObject[VectorStoreFile]:
    """List the files of a batch."""
    stores = open_vector_stores(caller)
    batch = await caller.run(stores.batch, vector_store_id, parse_id(batch_id))

    def find(ids: Sequence[uuid.UUID] | None = None, **options: Any) -> Sequence[VectorStoreFileInfo]:
        chosen = batch.file_ids if ids is None else [key for key in ids if key in batch.file_ids]
        return stores.files(vector_store_id, ids=chosen, status=None if ids else status, **options)

    return await _list_files(caller, find, paging)


def _batch(info: FileBatchInfo, response: Response) -> FileBatch:
    batch = FileBatch.from_record(info)
    if batch.status is FileStatus.IN_PROGRESS:
        response.headers[_POLL_HEADER] = _POLL_AFTER_MS
    return batch


def _attachments(attachments: Sequence[Attachment]) -> dict[uuid.UUID, dict[str, Any]]:
    """Return the attributes of each file.

    Raises NotFound, and RequestError for a file that comes twice.
    """
    attributes = {parse_id(entry.file_id): dict(entry.attributes or {}) for entry in attachments}
    if len(attributes) < len(attachments):
        raise RequestError("a file comes more than once; attach it once")
    return attributes
