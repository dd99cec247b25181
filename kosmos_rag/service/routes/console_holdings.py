"""The console's pages of what a tenant has: documents and uploads, jobs, health."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kosmos_rag.console.charts import durations, recalls, ticks, width_of
from kosmos_rag.records import JobState
from kosmos_rag.service.caller import Caller
from kosmos_rag.service.holdings import JobView
from kosmos_rag.service.html import PageRoute, page, see_other, service_of
from kosmos_rag.service.keys import ADMIN, INGEST
from kosmos_rag.service.metrics import SECONDS, STAGE_SECONDS
from kosmos_rag.service.routes import holdings, operations
from kosmos_rag.service.routes.holdings import Cursor, JobId
from kosmos_rag.service.visitors import VisitingReader, VisitingWriter

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_DOCUMENTS, _JOBS = 50, 30


@router.get("/documents")
async def documents(
    request: Request, caller: VisitingReader, collection: str | None = None, cursor: Cursor = None
) -> Response:
    """List the documents that the visitor may read."""
    found = await holdings.documents(caller, collection or None, _DOCUMENTS, cursor)
    return page(
        request,
        "documents.html",
        caller,
        found=found,
        collection=collection or None,
        collections=(await holdings.collections(caller)).collections,
        may_upload=caller.identity.has(INGEST),
    )


@router.post("/documents", status_code=202)
async def upload(
    request: Request,
    response: Response,
    caller: VisitingWriter,
    source: Annotated[str, Query(min_length=1)],
    collection: str | None = None,
    reader: Annotated[list[str] | None, Query()] = None,
) -> JobView:
    """Take a document from the page's script, which follows its job."""
    return await holdings.upload(request, response, caller, source, collection or None, reader=reader)


@router.get("/jobs")
async def jobs(
    request: Request, caller: VisitingWriter, state: JobState | None = None, cursor: Cursor = None
) -> Response:
    """List the tenant's jobs."""
    found = await holdings.jobs(caller, None if state is None else [state], _JOBS, cursor)
    unfinished = {JobState.SCHEDULED, JobState.QUEUED, JobState.RUNNING}
    return page(
        request,
        "jobs.html",
        caller,
        found=found,
        state=state,
        states=list(JobState),
        unfinished=unfinished,
        again={JobState.DEAD, JobState.CANCELLED},
        live=any(job.state in unfinished - {JobState.SCHEDULED} for job in found.jobs),
    )


@router.get("/jobs/{job_id}")
async def job(caller: VisitingWriter, job_id: JobId) -> JobView:
    """Tell a script how far a job is."""
    return await holdings.job(job_id, caller)


@router.post("/jobs/{job_id}/cancel")
async def cancel(caller: VisitingWriter, job_id: JobId) -> Response:
    """Call a job off."""
    await holdings.cancel(job_id, caller)
    return see_other("/jobs")


@router.post("/jobs/{job_id}/retry")
async def retry(caller: VisitingWriter, job_id: JobId) -> Response:
    """Put a job back into the queue."""
    await holdings.retry(job_id, caller)
    return see_other("/jobs")


@router.get("/health")
async def health(request: Request, caller: VisitingReader) -> Response:
    """Show what the service can tell of itself; what is of the whole tenant, and of the process, to administrators."""
    ready = (await operations.readyz(request)).status_code == 200
    values: dict[str, Any] = {"ready": ready, "stats": await operations.stats(caller), "inside": None}
    if caller.identity.has(ADMIN):
        values["inside"] = await _inside(request, caller)
    return page(request, "health.html", caller, **values)


async def _inside(request: Request, caller: Caller) -> dict[str, Any]:
    service = service_of(request)
    indexes = await caller.run(caller.scope().indexes.status)
    stages, routes = service.metrics.durations()
    lowest, recall = recalls(indexes)
    return {
        "indexes": indexes,
        "lowest": lowest,
        "recall": recall,
        "stages": durations(STAGE_SECONDS, stages, axis=STAGE_SECONDS),
        "routes": durations(SECONDS, routes, axis=STAGE_SECONDS),
        "ticks": list(ticks(STAGE_SECONDS)),
        "width": width_of(STAGE_SECONDS),
        "turns": (service.turns.taken, service.settings.database.pool_size),
        "streams": (service.streams.taken, service.settings.service.streams),
    }
