"""Health of the process and of its database."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from kosmos_rag.apps.http.toolkit.service import Service

router = APIRouter()

_OK: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"example": "ok\n"}}}}


@router.get("/livez", tags=["health"], response_class=PlainTextResponse, responses=_OK)
async def livez() -> str:
    """Answer while the process runs."""
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
    """Answer whether the database is ready.

    It must be reachable, at a known revision, with its row-level security. Nodes of a cluster that are down are named
    by number: the service is ready for the tenants of the others.
    """
    service: Service = request.app.state.service
    state = await service.readiness.state()
    return PlainTextResponse(state.text, status_code=state.status)
