"""Maps errors of the library to problem documents (RFC 9457)."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Send

from kosmos_rag.apps.errors import TimedOut, TooManyRequests
from kosmos_rag.apps.problem_details import MEDIA_TYPE, PROBLEMS, Problem
from kosmos_rag.core import errors

RETRY_AFTER_S = 1
_JSON = "application/json"

logger = logging.getLogger("kosmos_rag.apps.http")

INTERNAL = Problem(status=500, name="internal", title="Something went wrong")
INVALID = PROBLEMS[errors.RequestError]

_TIMED_OUT = PROBLEMS[TimedOut]


def to_problem(error: Exception) -> Problem:
    """Return the problem type of an error."""
    if isinstance(error, errors.StatementFailed) and error.is_cancelled:
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
    if isinstance(error, TooManyRequests | errors.LimitReached):
        return {"retry-after": str(error.retry_after_s)}
    if problem.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def extension_members(error: Exception) -> dict[str, Any]:
    """Return the extension members of an error's problem document."""
    code = getattr(error, "code", None) if isinstance(error, errors.KosmosError) else None
    return {} if code is None else {"code": code}


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorFormat:
    """The errors of an interface that has a format of its own."""

    prefix: str
    """What the paths of the interface begin with."""
    name: str
    """Name of the schema in the OpenAPI document."""
    schema: Mapping[str, Any]
    build: Callable[[Problem, str, dict[str, Any]], dict[str, Any]]
    """Returns the body for a problem, its detail and its extension members."""
    status: Callable[[int], int] = int
    """Returns the status for that of a problem."""


_FORMATS: dict[str, ErrorFormat] = {}


def register_error_formats(formats: Iterable[ErrorFormat]) -> None:
    """Send the errors of some paths in formats of their own."""
    _FORMATS.update({error_format.prefix: error_format for error_format in formats})


def list_error_formats() -> list[ErrorFormat]:
    """Return the registered formats."""
    return list(_FORMATS.values())


def find_error_format(path: str) -> ErrorFormat | None:
    """Return the format of errors at a path; None for problem documents."""
    return next((error_format for prefix, error_format in _FORMATS.items() if path.startswith(prefix)), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorResponse:
    """An error in the shape of the interface that was asked."""

    status: int
    media_type: str
    content: bytes


def error_response(path: str, problem: Problem, detail: str, **extensions: Any) -> ErrorResponse:
    """Return the response of an error.

    Args:
        path: Path of the request: it decides the shape.
    """
    if error_format := find_error_format(path):
        members = error_format.build(problem, detail, extensions)
        status = error_format.status(problem.status)
        return ErrorResponse(status=status, media_type=_JSON, content=_encode(members))
    content = encode_problem(problem, detail, **extensions)
    return ErrorResponse(status=problem.status, media_type=MEDIA_TYPE, content=content)


def encode_problem(problem: Problem, detail: str, **extensions: Any) -> bytes:
    """Encode a problem document as JSON.

    Characters that UTF-8 cannot encode become `?`.
    """
    return _encode(problem_document(problem, detail, **extensions))


def _encode(members: dict[str, Any]) -> bytes:
    return json.dumps(members, ensure_ascii=False, default=str).encode(errors="replace")


def problem_document(problem: Problem, detail: str, **extensions: Any) -> dict[str, Any]:
    """Return the members of a problem document."""
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail, **extensions}


async def handle_library_error(request: Request, error: Exception) -> Response:
    """Respond to a library error with a problem document; log server errors."""
    problem = to_problem(error)
    if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        logger.warning(
            "%s %s: %s", request.method, problem.name, error,
            extra={"action": "request_refused", "texts": {"path": request.url.path}},
        )  # fmt: skip
    headers = response_headers(error, problem)
    return respond(request, problem, public_detail(error, problem), headers, **extension_members(error))


def respond(request: Request, problem: Problem, detail: str, headers: dict[str, str], **extensions: Any) -> Response:
    """Respond to a request with an error.

    Args:
        request: the request: its path decides the format.
    """
    error = error_response(request.url.path, problem, detail, **extensions)
    return Response(error.content, error.status, headers, error.media_type)


async def send_problem(send: Send, path: str, problem: Problem, detail: str, **headers: str) -> None:
    """Send a problem as the response.

    Args:
        path: path of the request: it decides the shape.
    """
    error = error_response(path, problem, detail)
    fields = {"content-type": error.media_type, "content-length": str(len(error.content)), **headers}
    raw = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": error.content})
