"""Health, totals, and having sources looked at again."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from kosmos_rag.apps.http.dependencies import Administrator, Caller, Reader, Service
from kosmos_rag.apps.http.schemas import ReloadView, StatsView
from kosmos_rag.core.types import EVERYONE, JobState
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.storage.queue import kinds

router = APIRouter()

_MIRRORS = 1000
_OK: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"example": "ok\n"}}}}


@router.get("/livez", tags=["health"], response_class=PlainTextResponse, responses=_OK)
async def livez() -> str:
    """Tell that the process turns."""
    return "ok\n"


@router.get(
    "/readyz",
    tags=["health"],
    response_class=PlainTextResponse,
    responses=_OK
    | {
        503: {
            "description": "Not ready.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "not now\n"}},
        }
    },
)
async def readyz(request: Request) -> PlainTextResponse:
    """Tell whether the database can be served from: reached, not too old, its policies as they should be."""
    service: Service = request.app.state.service
    if await service.readiness.ready():
        return PlainTextResponse("ok\n")
    return PlainTextResponse("not now\n", status_code=503)


@router.get("/api/rag/stats", tags=["operations"])
async def stats(caller: Reader) -> StatsView:
    """Count what there is for you."""
    documents, by_readers = await caller.run(caller.scope().totals)
    prefix = f"{caller.service.settings.rag.access.key}:"
    departments: dict[str, int] = {}
    for readers, chunks in by_readers.items():
        named = [reader.removeprefix(prefix) for reader in readers if reader.startswith(prefix)]
        for name in named or ([EVERYONE] if EVERYONE in readers else []):
            departments[name] = departments.get(name, 0) + chunks
    return StatsView(
        total_documents=documents,
        total_chunks=sum(by_readers.values()),
        departments=dict(sorted(departments.items())),
        embedding_dimension=caller.service.engine.parts.embedder.dimensions,
    )


@router.post("/api/rag/reload", status_code=202, tags=["operations"])
async def reload(caller: Administrator) -> ReloadView:
    """Have workers look now at every source that they look at again and again; documents need no reload themselves."""
    jobs = await caller.run(_look_again, caller)
    return ReloadView(status="reloading", jobs=jobs, stats=await stats(caller))


def _look_again(caller: Caller) -> list[int]:
    waiting = caller.scope().jobs.find(states=[JobState.SCHEDULED], limit=_MIRRORS)
    mirrors = [info for info in waiting if info.kind == kinds.SYNC and info.every_s is not None]
    scopes: dict[str, Tenant] = {info.collection: caller.scope(info.collection) for info in mirrors}
    return [scopes[info.collection].jobs.enqueue(info.payload["spec"], prune=info.payload["prune"]) for info in mirrors]
