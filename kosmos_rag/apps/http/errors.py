"""Errors of the library as problems (RFC 9457)."""

import json
from http import HTTPStatus
from typing import Any

from starlette.types import Send

from kosmos_rag.core import errors
from kosmos_rag.core.problem_details import MEDIA_TYPE, PROBLEMS, Problem

RETRY_AFTER_S = 1

INTERNAL = Problem(status=500, name="internal", title="Something went wrong")
INVALID = PROBLEMS[errors.RequestError]

_CANCELLED = "57014"
_TOO_LONG = PROBLEMS[errors.TimedOut]


def problem_of(error: Exception) -> Problem:
    """Return the problem that an error is reported as."""
    if isinstance(error, errors.StatementFailed) and error.sqlstate == _CANCELLED:
        return _TOO_LONG
    return next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), INTERNAL)


def public_detail(error: Exception, problem: Problem) -> str:
    """Return the detail for the client: messages of server errors may name hosts and files and go to the log only."""
    if problem.status < HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, errors.ServiceError):
        return str(error)
    return problem.title


def headers_of(error: Exception, problem: Problem) -> dict[str, str]:
    """Return the response headers of an error."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": "Bearer"}
    if isinstance(error, errors.TooManyRequests):
        return {"retry-after": str(error.retry_after_s)}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def more_of(error: Exception) -> dict[str, Any]:
    """Return the extension members of an error's problem document."""
    return {"code": error.code} if isinstance(error, errors.IngestionError | errors.QueryRefused) else {}


def body(problem: Problem, detail: str, **more: Any) -> bytes:
    """Return a problem document as bytes; characters of a quoted request without an encoding become `?`."""
    return json.dumps(document(problem, detail, **more), ensure_ascii=False, default=str).encode(errors="replace")


def document(problem: Problem, detail: str, **more: Any) -> dict[str, Any]:
    """Return the members of a problem document."""
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail, **more}


async def send_problem(send: Send, problem: Problem, detail: str, **headers: str) -> None:
    """Send a problem as the response."""
    content = body(problem, detail)
    named = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
