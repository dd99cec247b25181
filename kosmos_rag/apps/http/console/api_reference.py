"""The OpenAPI document as a page, operations by tag."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JsonObject = Mapping[str, Any]

_OTHER = "other"
_COMMON = frozenset({"401", "403", "408", "413", "429", "500", "503", "504"})
"""Statuses that almost every operation has; the page lists them once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A parameter, or a field of a schema."""

    name: str
    place: str
    """`query`, `path` or `header`; empty for a field."""
    type: str
    required: bool
    description: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """A body of a request or a response."""

    media_type: str
    type: str
    schema: str | None
    """Name of the schema, if it has one."""
    example: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """A response by status."""

    status: str
    description: str
    bodies: Sequence[Body]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """A method of a path."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    needs_key: bool
    parameters: Sequence[Value]
    bodies: Sequence[Body]
    responses: Sequence[Reply]
    curl: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Schema:
    """A named schema."""

    name: str
    description: str
    fields: Sequence[Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """All of the page."""

    title: str
    version: str
    description: str
    tags: Mapping[str, Sequence[Operation]]
    schemas: Sequence[Schema]


def build_reference(spec: JsonObject, base_url: str) -> Reference:
    """Build the reference of an OpenAPI document.

    Args:
        spec: the document.
        base_url: address of the service, for the examples of curl.
    """
    tags: dict[str, list[Operation]] = {}
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            tag = next(iter(operation.get("tags", ())), _OTHER)
            tags.setdefault(tag, []).append(_operation(path, method, operation, base_url))
    return Reference(
        title=spec["info"]["title"],
        version=spec["info"]["version"],
        description=" ".join(spec["info"].get("description", "").split()),
        tags=tags,
        schemas=[_schema(name, schema) for name, schema in sorted(spec["components"]["schemas"].items())],
    )


def _operation(path: str, method: str, operation: JsonObject, base_url: str) -> Operation:
    summary, _, rest = operation.get("description", operation.get("summary", "")).partition("\n")
    bodies = list(_bodies(operation.get("requestBody", {})))
    needs_key = "security" in operation
    parameters = [_parameter(parameter) for parameter in operation.get("parameters", ())]
    return Operation(
        id=f"{method}{path.replace('/', '-').replace('{', '').replace('}', '')}",
        method=method.upper(),
        path=path,
        summary=summary,
        description=" ".join(rest.split()),
        needs_key=needs_key,
        parameters=parameters,
        bodies=bodies,
        responses=[
            Reply(status=status, description=response.get("description", ""), bodies=list(_bodies(response)))
            for status, response in operation["responses"].items()
            if status not in _COMMON
        ],
        curl=_curl(method, f"{base_url}{path}", parameters, bodies, needs_key=needs_key),
    )


def _parameter(parameter: JsonObject) -> Value:
    return Value(
        name=parameter["name"],
        place=parameter["in"],
        type=describe_type(parameter.get("schema", {})),
        required=parameter.get("required", False),
        description=parameter.get("description", ""),
    )


def _bodies(content: JsonObject) -> Iterator[Body]:
    for media_type, body in content.get("content", {}).items():
        schema = body.get("schema", {})
        example = body.get("example")
        yield Body(
            media_type=media_type,
            type=describe_type(schema),
            schema=_name(schema),
            example=example if isinstance(example, str) or example is None else json.dumps(example, indent=2),
        )


def _schema(name: str, schema: JsonObject) -> Schema:
    required = set(schema.get("required", ()))
    return Schema(
        name=name,
        description=" ".join(schema.get("description", "").split()),
        fields=[
            Value(
                name=field,
                place="",
                type=describe_type(value),
                required=field in required,
                description=value.get("description", ""),
            )
            for field, value in schema.get("properties", {}).items()
        ],
    )


def describe_type(schema: JsonObject) -> str:
    """Return the type of a schema in words."""
    if name := _name(schema):
        return name
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(describe_type(part) for part in schema[union]))
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        return f"list of {describe_type(schema.get('items', {}))}"
    kind = str(schema.get("type", "any"))
    return f"{kind} ({schema['format']})" if "format" in schema else kind


def _name(schema: JsonObject) -> str | None:
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None


def _curl(method: str, url: str, parameters: Sequence[Value], bodies: Sequence[Body], *, needs_key: bool) -> str:
    """Return a command that calls an operation, with its required values."""
    query = "&".join(
        f"{parameter.name}={parameter.name.upper()}"
        for parameter in parameters
        if parameter.required and parameter.place == "query"
    )
    words = ["curl", *([] if method == "get" else ["-X", method.upper()])]
    words.append(shlex.quote(f"{url}?{query}" if query else url))
    if needs_key:
        words.append('-H "Authorization: Bearer $KEY"')
    if bodies:
        body = bodies[0]
        words.append(f"-H {shlex.quote(f'Content-Type: {body.media_type}')}")
        is_json = body.media_type == "application/json" and body.example is not None
        words.append(
            f"-d {shlex.quote(json.dumps(json.loads(body.example or '')))}" if is_json else "--data-binary @FILE"
        )
    return " ".join(words)
