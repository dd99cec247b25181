"""Errors as the service tells them."""

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
    """Return what an error is to the sender."""
    if isinstance(error, errors.StatementFailed) and error.sqlstate == _CANCELLED:
        return _TOO_LONG
    return next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), INTERNAL)


def told(error: Exception, problem: Problem) -> str:
    """Return what the sender is told: an error of ours may name hosts and files, and is for the log."""
    if problem.status < HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, errors.ServiceError):
        return str(error)
    return problem.title


def headers_of(error: Exception, problem: Problem) -> dict[str, str]:
    """Return the headers that go with an error."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": "Bearer"}
    if isinstance(error, errors.TooManyRequests):
        return {"retry-after": str(error.retry_after_s)}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def more_of(error: Exception) -> dict[str, Any]:
    """Return the members that the document of an error has beside the usual ones."""
    return {"code": error.code} if isinstance(error, errors.IngestionError | errors.QueryRefused) else {}


def body(problem: Problem, detail: str, **more: Any) -> bytes:
    """Return the document of a problem. What it quotes of a request may hold what has no encoding."""
    return json.dumps(document(problem, detail, **more), ensure_ascii=False, default=str).encode(errors="replace")


def document(problem: Problem, detail: str, **more: Any) -> dict[str, Any]:
    """Return the members of a problem's document."""
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail, **more}


async def send_problem(send: Send, problem: Problem, detail: str, **headers: str) -> None:
    """Answer with a problem where no route does."""
    content = body(problem, detail)
    named = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in named.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
