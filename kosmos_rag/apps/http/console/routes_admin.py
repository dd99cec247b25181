"""The console's pages of what a tenant has: documents and uploads, jobs, health."""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.datastructures import FormData, UploadFile

from kosmos_rag.apps.auth.api_keys import ADMIN, INGEST
from kosmos_rag.apps.http.console.charts import course, durations, latest, recalls, ticks, width_of
from kosmos_rag.apps.http.console.pages import PageRoute, page, see_other, service_of, wants_page
from kosmos_rag.apps.http.console.sessions import VisitingReader, VisitingWriter
from kosmos_rag.apps.http.dependencies import Caller
from kosmos_rag.apps.http.routes import resources
from kosmos_rag.apps.http.routes.resources import Cursor, JobId
from kosmos_rag.apps.http.schemas import JobPage
from kosmos_rag.core.errors import ConfigError, RequestError
from kosmos_rag.core.telemetry.metrics import SECONDS, STAGE_SECONDS
from kosmos_rag.core.types import EVERYONE, JobInfo, JobState, MonitorRun, SourceDocument
from kosmos_rag.evaluation.monitor.store import MonitorStore
from kosmos_rag.storage.tenants import tenant

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_DOCUMENTS, _JOBS, _RUNS = 50, 30, 200
_MOST_FILES, _MOST_FIELDS = 100, 10
_FOLLOWED = 100
"""Jobs that a script may ask for at once."""


@router.get("/documents")
async def documents(
    request: Request, caller: VisitingReader, collection: str | None = None, cursor: Cursor = None
) -> Response:
    """List the documents that the visitor may read."""
    found = await resources.documents(caller, collection or None, _DOCUMENTS, cursor)
    return page(
        request,
        "documents.html",
        found=found,
        collection=collection or None,
        collections=(await resources.collections(caller)).collections,
        may_upload=caller.identity.has(INGEST),
        most_mb=caller.service.settings.ingestion.max_file_mb,
    )


@router.post("/documents")
async def upload(request: Request, caller: VisitingWriter) -> Response:
    """Take the files of the page's form into the queue: a script follows their jobs, others are led to them."""
    async with request.form(max_files=_MOST_FILES, max_fields=_MOST_FIELDS) as given:
        jobs = await caller.run(_enqueue, caller, given)
    if wants_page(request):
        return see_other("/jobs")
    taken = JobPage(jobs=jobs, next=None)
    return JSONResponse(taken.model_dump(mode="json"), HTTPStatus.ACCEPTED)


def _enqueue(caller: Caller, given: FormData) -> list[JobInfo]:
    files = [one for one in given.getlist("files") if isinstance(one, UploadFile) and one.filename]
    if not files:
        raise RequestError("no file was chosen; choose one and send the form again")
    readers = [reader for name in _field(given, "acl").split(",") if (reader := name.strip())]
    queue = caller.tenant(_field(given, "collection") or None).jobs
    ids = [
        queue.enqueue(
            SourceDocument(source=file.filename or "", data=file.file.read(), acl=tuple(readers or [EVERYONE]))
        )
        for file in files
    ]
    return queue.find(ids=ids, limit=len(ids))


def _field(given: FormData, name: str) -> str:
    value = given.get(name)
    return value.strip() if isinstance(value, str) else ""


@router.get("/jobs")
async def jobs(
    request: Request, caller: VisitingWriter, state: JobState | None = None, cursor: Cursor = None
) -> Response:
    """List the tenant's jobs."""
    found = await resources.jobs(caller, None if state is None else [state], _JOBS, cursor)
    unfinished = {JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING}
    return page(
        request,
        "jobs.html",
        found=found,
        state=state,
        states=list(JobState),
        unfinished=unfinished,
        again={JobState.DEAD, JobState.CANCELLED},
        live=any(job.state in unfinished - {JobState.SCHEDULED} for job in found.jobs),
    )


@router.get("/jobs/states")
async def states(
    caller: VisitingWriter,
    ids: Annotated[list[Annotated[int, Field(ge=1, lt=2**63)]], Query(alias="id", min_length=1, max_length=_FOLLOWED)],
) -> JobPage:
    """Tell a script how far jobs are, all that it follows at once."""
    found = await caller.run(caller.tenant().jobs.find, ids=ids, limit=len(ids))
    return JobPage(jobs=found, next=None)


@router.post("/jobs/{job_id}/cancel")
async def cancel(caller: VisitingWriter, job_id: JobId) -> Response:
    """Call a job off."""
    await resources.cancel(job_id, caller)
    return see_other("/jobs")


@router.post("/jobs/{job_id}/retry")
async def retry(caller: VisitingWriter, job_id: JobId) -> Response:
    """Put a job back into the queue."""
    await resources.retry(job_id, caller)
    return see_other("/jobs")


@router.get("/health")
async def health(request: Request, caller: VisitingReader) -> Response:
    """Show what the service can tell of itself; what is of the whole tenant, and of the process, to administrators.

    Where the database is away, the process alone is told of.
    """
    ready = await service_of(request).readiness.is_ready()
    stats = await resources.stats(caller) if ready else None
    inside = await _inside(caller, ready=ready) if caller.identity.has(ADMIN) else None
    return page(request, "health.html", ready=ready, stats=stats, inside=inside)


async def _inside(caller: Caller, *, ready: bool) -> dict[str, Any]:
    service = caller.service
    indexes = await caller.run(caller.tenant().indexes.status) if ready else None
    runs = await caller.run(_runs, caller) if ready else []
    stages, routes = service.metrics.durations()
    pages = {name: buckets for name, buckets in routes.items() if not name.startswith("/assets/")}
    lowest, recall = recalls(indexes or [])
    return {
        "indexes": indexes,
        "lowest": lowest,
        "recall": recall,
        "course": course(runs),
        "watched": latest(runs),
        "stages": durations(STAGE_SECONDS, stages, axis=STAGE_SECONDS),
        "routes": durations(SECONDS, pages, axis=STAGE_SECONDS),
        "ticks": list(ticks(STAGE_SECONDS)),
        "width": width_of(STAGE_SECONDS),
        "calls": (service.limiter.in_flight, service.settings.database.pool_size),
        "streams": (service.streams.in_flight, service.settings.service.max_streams),
    }


def _runs(caller: Caller) -> list[MonitorRun]:
    store = MonitorStore(caller.service.engine.parts.database, tenant(caller.identity.tenant))
    try:
        return store.list_runs(limit=_RUNS)
    except ConfigError:
        return []  # a service that only answers has no way to log in as the role that maintains
