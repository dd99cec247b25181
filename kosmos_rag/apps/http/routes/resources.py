"""Resources of a tenant: documents, jobs, collections, totals."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Annotated, Any, Self, cast
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError

from kosmos_rag.apps.http.schemas import (
    CollectionList,
    CollectionRequest,
    DocumentPage,
    EventPage,
    JobPage,
    JobsChanged,
    MetadataRequest,
    PresetRequest,
    RectangleList,
)
from kosmos_rag.apps.http.toolkit.dependencies import Administrator, Caller, JobManager, Operator, Reader, Writer
from kosmos_rag.apps.http.toolkit.multipart import FileForm
from kosmos_rag.apps.http.toolkit.pagination import decode_cursor, encode_cursor
from kosmos_rag.core.config.presets import list_shipped
from kosmos_rag.core.errors import KosmosError, NotFound, RequestError
from kosmos_rag.core.types import (
    DEFAULT_COLLECTION,
    EVERYONE,
    CollectionInfo,
    DocumentInfo,
    DocumentPosition,
    DocumentSort,
    Filter,
    JobInfo,
    JobState,
    SourceDocument,
    Stats,
)
from kosmos_rag.engine.api_keys import INGEST, OPERATE
from kosmos_rag.engine.job_kinds import OPERATORS_ONLY, SYNC
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.engine.uploads import StoredUpload

router = APIRouter()

Limit = Annotated[int, Query(ge=1, le=1000, description="Page size.")]
Cursor = Annotated[
    str | None, Query(max_length=20_000, pattern=r"^[A-Za-z0-9_-]*$", description="`next` of the previous page.")
]

_LAST = 2**31 - 1
_MAX_RELOADED = 1000
"""Recurring sources that one call queues."""

_TEXT = {"type": "string"}
_ORIGINAL: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}, "example": "# Leave\n"}
        },
        "description": "The file, by its media type.",
    }
}
_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": "# Leave\n\nAll employees receive 20 days of annual leave.\n",
            },
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "source": {**_TEXT, "description": "Default: the name of the file."},
                        "collection": _TEXT,
                        "title": _TEXT,
                        "language": _TEXT,
                        "reader": {"type": "array", "items": _TEXT},
                        "metadata": {**_TEXT, "description": "A JSON object."},
                    },
                },
                "example": {"file": "# Leave\n", "source": "leave.md", "metadata": '{"year": 2026}'},
            },
        },
    }
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _UploadFields:
    """What a request says of the document that it uploads."""

    source: str | None
    collection: str | None = None
    title: str | None = None
    language: str | None = None
    reader: Sequence[str] = ()
    metadata: str | None = None
    named_by_file: bool = False
    """Whether the source is the name of the file of a form."""

    def merge_form(self, form: FileForm) -> Self:
        """Add the fields of a form.

        Raises RequestError where one is given twice.
        """
        fields = form.fields("source", "collection", "title", "language", "reader", "metadata")
        for name, values in fields.items():
            if getattr(self, name):
                raise RequestError(f"{name} is given in the query and in the form; give it once")
            if name != "reader" and len(values) > 1:
                raise RequestError(f"the form has the field {name} twice; give it once")
        form_values: dict[str, Any] = {
            name: values if name == "reader" else values[0] for name, values in fields.items()
        }
        named_by_file = self.source is None and "source" not in form_values
        source: dict[str, Any] = {"source": self.source or form.filename, "named_by_file": named_by_file}
        return replace(self, **(source | form_values))

    def document(self) -> SourceDocument:
        """Return the document without its bytes. Raises RequestError."""
        if not self.source:
            raise RequestError("the document has no source; name it")
        return SourceDocument(
            source=self.source,
            data=b"",
            title=self.title,
            language=self.language,
            acl=tuple(self.reader) or (EVERYONE,),
            metadata=_metadata(self.metadata),
        )


@router.post("/v1/documents", status_code=202, tags=["documents"], openapi_extra=_UPLOAD)
async def upload(
    request: Request,
    response: Response,
    caller: Writer,
    source: Annotated[
        str | None,
        Query(min_length=1, description="Stable name; an existing document is replaced. Required without a form."),
    ] = None,
    collection: str | None = None,
    title: str | None = None,
    language: str | None = None,
    reader: Annotated[list[str] | None, Query(description="Who may read it: `department:hr`; else everyone.")] = None,
    metadata: Annotated[str | None, Query(description="A JSON object.")] = None,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> JobInfo:
    """Queue a document, from the body or the file of a form.

    A worker ingests it, and the job has its state.
    """
    query_fields = _UploadFields(
        source=source, collection=collection, title=title, language=language, reader=reader or (), metadata=metadata
    )
    form = _form(request)
    if form is None:
        # Faults are found before the body is read.
        if source is None:
            raise RequestValidationError([{"loc": ("query", "source"), "msg": "Field required", "type": "missing"}])
        query_fields.document()
        caller.scope(collection)
    uploads = caller.service.uploads
    with uploads.reserve(caller.identity.tenant):
        stored = await uploads.store(caller.tenant(), request.stream() if form is None else form.file())
        try:
            fields = query_fields if form is None else query_fields.merge_form(form)
            info = await uploads.run(_enqueue_upload, caller, fields, stored, idempotency_key)
        except KosmosError:
            await uploads.discard(caller.tenant(), stored.id)
            raise
    response.headers["location"] = f"/v1/jobs/{info.id}"
    return info


def _form(request: Request) -> FileForm | None:
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith("multipart/"):
        return None
    return FileForm(content_type, request.stream())


def _enqueue_upload(caller: Caller, fields: _UploadFields, stored: StoredUpload, key: str | None) -> JobInfo:
    collection = caller.collection(fields.collection) or DEFAULT_COLLECTION
    tenant = caller.tenant(collection)
    job_id = tenant.uploads.enqueue_once(
        fields.document(),
        stored,
        collection=collection,
        subject=caller.identity.subject,
        key=key,
        named_by_file=fields.named_by_file,
    )
    rows = tenant.jobs.find(ids=[job_id])
    if not rows:
        raise NotFound("there is no such job")  # an earlier call with the key created it, and it is deleted
    return rows[0]


def _metadata(text: str | None) -> dict[str, Any]:
    try:
        metadata = json.loads(text or "{}")
    except (ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise RequestError('metadata is no JSON object; write metadata={"year": 2026}')
    return metadata


@router.get("/v1/documents", tags=["documents"])
async def documents(
    caller: Reader,
    collection: str | None = None,
    sort: DocumentSort = "source",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> DocumentPage:
    """List the documents that you may read."""
    return await list_page(caller, collection, limit, cursor, sort=sort)


async def list_page(
    caller: Caller,
    collection: str | None,
    limit: int,
    cursor: str | None,
    filter: Filter | None = None,  # noqa: A002
    *,
    sort: DocumentSort = "source",
) -> DocumentPage:
    """Return a page of the documents that the caller may read.

    Args:
        collection: only this collection; None for all.
        limit: documents of the page.
        cursor: `next` of the previous page; None for the first one.
        filter: only documents that match; None for all.
        sort: the order, the same on each page.
    """
    after: DocumentPosition | None = None
    if cursor is not None:
        order, *position = decode_cursor(cursor, str, *((str, str) if sort == "source" else (int, str, str)))
        if order != sort:
            raise RequestError(f"the cursor is of a list sorted by {order[:60]}; start with the first page")
        after = cast("DocumentPosition", tuple(position))
    tenant = caller.scope(collection)
    rows = await caller.run(tenant.documents, filter=filter, sort=sort, after=after, limit=limit + 1)
    page = rows[:limit]
    next_cursor = encode_cursor(sort, *map(str, page[-1].position(sort))) if len(rows) > limit else None
    return DocumentPage(documents=page, next=next_cursor)


@router.get("/v1/documents/{document_id}", tags=["documents"])
async def document(document_id: uuid.UUID, caller: Reader) -> DocumentInfo:
    """Return a document."""
    return await _get_document(document_id, caller)


def _attachment(source: str) -> str:
    name = PurePath(source).name or "document"
    return f"attachment; filename*=UTF-8''{quote(name, safe='')}"


async def _get_document(document_id: uuid.UUID, caller: Caller) -> DocumentInfo:
    rows = await caller.run(caller.tenant().documents, ids=[document_id])
    if not rows:
        raise NotFound("there is no such document, or none that you may read")
    return rows[0]


@router.get("/v1/documents/{document_id}/rectangles", tags=["documents"])
async def rectangles(
    document_id: uuid.UUID,
    caller: Reader,
    start: Annotated[int, Query(ge=0, description="First character of the span, as a citation has it.")] = 0,
    end: Annotated[int, Query(ge=0, description="The character after its last one; else all of the document.")] = _LAST,
    version: Annotated[int | None, Query(ge=1, description="The version that the span is of.")] = None,
) -> RectangleList:
    """Return the places of a span on the pages of a PDF.

    A line or a table each. The result is empty for formats without pages, and for another version than the current one.
    """
    info = await _get_document(document_id, caller)
    page_rectangles = await caller.run(
        caller.tenant(info.collection).rectangles, document_id, start, end, version=version
    )
    return RectangleList(rectangles=page_rectangles)


@router.get("/v1/documents/{document_id}/original", tags=["documents"], responses=_ORIGINAL, response_class=Response)
async def original(document_id: uuid.UUID, caller: Reader) -> Response:
    """Return the file of a document, where `ingestion.keep_originals` kept it.

    The call is in the audit log, if one is kept.
    """
    info = await _get_document(document_id, caller)
    data = await caller.run(caller.tenant(info.collection).read_original, document_id)
    if data is None:
        raise NotFound("the file of this document is not stored; set ingestion.keep_originals and ingest it again")
    headers = {"content-disposition": _attachment(info.source), "x-content-type-options": "nosniff"}
    return Response(data, media_type=info.media_type, headers=headers)


@router.patch("/v1/documents/{document_id}", tags=["documents"])
async def update(document_id: uuid.UUID, body: MetadataRequest, caller: Writer) -> DocumentInfo:
    """Change metadata of a document that you may read, and return it.

    Nothing is embedded. The change holds until the source has other content or metadata.
    """
    info = await _get_document(document_id, caller)
    await caller.run(caller.tenant(info.collection).update_metadata, info.source, body.metadata)
    return await _get_document(document_id, caller)


@router.delete("/v1/documents/{document_id}", status_code=204, tags=["documents"])
async def delete(document_id: uuid.UUID, caller: Writer) -> None:
    """Delete a document that you may read, with all its rows."""
    info = await _get_document(document_id, caller)
    await caller.run(caller.tenant(info.collection).delete, info.source)


@router.get("/v1/jobs", tags=["jobs"])
async def jobs(
    caller: JobManager,
    state: Annotated[list[JobState] | None, Query()] = None,
    collection: str | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """List the jobs of the tenant, the newest first."""
    (before,) = (None,) if cursor is None else decode_cursor(cursor, uuid.UUID)
    queue = caller.tenant().jobs
    scope = caller.collection(collection)
    rows = await caller.run(queue.find, states=state, collection=scope, before=before, limit=limit + 1)
    page = rows[:limit]
    return JobPage(
        jobs=[caller.redact_job(row) for row in page],
        next=encode_cursor(str(page[-1].id)) if len(rows) > limit else None,
    )


@router.get("/v1/jobs/{job_id}", tags=["jobs"])
async def job(job_id: uuid.UUID, caller: JobManager) -> JobInfo:
    """Return a job."""
    rows = await caller.run(caller.tenant().jobs.find, ids=[job_id])
    if not rows:
        raise NotFound("there is no such job")
    return caller.redact_job(rows[0])


@router.post("/v1/jobs/{job_id}/cancel", tags=["jobs"])
async def cancel(job_id: uuid.UUID, caller: JobManager) -> JobsChanged:
    """Cancel a job; a finished one stays as it is.

    Only operators cancel maintenance and permission feeds.
    """
    if (await job(job_id, caller)).kind in OPERATORS_ONLY:
        caller.identity.require(OPERATE)
    return JobsChanged(jobs=await caller.run(caller.tenant().jobs.cancel, [job_id]))


@router.post("/v1/jobs/{job_id}/retry", tags=["jobs"])
async def retry(job_id: uuid.UUID, caller: JobManager) -> JobsChanged:
    """Queue a dead or cancelled job again.

    Any other stays as it is. A cancelled one may be of a deleted document, so this needs the scope ingest.
    """
    if (await job(job_id, caller)).state is JobState.CANCELLED:
        caller.identity.require(INGEST)
    return JobsChanged(jobs=await caller.run(caller.tenant().jobs.retry, [job_id]))


@router.get("/v1/events", tags=["operations"])
async def events(caller: Administrator, limit: Limit = 100, cursor: Cursor = None) -> EventPage:
    """List what happened to documents and sources, the oldest first.

    `kosmos-rag events start` begins their record.
    """
    (after,) = (None,) if cursor is None else decode_cursor(cursor, int)
    rows, position = await caller.run(caller.tenant().events.read, after, limit)
    return EventPage(events=rows, next=encode_cursor(str(position)))


@router.get("/v1/collections", tags=["collections"])
async def collections(caller: Reader) -> CollectionList:
    """List the collections with a preset or readable documents."""
    return CollectionList(collections=await caller.run(caller.tenant().collections.infos))


@router.get("/v1/collections/{name}", tags=["collections"])
async def collection(name: str, caller: Reader) -> CollectionInfo:
    """Return a collection."""
    for info in await caller.run(caller.tenant().collections.infos):
        if info.name == name:
            return info
    raise NotFound("there is no such collection, or none that you may read")


@router.post("/v1/collections", status_code=201, tags=["collections"])
async def create(body: CollectionRequest, caller: Administrator) -> CollectionInfo:
    """Create a collection with a preset that comes with the library."""
    collections = caller.tenant().collections
    return await caller.run(collections.create, body.name, preset=_require_shipped_preset(body.preset))


@router.put("/v1/collections/{name}/preset", tags=["collections"])
async def set_preset(name: str, body: PresetRequest, caller: Administrator) -> CollectionInfo:
    """Replace the preset of a collection with a shipped one.

    Its jobs use the new one. Documents keep their chunks and readers until they are ingested again.
    """
    preset = _require_shipped_preset(body.preset)
    await collection(name, caller)
    return await caller.run(caller.tenant().collections.set_preset, name, preset=preset)


def _require_shipped_preset(name: str) -> str:
    """Return the name of a shipped preset.

    Raises RequestError for a path: it would read the files of this machine.
    """
    if name not in list_shipped():
        raise RequestError(f"there is no preset {name[:60]!r}; use {', '.join(list_shipped())}")
    return name


@router.delete("/v1/collections/{name}", status_code=204, tags=["collections"])
async def remove(name: str, caller: Administrator) -> None:
    """Delete a collection with its preset and all its documents.

    This includes documents that you may not read.
    """
    await collection(name, caller)
    await caller.run(caller.tenant().collections.delete, name)


@router.get("/v1/stats", tags=["operations"])
async def stats(caller: Reader) -> Stats:
    """Count the documents and chunks that you may read."""
    documents, departments = await caller.run(caller.tenant().department_totals)
    return Stats(
        total_documents=documents,
        total_chunks=sum(departments.values()),
        departments=departments,
        embedding_dimension=caller.tenant().dimensions,
    )


@router.post("/v1/reload", status_code=202, tags=["operations"])
async def reload(caller: Operator) -> JobsChanged:
    """Queue the recurring sources for workers now.

    Uploaded documents have nothing to reload.
    """
    return JobsChanged(jobs=await caller.run(_enqueue_recurring, caller))


def _enqueue_recurring(caller: Caller) -> list[uuid.UUID]:
    scheduled = caller.tenant().jobs.find(states=[JobState.SCHEDULED], kinds=[SYNC], limit=_MAX_RELOADED)
    recurring = [info for info in scheduled if info.every_s is not None]
    tenants: dict[str, Tenant] = {info.collection: caller.tenant(info.collection) for info in recurring}
    return [
        tenants[info.collection].jobs.enqueue(info.payload["spec"], prune=info.payload["prune"]) for info in recurring
    ]
