"""The OpenAPI document: what FastAPI reads off the routes, with the errors of each of them, and examples."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from kosmos_rag.apps.http.errors import document
from kosmos_rag.apps.http.examples import EXAMPLES
from kosmos_rag.core.problem_details import MEDIA_TYPE, PROBLEMS

Told = dict[str, Any]

_SCHEMA: Told = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457); programs go by `type`.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Of a document that cannot be taken, why; stable."},
        "errors": {
            "type": "array",
            "description": "Values that are missing or not as they should be.",
            "items": {
                "type": "object",
                "required": ["location", "message"],
                "properties": {"location": {"type": "array"}, "message": {"type": "string"}},
            },
        },
    },
}
_REFERENCE = {"$ref": "#/components/schemas/Problem"}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}}
_HEADERS: dict[int, Told] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_LOCATION = {"Location": {"description": "Where the job is told of.", "schema": {"type": "string"}}}

# Beside what follows from credentials, parameters and bodies.
_NOT_FOUND = {"/v1/feedback"}
_BY_MODELS = {"/v1/search", "/v1/context", "/v1/answer", "/api/chat", "/v1/schema/grounding", "/api/schema/grounding"}
_WRITTEN = {"/v1/documents", "/v1/documents/{document_id}", "/v1/collections", "/v1/collections/{name}"}


def describe(app: FastAPI) -> None:
    """Make the application tell of itself by this document, which is made when it is first asked for."""

    def told() -> Told:
        if app.openapi_schema is None:
            app.openapi_schema = openapi(app)
        return app.openapi_schema

    app.openapi = told  # type: ignore[method-assign]  # as FastAPI's own guide has it


def openapi(app: FastAPI) -> Told:
    """Return the document of an application."""
    told = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = told["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which no route answers with
        schemas.pop(name, None)
    schemas["Problem"] = _SCHEMA
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            for status in _statuses(path, method, operation):
                if str(status) not in responses or status == HTTPStatus.UNPROCESSABLE_ENTITY:
                    responses[str(status)] = _error(status)
            if "202" in responses and path in _WRITTEN:
                responses["202"]["headers"] = _LOCATION
            for content in _contents(operation):
                _add_example(content)
    return told


def _statuses(path: str, method: str, operation: Told) -> Iterator[int]:
    """Yield the statuses of the errors that may come of an operation."""
    yield from (413, 500)
    if "security" in operation:
        yield from (401, 403, 429, 503, 504)
    if "requestBody" in operation:
        yield from (400, 408)
    if "requestBody" in operation or "parameters" in operation:
        yield 422
    if "{" in path or path in _NOT_FOUND:
        yield 404
    if path in _BY_MODELS:
        yield 502
    if path in _WRITTEN and method != "get":
        yield 409


def _error(status: int) -> Told:
    phrase = HTTPStatus(status).phrase
    problem = next((problem for problem in PROBLEMS.values() if problem.status == status), None)
    content: Told = {"schema": _REFERENCE}
    if problem is not None:
        content["example"] = document(problem, problem.title)
    response: Told = {"description": phrase, "content": {MEDIA_TYPE: content}}
    if headers := _HEADERS.get(status):
        response["headers"] = headers
    return response


def _contents(operation: Told) -> Iterator[Told]:
    """Yield the JSON that an operation takes and answers with."""
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        if content := part.get("content", {}).get("application/json"):
            yield content


def _add_example(content: Told) -> None:
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    if name in EXAMPLES:
        content["example"] = EXAMPLES[name]
