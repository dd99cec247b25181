"""Keep the functions of the database as their files define them.

Each file of sql/functions has one function, written as pg_get_functiondef prints it: so a file and the catalogue of a
server can be compared. Comments before it and white space in its declaration are free.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from kosmos_rag.storage.sql import statement

POLICY_FUNCTIONS = ("current_tenant", "current_principals", "audit_expired_before")
"""Functions that policies call: they exist before the tables, and cannot be dropped while these exist."""

CONTEXT_FUNCTIONS = frozenset({"current_tenant", "current_principals", "set_tenant_context"})
"""Functions that tenant and principals depend on. A revision that changes one of them is listed in `BREAKING`."""

_EXPIRY = "CREATE OR REPLACE FUNCTION kosmos.audit_expired_before()"
_EXPIRY_CONSTANT = re.compile(r"(?<=RETURN )'[^']*'(?=::timestamp with time zone\Z)")
"""Retention replaces the constant of this function in the catalogue."""
_COMMENTS = re.compile(r"\A(?:--.*\n)*")
_NAME = re.compile(r"CREATE OR REPLACE (?:FUNCTION|PROCEDURE) kosmos\.(\w+)\(")


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFunction:
    """A function in the catalogue."""

    name: str
    signature: str
    """Its name with the types of its parameters."""
    definer: bool
    definition: str | None
    """None for an aggregate."""
    removal: str
    """The statement that drops it."""

    @property
    def is_declared(self) -> bool:
        """Return whether a file declares these parameters and this result."""
        text = load_functions().get(self.name)
        return text is not None and _declaration(text) == _declaration(self.definition or "")

    @property
    def is_current(self) -> bool:
        """Return whether the function is as its file defines it."""
        text = load_functions().get(self.name)
        return text is not None and normalize(text) == normalize(self.definition or "")


@cache
def load_functions() -> dict[str, LiteralString]:
    """Return the text of each file by the name of its function.

    Raises:
        ValueError: a file defines another function than the one that it is named for.
    """
    functions: dict[str, LiteralString] = {}
    for file in sorted((files(f"{__package__}.sql") / "functions").iterdir(), key=lambda entry: entry.name):
        text = file.read_text(encoding="utf-8")
        declared = _NAME.findall(text)
        if [f"{name}.sql" for name in declared] != [file.name]:
            raise ValueError(f"functions/{file.name} defines {declared}; a file has the one function of its name")
        functions[declared[0]] = text
    return functions


def normalize(definition: str) -> str:
    """Return a definition without comments and free white space."""
    declaration, marker, body = _COMMENTS.sub("", definition).partition("\nAS $")
    text = " ".join(declaration.split()) + marker + body.rstrip()
    return _EXPIRY_CONSTANT.sub("NULL", text) if text.startswith(_EXPIRY) else text


def _declaration(definition: str) -> str:
    """Return name, parameters and result of a function."""
    return normalize(definition).partition(" LANGUAGE ")[0]


def read_functions(connection: psycopg.Connection) -> list[StoredFunction]:
    """Return the functions in the catalogue.

    The search path must be pg_catalog: the server prints names of types by it.
    """
    with connection.cursor(row_factory=class_row(StoredFunction)) as cursor:
        return cursor.execute(statement("schema_functions")).fetchall()


def apply_functions(connection: psycopg.Connection, names: Collection[str] | None = None) -> tuple[str, ...]:
    """Bring the catalogue to the files; return the changed names.

    It runs in the transaction of the connection, as the owner of the schema.

    Args:
        connection: its search path is the default of the session afterwards.
        names: functions to create or replace; without it all, and those without a file are dropped.
    """
    texts = {name: text for name, text in load_functions().items() if names is None or name in names}
    connection.execute(statement("set_catalog_search_path"))
    # A function may call one that is created after it.
    connection.execute(statement("skip_function_bodies"))
    changed = set()
    for function in read_functions(connection):
        if function.is_current:
            texts.pop(function.name, None)
        elif names is None and not function.is_declared:
            # Parameters and result cannot be replaced.
            connection.execute(sql.SQL(function.removal))
            changed.add(function.name)
    for text in texts.values():
        connection.execute(text)
    connection.execute(statement("reset_search_path"))
    return tuple(sorted(changed | texts.keys()))


def drop_functions(connection: psycopg.Connection, *, keep: Collection[str] = ()) -> None:
    """Drop the functions of the schema but those to keep."""
    connection.execute(statement("set_catalog_search_path"))
    for function in read_functions(connection):
        if function.name not in keep:
            connection.execute(sql.SQL(function.removal))
    connection.execute(statement("reset_search_path"))
