"""Pages of the console for a tenant's resources: documents, jobs, health."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from functools import partial
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData, UploadFile

from kosmos_rag.apps.http.console.charts import build_recall_rows, build_tuning_trend
from kosmos_rag.apps.http.console.pages import PageRoute, get_service, redirect, render_page, wants_page
from kosmos_rag.apps.http.console.remedies import describe_kind, remedy
from kosmos_rag.apps.http.console.sessions import ConsoleHealthViewer, ConsoleJobManager, ConsoleReader, ConsoleWriter
from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.routes.resources import Cursor
from kosmos_rag.apps.http.schemas import JobPage
from kosmos_rag.apps.http.toolkit.dependencies import Caller
from kosmos_rag.apps.http.toolkit.pagination import decode_cursor, encode_cursor
from kosmos_rag.core.errors import ConfigError, KosmosError, RequestError
from kosmos_rag.core.types import (
    EVERYONE,
    DocumentSort,
    Filter,
    IndexEvent,
    IndexInfo,
    JobInfo,
    JobState,
    SourceDocument,
    Stats,
)
from kosmos_rag.engine.api_keys import INGEST, OPERATE
from kosmos_rag.engine.job_kinds import KERNEL, UPKEEP
from kosmos_rag.engine.uploads import CHUNK_BYTES
from kosmos_rag.wings import load_wing_jobs

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_DOCUMENTS_PER_PAGE, _JOBS_PER_PAGE, _MAX_EVENTS = 50, 30, 200
_MAX_FILES, _MAX_FIELDS = 100, 10
_UPLOAD_FIELDS = {"files", "collection", "readers"}
_MAX_POLLED_JOBS = 100
"""Jobs that a script may poll at once."""


@router.get("/documents")
async def documents(
    request: Request,
    caller: ConsoleReader,
    collection: str | None = None,
    words: Annotated[str, Query(max_length=200)] = "",
    sort: DocumentSort = "source",
    cursor: Cursor = None,
) -> Response:
    """List the documents that the reader may see.

    Args:
        collection: only this collection.
        words: text that name or title contains; upper case is lower case.
    """
    collection, words = caller.collection(collection or None), words.strip()
    name_filter = Filter(where={"$or": [{field: {"$icontains": words}} for field in ("source", "title")]})
    result = await resources.list_page(
        caller, collection, _DOCUMENTS_PER_PAGE, cursor, name_filter if words else None, sort=sort
    )
    return render_page(
        request,
        "documents.html",
        result=result,
        words=words,
        sort=sort,
        link=partial(_documents_url, words, collection),
        collection=collection,
        default_collection=caller.identity.default_collection,
        collections=(await resources.collections(caller)).collections,
        may_upload=caller.identity.has(INGEST),
        max_mb=caller.service.settings.ingestion.max_file_mb,
    )


def _documents_url(words: str, collection: str | None, sort: DocumentSort, cursor: str | None = None) -> str:
    """Return the URL of a page of these documents."""
    parameters = {
        "words": words,
        "collection": collection,
        "sort": sort if sort != "source" else None,
        "cursor": cursor,
    }
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"/documents?{query}" if query else "/documents"


@router.post("/documents")
async def upload(request: Request, caller: ConsoleWriter) -> Response:
    """Enqueue the uploaded files.

    Scripts get the jobs, browsers are redirected to them.
    """
    uploads = caller.service.uploads
    with uploads.reserve(caller.identity.tenant):
        async with request.form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS) as fields:
            jobs = await _enqueue(caller, fields)
    if wants_page(request):
        return redirect("/jobs")
    job_page = JobPage(jobs=jobs, next=None)
    return JSONResponse(job_page.model_dump(mode="json"), HTTPStatus.ACCEPTED)


async def _enqueue(caller: Caller, fields: FormData) -> list[JobInfo]:
    chosen = [file for file in fields.getlist("files") if isinstance(file, UploadFile) and file.filename]
    if not chosen:
        raise RequestError("no file was chosen; choose one and send the form again")
    # A restriction under another name would be none.
    if unknown := sorted(fields.keys() - _UPLOAD_FIELDS):
        raise RequestError(f"the form has no field {unknown[0][:60]!r}; use {', '.join(sorted(_UPLOAD_FIELDS))}")
    readers = _field(fields, "readers")
    acl = tuple(reader for name in readers.split(",") if (reader := name.strip()))
    if readers and not acl:
        raise RequestError("Readers has no name; name readers, or leave it empty for everyone")
    tenant, uploads = caller.scope(_field(fields, "collection") or None), caller.service.uploads
    ids = []
    for file in chosen:
        document = SourceDocument(source=file.filename or "", data=b"", acl=acl or (EVERYONE,))
        stored = await uploads.store(tenant, _chunks(file))
        try:
            ids.append(await uploads.run(tenant.uploads.enqueue, document, stored, named_by_file=True))
        except KosmosError:
            await uploads.discard(tenant, stored.id)
            raise
    return await uploads.run(tenant.jobs.find, ids=ids, limit=len(ids))


@router.post("/documents/{document_id}/delete")
async def delete_document(document_id: uuid.UUID, caller: ConsoleWriter) -> Response:
    """Delete a document that the user may read."""
    await resources.delete(document_id, caller)
    return redirect("/documents")


@router.post("/documents/sample")
async def add_sample(caller: ConsoleWriter) -> Response:
    """Enqueue the sample documents, for a tenant without any."""
    tenant, uploads = caller.scope(None), caller.service.uploads
    with uploads.reserve(caller.identity.tenant):
        for file in files(__package__).joinpath("samples").iterdir():
            stored = await uploads.store(tenant, _only(file.read_bytes()))
            document = SourceDocument(source=file.name, data=b"", acl=(EVERYONE,))
            await uploads.run(tenant.uploads.enqueue, document, stored)
    return redirect("/jobs")


async def _only(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _chunks(file: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await file.read(CHUNK_BYTES):
        yield chunk


def _field(fields: FormData, name: str) -> str:
    value = fields.get(name)
    return value.strip() if isinstance(value, str) else ""


@router.get("/jobs")
async def jobs(
    request: Request,
    caller: ConsoleJobManager,
    state: JobState | None = None,
    upkeep: bool = False,
    cursor: Cursor = None,
) -> Response:
    """List the tenant's jobs, the failed ones first.

    Periodic jobs are shown on request, and whenever one has failed.
    """
    find = partial(caller.tenant().jobs.find, collection=caller.collection(None))
    failed = []
    if cursor is None and state in {None, JobState.DEAD}:
        failed = await caller.run(find, states=[JobState.DEAD], limit=_JOBS_PER_PAGE)
    states = [status for status in JobState if status is not JobState.DEAD] if state is None else [state]
    of_kernel = [kind for kind in KERNEL if kind not in UPKEEP]
    documents = [*of_kernel, *(kind.name for kind in load_wing_jobs().kinds)]
    shown_kinds = None if upkeep or state is JobState.DEAD else documents
    (before,) = (None,) if cursor is None else decode_cursor(cursor, uuid.UUID)
    rows = await caller.run(find, states=states, kinds=shown_kinds, before=before, limit=_JOBS_PER_PAGE + 1)
    page = rows[:_JOBS_PER_PAGE]
    others = [caller.redact_job(job) for job in page if job.id not in {entry.id for entry in failed}]
    retryable = {JobState.DEAD, JobState.CANCELLED} if caller.identity.has(INGEST) else {JobState.DEAD}
    unfinished = {JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING}
    return render_page(
        request,
        "jobs.html",
        failed=[caller.redact_job(job) for job in failed],
        others=others,
        next_page=encode_cursor(str(page[-1].id)) if len(rows) > _JOBS_PER_PAGE else None,
        more_failed=state is None and len(failed) == _JOBS_PER_PAGE,
        state=state,
        states=list(JobState),
        upkeep=upkeep,
        remedy=remedy,
        describe_kind=describe_kind,
        unfinished=unfinished,
        retryable=retryable,
        unclaimed=await caller.run(caller.tenant().jobs.count_unclaimed),
        unreadable=await caller.run(caller.scope(None).list_unreadable),
        refused=await caller.run(caller.tenant().jobs.list_refused_sources),
        live=any(job.state in unfinished - {JobState.SCHEDULED} for job in page),
    )


@router.get("/jobs/states")
async def states(
    caller: ConsoleJobManager,
    ids: Annotated[list[uuid.UUID], Query(alias="id", min_length=1, max_length=_MAX_POLLED_JOBS)],
) -> JobPage:
    """Return the states of several jobs for a script."""
    result = await caller.run(caller.tenant().jobs.find, ids=ids, limit=len(ids))
    return JobPage(jobs=[caller.redact_job(job) for job in result], next=None)


@router.post("/jobs/{job_id}/cancel")
async def cancel(caller: ConsoleJobManager, job_id: uuid.UUID) -> Response:
    """Cancel a job."""
    await resources.cancel(job_id, caller)
    return redirect("/jobs")


@router.post("/jobs/{job_id}/retry")
async def retry(caller: ConsoleJobManager, job_id: uuid.UUID) -> Response:
    """Queue a job again."""
    await resources.retry(job_id, caller)
    return redirect("/jobs")


@router.get("/health")
async def health(request: Request, caller: ConsoleHealthViewer) -> Response:
    """Show whether the service is ready, and totals of the tenant.

    Only operators see its indexes. While the database is unavailable, only that is shown.
    """
    is_operator = caller.identity.has(OPERATE)

    def read() -> asyncio.Future[tuple[Stats, _Indexes | None]]:
        reading = asyncio.gather(resources.stats(caller), _read_indexes(caller) if is_operator else _return_none())
        reading.add_done_callback(lambda future: future.cancelled() or future.exception())
        return reading

    readiness = get_service(request).readiness
    # During the check of the database, which takes longer; but calls to a database that is away would hold their slots.
    reading = read() if readiness.was_ready else None
    ready = (await readiness.state()).ready
    stats, indexes = await (reading or read()) if ready else (None, None)
    details = _describe_indexes(indexes) if ready and is_operator else None
    return render_page(request, "health.html", ready=ready, stats=stats, details=details)


async def _return_none() -> None:
    """Return None."""


class _Indexes(NamedTuple):
    """The indexes of a tenant, and the latest changes to them."""

    status: list[IndexInfo]
    log: list[IndexEvent]


async def _read_indexes(caller: Caller) -> _Indexes | None:
    indexes = caller.tenant().indexes
    try:
        return await caller.run(lambda: _Indexes(indexes.status(), indexes.log(_MAX_EVENTS)))
    except ConfigError:
        return None  # the service may have no credentials of the worker role


def _describe_indexes(read: _Indexes | None) -> dict[str, Any]:
    indexes = None if read is None else read.status
    axis_start, recall = build_recall_rows(indexes or [])
    return {
        "indexes": indexes,
        "axis_start": axis_start,
        "recall": recall,
        "recall_trend": build_tuning_trend([] if read is None else read.log),
        "due": None if indexes is None else sum(index.due is not None for index in indexes),
    }
