"""Errors as the service tells them: one table from error to status, title and type (RFC 9457, problem+json)."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from kosmos_rag import errors

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What a kind of error is to whoever sent the request."""

    status: int
    name: str
    """The last part of the type URI."""
    title: str

    @property
    def type(self) -> str:
        """The URI that programs tell it by."""
        return f"urn:kosmos-rag:problem:{self.name}"


def _problem(status: int, name: str, title: str) -> Problem:
    return Problem(status=status, name=name, title=title)


PROBLEMS: dict[type[Exception], Problem] = {
    errors.NotAuthenticated: _problem(401, "not-authenticated", "Credentials are missing or not valid"),
    errors.NotPermitted: _problem(403, "not-permitted", "The scope is missing"),
    errors.NotFound: _problem(404, "not-found", "There is nothing of that name"),
    errors.TooLarge: _problem(413, "too-large", "The body is too large"),
    errors.TooManyRequests: _problem(429, "too-many-requests", "The rate is used up"),
    errors.Overloaded: _problem(503, "overloaded", "No turn was free"),
    errors.TimedOut: _problem(504, "timed-out", "It took too long"),
    errors.RequestError: _problem(422, "request-invalid", "The request cannot be answered as it stands"),
    errors.IngestionError: _problem(422, "document-invalid", "The document cannot be taken"),
    errors.SpaceSwitched: _problem(409, "space-switched", "Another embedding model has become live"),
    errors.IndexesBusy: _problem(409, "indexes-busy", "The indexes are being worked on"),
    errors.LeaseLost: _problem(409, "lease-lost", "The job is another worker's"),
    errors.ModelUnavailable: _problem(503, "model-unavailable", "A model cannot be used"),
    errors.SpaceMismatch: _problem(503, "space-mismatch", "The documents belong to another embedding model"),
    errors.ModelError: _problem(502, "model-failed", "A model failed"),
    errors.DatabaseUnavailable: _problem(503, "database-unavailable", "The database is away"),
    errors.DatabaseNotReady: _problem(503, "database-not-ready", "The database is not one to serve from"),
    errors.DatabaseError: _problem(500, "database-failed", "The database failed"),
    errors.ConfigError: _problem(500, "configuration-invalid", "The service is not set up for this"),
}
"""By the error's class, or the nearest one above it that is here."""

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


def body(problem: Problem, detail: str, **more: Any) -> bytes:
    """Return the document of a problem."""
    return json.dumps(document(problem, detail, **more), ensure_ascii=False, default=str).encode()


def document(problem: Problem, detail: str, **more: Any) -> dict[str, Any]:
    """Return the members of a problem's document."""
    return {"type": problem.type, "title": problem.title, "status": problem.status, "detail": detail, **more}
