"""Check before the first query that server, role and catalogue isolate the tenants.

Row-level security fails open for a superuser, for an owner without FORCE, and for a second permissive policy. No query
result shows that, so the preflight reads the catalogue.
"""

import re
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.errors import DatabaseNotReady
from kosmos_rag.storage.migrate import REVISION
from kosmos_rag.storage.provision import APP, OWNER, WORKER
from kosmos_rag.storage.sql import statement, used

MIN_SERVER = 160000
MIN_VECTOR = (0, 8, 0)
_PARTITION = re.compile(r"_(?:default|\d+(?:_\d+)*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """Result of a preflight. `problems` is empty if the server is ready."""

    server_version: int
    vector_version: str | None
    role: str
    revision: str | None
    problems: tuple[str, ...]
    apart: bool | None
    """True if role and catalogue isolate the tenants; None for an unknown catalogue."""


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _server_problems(server: dict[str, object]) -> list[str]:
    problems = []
    number = server["server_version"]
    assert isinstance(number, int)
    if number < MIN_SERVER:
        problems.append(f"PostgreSQL {number // 10000} is too old; use 16 or newer")
    vector, available = server["vector_version"], server["vector_available"]
    if vector is None:
        remedy = "run `kosmos-rag migrate`" if available else "install pgvector 0.8 or newer on the server"
        problems.append(f"the extension `vector` is missing from this database; {remedy}")
    elif _version(str(vector)) < MIN_VECTOR:
        problems.append(f"pgvector {vector} is too old; install 0.8 or newer and run ALTER EXTENSION vector UPDATE")
    return problems


def _role_problems(server: dict[str, object], expected: str) -> list[str]:
    role, groups = server["role"], server["member_of"]
    assert isinstance(groups, list)
    instead = f"connect as {expected} or a role that is a member of it alone"
    if server["is_superuser"]:
        return [f"role {role} is a superuser, and row-level security does not hold for superusers; {instead}"]
    problems = []
    if server["bypasses_rls"]:
        problems.append(f"role {role} has BYPASSRLS; {instead}")
    if expected not in groups:
        problems.append(f"role {role} is not a member of {expected}; {instead}")
    if OWNER in groups:
        problems.append(f"role {role} is a member of {OWNER}, which may drop the policies; {instead}")
    if expected == APP and WORKER in groups:
        problems.append(f"role {role} is a member of {WORKER}, which reads all rows of a tenant; {instead}")
    return problems


def _catalogue_problems(connection: psycopg.Connection, *, newer: bool) -> list[str]:
    """Return problems of tables and policies.

    In a newer schema only of those that this code uses.
    """

    def rows(name: str) -> list[tuple[Any, ...]]:
        result = connection.execute(statement(name)).fetchall()
        return [row for row in result if not newer or _PARTITION.sub("", row[0]) in used()]

    remedy = "restore it as the migrations make it"
    problems = [
        f"table kosmos.{table} has row-level security off or not forced; {remedy}"
        for (table,) in rows("unprotected_tables")
    ]
    problems += [f"policy {p} on kosmos.{t} is not as migrated; {remedy}" for t, p in rows("unexpected_policies")]
    problems += [f"policy {p} on kosmos.{t} is missing; {remedy}" for t, p in rows("missing_policies")]
    problems += [
        f"role {r} may do more with the log kosmos.{t} than append; {remedy}" for t, r in rows("writable_audit_tables")
    ]
    problems += [f"view kosmos.{v} shows the rows of every tenant; drop it" for (v,) in rows("leaking_relations")]
    return problems


def inspect(connection: psycopg.Connection, expected_role: str) -> ServerState:
    """Check server, role and catalogue as the connected role."""
    with connection.cursor(row_factory=dict_row) as cursor:
        server = cursor.execute(statement("server")).fetchone()
    assert server is not None
    of_role = _role_problems(server, expected_role)
    problems = _server_problems(server) + of_role
    apart = False if of_role else None
    revision = None
    if connection.execute(statement("schema_exists")).fetchone() != (True,):
        problems.append("the database has no kosmos schema yet; run `kosmos-rag migrate`")
    elif not problems:
        revision, oldest = _revision(connection)
        if not (problems := _revision_problems(revision, oldest)):
            problems = _catalogue_problems(connection, newer=revision != REVISION)
            apart = not problems
    connection.rollback()
    return ServerState(
        server_version=server["server_version"],
        vector_version=server["vector_version"],
        role=server["role"],
        revision=revision,
        problems=tuple(problems),
        apart=apart,
    )


def _revision(connection: psycopg.Connection) -> tuple[str | None, str | None]:
    """Return the revision of the database, and the oldest revision whose code can serve from it."""
    try:
        row = connection.execute(statement("revision")).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        # After a downgrade to base: the grants are gone with the tables.
        connection.rollback()
        return None, None
    return row or (None, None)


def _revision_problems(revision: str | None, oldest: str | None) -> list[str]:
    if revision is None or revision < REVISION:
        return [f"the database is at revision {revision} and the code needs {REVISION}; run `kosmos-rag migrate`"]
    if oldest is not None and oldest > REVISION:
        needs = f"needs code of {oldest} or newer, and this is of {REVISION}"
        return [f"the database is at revision {revision}, which {needs}; install a newer kosmos-rag"]
    return []


def require(connection: psycopg.Connection, expected_role: str) -> None:
    """Raise DatabaseNotReady with every problem and its remedy, unless the server is ready."""
    state = inspect(connection, expected_role)
    if state.problems:
        raise DatabaseNotReady(list(state.problems))
