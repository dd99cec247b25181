"""The OpenAPI document of FastAPI, with errors and examples added."""

from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from kosmos_rag.apps.http.examples import EXAMPLES
from kosmos_rag.apps.http.toolkit.errors import ErrorFormat, find_error_format, list_error_formats, problem_document
from kosmos_rag.apps.http.wings import load_http_wings
from kosmos_rag.apps.problem_details import MEDIA_TYPE, PROBLEMS, Problem

JsonObject = dict[str, Any]

_SCHEMA: JsonObject = {
    "type": "object",
    "title": "Problem",
    "description": "An error (RFC 9457); `type` identifies it.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Why a document cannot be ingested, or SQL cannot run; stable."},
        "errors": {
            "type": "array",
            "description": "Missing or invalid values.",
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
_HEADERS: dict[int, JsonObject] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    402: _RETRY_AFTER,
    429: _RETRY_AFTER,
    503: _RETRY_AFTER,
}
_LOCATION = {"Location": {"description": "Path of the job.", "schema": {"type": "string"}}}

# Routes with statuses that do not follow from credentials, parameters and bodies.
_NOT_FOUND = {"/v1/feedback"}
_CALLS_MODELS = {
    "/v1/search",
    "/v1/context",
    "/v1/answer",
    "/api/chat",
}
_UPLOAD = "/v1/documents"
_WRITES = {"/v1/documents", "/v1/documents/{document_id}", "/v1/collections", "/v1/collections/{name}"}


def install_openapi(app: FastAPI) -> None:
    """Replace the application's OpenAPI document; the first request for it builds it."""

    def cached_openapi() -> JsonObject:
        if app.openapi_schema is None:
            app.openapi_schema = openapi(app)
        return app.openapi_schema

    app.openapi = cached_openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def openapi(app: FastAPI) -> JsonObject:
    """Build the OpenAPI document of an application."""
    spec = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    schemas = spec["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own; no route sends them
        schemas.pop(name, None)
    schemas |= {"Problem": _SCHEMA} | {error.name: dict(error.schema) for error in list_error_formats()}
    statuses = {path: codes for wing in load_http_wings() for path, codes in wing.statuses.items()}
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            responses.pop(str(HTTPStatus.UNPROCESSABLE_ENTITY.value), None)  # FastAPI's own
            error_format = find_error_format(path)
            if "security" in operation:
                operation["security"] = list(_alternatives(operation["security"]))
            for status in (*_statuses(path, method, operation), *statuses.get(path, ())):
                code = error_format.status(status) if error_format else status
                responses.setdefault(str(int(code)), _error(error_format, status))
            if "202" in responses and path in _WRITES:
                responses["202"]["headers"] = _LOCATION
            for content in _contents(operation):
                _add_example(content)
    return spec


def _alternatives(security: list[dict[str, list[str]]]) -> Iterator[dict[str, list[str]]]:
    """Yield one requirement for each scope.

    FastAPI lists the scopes of a route in one requirement, which would mean all of them; one of them is enough.
    """
    for requirement in security:
        for scheme, scopes in requirement.items():
            yield from ({scheme: [scope]} for scope in scopes)


def _statuses(path: str, method: str, operation: JsonObject) -> Iterator[int]:
    """Yield the error statuses of an operation."""
    yield from (413, 500)
    if "security" in operation:
        yield from (401, 403, 429, 503, 504)
    if "requestBody" in operation:
        yield from (400, 408)
    if "requestBody" in operation or "parameters" in operation:
        yield 422
    if "{" in path or path in _NOT_FOUND:
        yield 404
    if path in _CALLS_MODELS:
        yield 502
    if path in _WRITES and method != "get":
        yield 409
    if path in _CALLS_MODELS or (path == _UPLOAD and method == "post"):
        yield 402


def _error(error_format: ErrorFormat | None, status: int) -> JsonObject:
    phrase = HTTPStatus(status).phrase
    problem = next((problem for problem in PROBLEMS.values() if problem.status == status), None)
    media_type, content = MEDIA_TYPE, _error_content(problem)
    if error_format is not None:
        problem = problem or Problem(status=status, name="bad-request", title=phrase)
        media_type = "application/json"
        reference = {"$ref": f"#/components/schemas/{error_format.name}"}
        content = {"schema": reference, "example": error_format.build(problem, problem.title, {})}
    response: JsonObject = {"description": phrase, "content": {media_type: content}}
    if headers := _HEADERS.get(status):
        response["headers"] = headers
    return response


def _error_content(problem: Problem | None) -> JsonObject:
    example = {} if problem is None else {"example": problem_document(problem, problem.title)}
    return {"schema": _REFERENCE, **example}


def _contents(operation: JsonObject) -> Iterator[JsonObject]:
    """Yield the JSON contents of an operation's request and responses."""
    for part in (operation.get("requestBody", {}), *operation["responses"].values()):
        if content := part.get("content", {}).get("application/json"):
            yield content


def _add_example(content: JsonObject) -> None:
    name = content["schema"].get("$ref", "").rpartition("/")[2]
    examples = _load_examples()
    if name in examples:
        content["example"] = examples[name]


@cache
def _load_examples() -> JsonObject:
    examples = dict(EXAMPLES)
    for wing in load_http_wings():
        examples |= wing.examples
    return examples
