"""Schemas as JSON. All faults are reported at once, with paths."""

import json
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.section import Section
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, ForeignKey, Relationship, TableSchema
from kosmos_rag.text2sql.errors import SchemaInvalid


def read_json(path: Path) -> Any:
    """Read a JSON file.

    Raises:
        SchemaInvalid: The file cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
    except RecursionError:
        problem = "it is nested too deep"
    except ValueError as error:  # malformed, or not UTF-8
        problem = f"it is no JSON ({error})"
    raise SchemaInvalid(f"file {path}", [problem])


Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(pattern=r"^[^\x00]+$")]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class _Column(Section):
    name: Name
    type: Text = ""
    nullable: bool = True
    default: Text | None = None
    description: Text | None = None
    enum: tuple[Text, ...] = ()
    labels: dict[Text, Text] = Field(default={}, description="Meanings of values that are codes.")
    samples: tuple[Text, ...] = ()
    aliases: tuple[Name, ...] = ()


class _ForeignKey(Section):
    columns: Names
    table: Name = Field(description="Full name of the table referred to: schema.table, or table alone.")
    target: Names = Field(description="Its columns, in the order of `columns`.")


class _Relationship(Section):
    name: Name
    table: Name = Field(description="Full name of the table of the model that it leads to.")


class _Model(Section):
    table: Name
    schema_name: Name | None = Field(default=None, alias="schema", description="Namespace within the database.")
    model: Name | None = Field(default=None, description="Name of the class that is mapped to the table.")
    module: Name | None = Field(default=None, description="Where the class is defined: the first part of the ids.")
    source_file: Name | None = None
    description: Text | None = None
    aliases: tuple[Name, ...] = Field(default=(), description="What people call a row.")
    columns: Annotated[tuple[_Column, ...], Field(min_length=1)]
    primary_key: tuple[Name, ...] = ()
    foreign_keys: tuple[_ForeignKey, ...] = ()
    unique: tuple[Names, ...] = ()
    relationships: tuple[_Relationship, ...] = ()


class _Schema(Section):
    name: Name = Field(description="Name of the database.")
    dialect: Name | None = Field(default=None, description="postgresql, sqlite, …")
    description: Text | None = None
    models: tuple[_Model, ...]


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of `from_json`; docs/schema.schema.json holds it."""
    return {"title": "Schema of a database", **_drop_titles(_Schema.model_json_schema())}


def _drop_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """Remove titles, which are names of the code."""
    schema.pop("title", None)
    for model in schema["$defs"].values():
        model.pop("title", None)
    for model in (schema, *schema["$defs"].values()):
        for field in model["properties"].values():
            field.pop("title", None)
    return schema


def from_json(source: Path | Mapping[str, Any]) -> DatabaseSchema:
    """Read a schema from a JSON file or its parsed content.

    Raises:
        SchemaInvalid: The content is invalid; lists all faults, each with its path.
    """
    data: Any = read_json(source) if isinstance(source, Path) else source
    problems: list[str] = []
    parsed = None
    try:
        parsed = _Schema.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        problems += [_problem(detail) for detail in error.errors()]
    except (ValueError, TypeError) as error:
        problems.append(f"$: {error}")
    problems += [one_line(problem) for problem in _contradictions(data)]
    if problems or parsed is None:
        raise SchemaInvalid(f"schema {source}" if isinstance(source, Path) else "schema", problems)
    return DatabaseSchema(
        name=parsed.name,
        dialect=parsed.dialect,
        comment=parsed.description,
        tables=tuple(_table(model) for model in parsed.models),
    )


def to_json(schema: DatabaseSchema) -> str:
    """Write a schema in the layout of `from_json`, without empty values."""
    models = [table_as_json(table, columns=True) for table in schema.tables]
    values = {"name": schema.name, "dialect": schema.dialect, "description": schema.comment}
    data = _drop_empty(values) | {"models": models}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _table(model: _Model) -> TableSchema:
    return TableSchema(
        name=model.table,
        schema=model.schema_name,
        model=model.model,
        module=model.module,
        source_file=model.source_file,
        comment=model.description,
        aliases=model.aliases,
        columns=tuple(
            ColumnSchema(
                **column.model_dump(exclude={"description", "labels"}),
                comment=column.description,
                labels=tuple(column.labels.items()),
            )
            for column in model.columns
        ),
        primary_key=model.primary_key,
        foreign_keys=tuple(ForeignKey(**key.model_dump()) for key in model.foreign_keys),
        unique=model.unique,
        relationships=tuple(Relationship(**item.model_dump()) for item in model.relationships),
    )


def table_as_json(table: TableSchema, *, columns: bool = False) -> dict[str, Any]:
    """Return the JSON object of a table, optionally with its columns."""
    return _drop_empty(
        {
            "table": table.name,
            "schema": table.schema,
            "model": table.model,
            "module": table.module,
            "source_file": table.source_file,
            "description": table.comment,
            "aliases": table.aliases,
            "columns": [column_as_json(column) for column in table.columns] if columns else [],
            "primary_key": table.primary_key,
            "foreign_keys": [
                {"columns": key.columns, "table": key.table, "target": key.target} for key in table.foreign_keys
            ],
            "unique": table.unique,
            "relationships": [{"name": item.name, "table": item.table} for item in table.relationships],
        }
    )


def column_as_json(column: ColumnSchema) -> dict[str, Any]:
    """Return the JSON object of a column."""
    values = _drop_empty(
        {
            "name": column.name,
            "type": column.type,
            "default": column.default,
            "description": column.comment,
            "enum": column.enum,
            "labels": dict(column.labels),
            "samples": column.samples,
            "aliases": column.aliases,
        }
    )
    return values if column.nullable else {**values, "nullable": False}


def _drop_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", (), [], {})}


def _problem(detail: ErrorDetails) -> str:
    path = _path(detail["loc"])
    if detail["type"] == "extra_forbidden":
        near = get_close_matches(str(detail["loc"][-1]), _list_keys(), n=1)
        return one_line(f"{path}: no such key" + (f", did you mean {near[0]}?" if near else ""))
    if detail["type"] == "missing":
        return one_line(f"{path}: missing")
    return one_line(f"{path}: {show(detail['input'])}: {detail['msg']}")


def _path(location: tuple[int | str, ...]) -> str:
    """Format a location as a path: `$.models[1].columns[0].name`."""
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _list_keys() -> list[str]:
    parts: tuple[type[Section], ...] = (_Schema, _Model, _Column, _ForeignKey, _Relationship)
    return sorted({field.alias or name for part in parts for name, field in part.model_fields.items()})


def _contradictions(data: Any) -> Iterator[str]:
    """Find duplicate names and references to missing columns.

    Works on the well-formed part of the data, so that all faults are reported at once.
    """
    models = [
        (f"$.models[{at}]", model) for at, model in enumerate(_get_list(data, "models")) if isinstance(model, dict)
    ]
    tables: dict[str, set[str]] = {}
    for path, model in models:
        name = _full_name(model)
        if name in tables:
            yield f"{path}.table: {name} exists already"
        names = [column.get("name") for column in _get_list(model, "columns") if isinstance(column, dict)]
        for at, column in enumerate(names):
            if column in names[:at]:
                yield f"{path}.columns[{at}].name: {column} exists already"
        tables.setdefault(name, {column for column in names if isinstance(column, str)})
    for path, model in models:
        yield from _dangling_references(path, model, tables)


def _dangling_references(path: str, model: dict[str, Any], tables: Mapping[str, set[str]]) -> Iterator[str]:
    column_names = tables[_full_name(model)]
    yield from _missing_columns(f"{path}.primary_key", _get_list(model, "primary_key"), column_names)
    for at, columns in enumerate(_get_list(model, "unique")):
        yield from _missing_columns(f"{path}.unique[{at}]", columns, column_names)
    for at, key in enumerate(_get_list(model, "foreign_keys")):
        if isinstance(key, dict):
            yield from _dangling_key(f"{path}.foreign_keys[{at}]", key, column_names, tables)
    for at, item in enumerate(_get_list(model, "relationships")):
        if isinstance(item, dict) and isinstance(item.get("table"), str) and item["table"] not in tables:
            yield f"{path}.relationships[{at}].table: there is no table {item['table']}"


def _dangling_key(
    path: str, key: dict[str, Any], known_columns: set[str], tables: Mapping[str, set[str]]
) -> Iterator[str]:
    columns, target, table = _get_list(key, "columns"), _get_list(key, "target"), key.get("table")
    yield from _missing_columns(f"{path}.columns", columns, known_columns)
    if len(columns) != len(target):
        yield f"{path}: {len(columns)} columns refer to {len(target)}"
    if isinstance(table, str):
        if table not in tables:
            yield f"{path}.table: there is no table {table}"
        else:
            yield from _missing_columns(f"{path}.target", target, tables[table])


def _missing_columns(path: str, names: Any, columns: set[str]) -> Iterator[str]:
    for at, name in enumerate(names if isinstance(names, list) else ()):
        if isinstance(name, str) and name not in columns:
            yield f"{path}[{at}]: there is no column {name}"


def _get_list(value: Any, key: str) -> list[Any]:
    entries = value.get(key) if isinstance(value, dict) else None
    return entries if isinstance(entries, list) else []


def _full_name(model: Mapping[str, Any]) -> str:
    return f"{model['schema']}.{model.get('table')}" if model.get("schema") else str(model.get("table"))
