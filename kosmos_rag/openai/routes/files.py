"""Routes of stored files."""

import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from kosmos_rag.apps.http.toolkit.dependencies import Caller, Reader, Writer
from kosmos_rag.apps.http.toolkit.multipart import FileForm
from kosmos_rag.core.errors import KosmosError, RequestError
from kosmos_rag.core.stored_files import file_name
from kosmos_rag.core.types import AuditKind, AuditOutcome
from kosmos_rag.engine.uploads import StoredUpload
from kosmos_rag.openai.access import open_files
from kosmos_rag.openai.bodies import Cursor, Order, PageQuery, parse_id
from kosmos_rag.openai.files import TenantFiles
from kosmos_rag.openai.paging import read_page
from kosmos_rag.openai.shapes import Deleted, FileObject, ListObject, build_list

router = APIRouter(prefix="/openai/v1", tags=["openai: files"])

_PURPOSES = ("assistants", "user_data")
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"enum": list(_PURPOSES)},
                        "reader": {
                            "type": "array",
                            "items": {"type": "string"},
                            "description": "Who may read the file and its documents: `department:hr`.",
                        },
                    },
                },
                "example": {
                    "file": "# Leave\n\nAll employees receive 20 days of annual leave.\n",
                    "purpose": "assistants",
                },
            }
        },
    }
}
_BYTES = {"schema": {"type": "string", "format": "binary"}, "example": "# Leave\n"}
_CONTENT: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": _BYTES}, "description": "The bytes."}
}


@router.post("/files", openapi_extra=_FORM)
async def upload(request: Request, caller: Writer) -> FileObject:
    """Store a file, which vector stores can use.

    Without `reader` its uploader and administrators see it.
    """
    form = FileForm(request.headers.get("content-type", ""), request.stream())
    uploads, tenant = caller.service.uploads, caller.tenant()
    with uploads.reserve(caller.identity.tenant):
        stored = await uploads.store(tenant, form.file())
        try:
            return FileObject.from_record(await uploads.run(_create, open_files(caller), form, stored))
        except KosmosError:
            await uploads.discard(tenant, stored.id)
            raise


def _create(files: TenantFiles, form: FileForm, stored: StoredUpload) -> Any:
    fields = form.fields("purpose", "reader", "reader[]")
    purpose = fields.get("purpose", [""])[-1]
    if purpose not in _PURPOSES:
        raise RequestError(f"the purpose is {purpose[:60]!r}; files are for retrieval: use {' or '.join(_PURPOSES)}")
    readers = [*fields.get("reader", ()), *fields.get("reader[]", ())]
    return files.create(stored.id, form.filename, size=stored.size, purpose=purpose, readers=readers)


@router.get("/files")
async def list_files(
    caller: Reader,
    purpose: Annotated[str | None, Query(max_length=64)] = None,
    after: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Order = "desc",
) -> ListObject[FileObject]:
    """List the files that you see."""
    find = partial(open_files(caller).find, purpose=purpose)
    query = PageQuery(after=after, limit=limit, order=order)
    page, has_more = await caller.run(read_page, find, lambda info: info.id, parse_id, query)
    return ListObject[FileObject](**build_list(FileObject.from_record, page, has_more=has_more))


@router.get("/files/{file_id}")
async def retrieve(file_id: str, caller: Reader) -> FileObject:
    """Return a file."""
    return FileObject.from_record(await caller.run(open_files(caller).get, parse_id(file_id)))


@router.get("/files/{file_id}/content", responses=_CONTENT, response_class=Response)
async def content(file_id: str, caller: Reader) -> StreamingResponse:
    """Return the bytes of a file.

    The call is in the audit log, if one is kept.
    """
    info = await caller.run(open_files(caller).get, parse_id(file_id))
    text = f"content of {info.filename} ({file_name(info.id)})"
    await caller.run(caller.tenant().record_access, AuditKind.SEARCH, text, AuditOutcome.HITS)
    headers = {"content-length": str(info.bytes), "content-disposition": "attachment"}
    return StreamingResponse(_chunks(caller, info.id), media_type="application/octet-stream", headers=headers)


async def _chunks(caller: Caller, file_id: uuid.UUID) -> AsyncIterator[bytes]:
    files, number = open_files(caller), 0
    while chunk := await caller.service.uploads.run(files.read_chunk, file_id, number):
        yield chunk
        number += 1


@router.delete("/files/{file_id}")
async def delete(file_id: str, caller: Writer) -> Deleted:
    """Delete a file, and remove it from all vector stores."""
    key = parse_id(file_id)
    await caller.run(open_files(caller).delete, key)
    return Deleted(id=file_name(key), object="file")
