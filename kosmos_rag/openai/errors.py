"""Errors in OpenAI's shape."""

from http import HTTPStatus
from typing import Any

from kosmos_rag.apps.http.toolkit.errors import ErrorFormat
from kosmos_rag.apps.problem_details import Problem

OPENAI = "/openai/"
"""What the paths of the interface begin with."""

_CODES = {
    HTTPStatus.UNAUTHORIZED: "invalid_api_key",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
    HTTPStatus.PAYMENT_REQUIRED: "insufficient_quota",
}
_TYPES = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.PAYMENT_REQUIRED: "insufficient_quota",
}

_OPENAI_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "OpenAIError",
    "description": "An error in OpenAI's shape.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def openai_status(status: int) -> int:
    """Return OpenAI's status of a problem.

    It is 400 for every invalid request, and 429 for a budget that is used up.
    """
    if status == HTTPStatus.PAYMENT_REQUIRED:
        return HTTPStatus.TOO_MANY_REQUESTS
    return HTTPStatus.BAD_REQUEST if status == HTTPStatus.UNPROCESSABLE_ENTITY else status


def openai_error(problem: Problem, detail: str, extensions: dict[str, Any]) -> dict[str, Any]:
    """Return the body of an error in OpenAI's shape.

    Args:
        extensions: Further members of the problem; the first of `errors` names the parameter.
    """
    faults = extensions.get("errors") or [{}]
    _, *location = faults[0].get("location") or [None]  # the first part is body, query or path
    param = ".".join(map(str, location)) or None
    if reason := faults[0].get("message"):
        detail = f"{param or 'the request'}: {reason}"
    kind = "server_error" if problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    status = HTTPStatus(problem.status)
    return {
        "error": {
            "message": detail,
            "type": _TYPES.get(status, kind),
            "param": param,
            "code": extensions.get("code") or _CODES.get(status, problem.name.replace("-", "_")),
        }
    }


OPENAI_FORMAT = ErrorFormat(
    prefix=OPENAI, name="OpenAIError", schema=_OPENAI_SCHEMA, build=openai_error, status=openai_status
)
