"""The library's statements with values written in, so that any of them can be explained."""

import re

import psycopg
from psycopg import sql

from kosmos_rag.storage.citus import DISTRIBUTED
from tests.statements import TEXTS

_PLACEHOLDER = re.compile(r"%\((\w+)\)[sb]")
# What the server cannot tell from where a value stands: it is selected, and inserted from there.
_TYPES = {
    "tenant_id": "uuid",
    "id": "uuid",
    "index_id": "uuid",
    "space_id": "uuid",
    "collection": "text",
    "acl": "text[]",
    "now": "timestamptz",
    "at": "timestamptz",
    "epoch": "bigint",
    "state": "uuid",
    "previous": "uuid",
    "pivot": "real",
}
_VALUES = {
    "uuid": "'00000000-0000-4000-8000-000000000001'",
    "text": "'$'",  # a jsonpath as well: conditions are texts
    "json": "'{}'",
    "jsonb": "'{}'",
    "integer": "1",
    "bigint": "1",
    "smallint": "1",
    "real": "1",
    "double precision": "1",
    "boolean": "false",
    "bytea": "''",
    "timestamp with time zone": "'2026-01-01'",
    "date": "'2026-01-01'",
    "tsquery": "'words'",
    "tsvector": "'words'",
    "halfvec": "'[1,2,3,4,5,6,7,8]'",
    "sparsevec": "'{1:1}/1000000000'",
}


_OF_ADMINISTRATOR = {"count_tenants", "sample_tenants"}
"""Statements over all tenants, which ask every node."""


def of_distributed_tables() -> list[str]:
    """The names of the statements that read or write the rows of a tenant; a name as a literal reads no row."""
    return [
        name
        for name in sorted(TEXTS)
        if name not in _OF_ADMINISTRATOR and set(re.findall(r"(?<!')\bkosmos\.(\w+)", _code(name))) & DISTRIBUTED
    ]


def _code(name: str) -> str:
    return "\n".join(line for line in TEXTS[name].splitlines() if not line.startswith("--"))


def written_out(connection: psycopg.Connection, statement_name: str, tenant_id: object) -> str:
    """A statement with a value of the right type for each of its parameters."""
    text = _code(statement_name).replace("{dimensions}", "8")
    matches = list(dict.fromkeys(_PLACEHOLDER.findall(text)))
    numbered = _PLACEHOLDER.sub(lambda match: f"${matches.index(match[1]) + 1}", text).replace("%%", "%")
    cast = set(re.findall(r"%\((\w+)\)[sb]::", text))
    types = ", ".join("unknown" if name in cast else _TYPES.get(name, "unknown") for name in matches)
    with connection.transaction(force_rollback=True):
        connection.execute(f"PREPARE told{f' ({types})' if matches else ''} AS {numbered}")
        row = connection.execute(
            "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'told'"
        ).fetchone()
        connection.execute("DEALLOCATE told")
    assert row is not None
    values = {
        parameter: sql.Literal(str(tenant_id)).as_string(connection) if parameter == "tenant_id" else _value(kind)
        for parameter, kind in zip(matches, row[0], strict=True)
    }
    casts = {parameter: f"{values[parameter]}::{kind}" for parameter, kind in zip(matches, row[0], strict=True)}
    return _PLACEHOLDER.sub(lambda match: casts[match[1]], text).replace("%%", "%")


def _value(kind: str) -> str:
    if not kind.endswith("[]"):
        return _VALUES[kind]
    return f"ARRAY[{_VALUES[kind.removesuffix('[]')]}]"
