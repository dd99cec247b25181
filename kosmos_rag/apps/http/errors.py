"""Maps errors of the library to problem documents (RFC 9457)."""

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
_TIMED_OUT = PROBLEMS[errors.TimedOut]


def to_problem(error: Exception) -> Problem:
    """Return the problem type of an error."""
    if isinstance(error, errors.StatementFailed) and error.sqlstate == _CANCELLED:
        return _TIMED_OUT
    return next((PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS), INTERNAL)


def public_detail(error: Exception, problem: Problem) -> str:
    """Return the message that the client may see.

    Messages of server errors may name hosts and files: they go to the log only.
    """
    if problem.status < HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, errors.ServiceError):
        return str(error)
    return problem.title


def response_headers(error: Exception, problem: Problem) -> dict[str, str]:
    """Return the response headers of an error."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": "Bearer"}
    if isinstance(error, errors.TooManyRequests):
        return {"retry-after": str(error.retry_after_s)}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def extension_members(error: Exception) -> dict[str, Any]:
    """Return the extension members of an error's problem document."""
    return {"code": error.code} if isinstance(error, errors.IngestionError | errors.QueryRefused) else {}


def encode_problem(problem: Problem, detail: str, **extensions: Any) -> bytes:
    """Encode a problem document as JSON.

    Characters that UTF-8 cannot encode become `?`.
    """
    members = problem_document(problem, detail, **extensions)
    return json.dumps(members, ensure_ascii=False, default=str).encode(errors="replace")


def problem_document(problem: Problem, detail: str, **extensions: Any) -> dict[str, Any]:
    """Return the members of a problem document."""
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail, **extensions}


async def send_problem(send: Send, problem: Problem, detail: str, **headers: str) -> None:
    """Send a problem as the response.

    Args:
        send: the ASGI callable.
        problem: the kind of problem.
        detail: message for people.
        headers: further headers of the response.
    """
    content = encode_problem(problem, detail)
    fields = {"content-type": MEDIA_TYPE, "content-length": str(len(content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
