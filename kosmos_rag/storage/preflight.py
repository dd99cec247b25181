"""Check that server, role and catalogue isolate the tenants.

The check runs before the first query.

Row-level security fails open for a superuser, for an owner without FORCE, and for a second permissive policy. No query
result shows that, so the preflight reads the catalogue.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from kosmos_rag.core.errors import DatabaseNotReady
from kosmos_rag.storage.expected_catalog import TABLES, Policy, base_name, list_policies, list_privileges
from kosmos_rag.storage.functions import CONTEXT_FUNCTIONS, load_functions, read_functions
from kosmos_rag.storage.migrate import REVISION, describe_older_line, list_columns
from kosmos_rag.storage.placement import ClusterNode
from kosmos_rag.storage.provision import APP, BACKUP, OWNER, WORKER
from kosmos_rag.storage.sql import list_used_names, statement

_LOG = logging.getLogger(__name__)

MIN_SERVER = 160000
MIN_VECTOR = (0, 8, 0)
_ATTRIBUTES = ("SUPERUSER", "BYPASSRLS", "CREATEROLE", "REPLICATION")
"""Attributes of `reachable_roles`, none of which a serving role may have or reach."""
_DANGERS = {
    OWNER: "may drop the policies",
    WORKER: "reads all rows of a tenant",
    BACKUP: "reads the rows of every tenant",
}
_READ_ONLY = ("in_hot_standby", "default_transaction_read_only")
_RESTORE = "restore it as the migrations make it"
_MIGRATE = "run `kosmos-rag migrate`"


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
    warnings: tuple[str, ...] = ()
    """What the migrations did not make, and what may be meant."""
    read_only: bool = False
    """Whether it is a replica, or refuses changes by its settings."""
    nodes: tuple[ClusterNode, ...] = ()
    """The nodes of a cluster. One that is down is no problem of the others, so it is not among `problems`."""

    @property
    def unavailable_nodes(self) -> tuple[ClusterNode, ...]:
        """Return the nodes that the coordinator does not reach."""
        return tuple(node for node in self.nodes if not node.available)


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


def _role_problems(server: dict[str, object], roles: Sequence[tuple[Any, ...]], expected: str) -> list[str]:
    """Return the roles and attributes that the connection must not have.

    It may act as itself and as the expected role.
    """
    role = server["role"]
    remedy = f"connect as {expected} or a role that is a member of it alone"
    if server["is_superuser"]:
        return [f"role {role} is a superuser, and row-level security does not apply to superusers; {remedy}"]
    problems = []
    if expected not in {name for name, *_ in roles}:
        problems.append(f"role {role} is not a member of {expected}; {remedy}")
    for name, *attributes in roles:
        rights = [f"has {right}" for right, has in zip(_ATTRIBUTES, attributes, strict=True) if has]
        if name in {role, server["login"], expected}:
            problems += [f"role {name} {right}; {remedy}" for right in rights]
        else:
            reasons = [_DANGERS[name]] if name in _DANGERS else rights
            clause = f", which {' and '.join(reasons)}" if reasons else ""
            problems.append(f"role {role} is a member of {name}{clause}; {remedy}")
    return problems


class _CatalogueCheck:
    """Compares the catalogue with what the migrations create.

    In a newer schema it compares only the objects that this code uses: a newer revision may add others.
    """

    def __init__(self, connection: psycopg.Connection, *, expected_role: str, newer: bool) -> None:
        self._connection = connection
        self._expected_role = expected_role
        self._newer = newer

    def problems(self) -> list[str]:
        """Return every difference with its remedy."""
        self._connection.execute(statement("set_catalog_search_path"))
        return [
            *(
                f"table kosmos.{table} has row-level security off or not forced; {_RESTORE}"
                for (table,) in self._rows(statement("unprotected_tables"))
            ),
            *self._policy_problems(),
            *self._owner_problems(),
            *self._privilege_problems(),
            *(
                f"role {role} is a member of {BACKUP}, which reads all tenants; REVOKE {BACKUP} FROM {role}"
                for (role,) in self._all(statement("backup_members"))
            ),
            *self._function_problems(),
            *self._view_problems(),
            *(
                f"{kind} {name} on kosmos.{table} is not of the migrations; drop it"
                for table, kind, name in self._rows(statement("triggers_and_rules"))
            ),
            *(
                f"{kind} {owner} sets {name}, which changes whose rows a session reads; ALTER {kind.upper()} … RESET it"
                for kind, owner, name in self._all(statement("unsafe_settings"))
            ),
            *(
                f"operator {name} is not of the migrations; drop it"
                for (name,) in self._all(statement("foreign_operators"))
            ),
            *(
                f"table kosmos.{table} has rows without a tenant or readers; {_RESTORE}"
                for (table,) in self._rows(statement("nullable_acls"))
            ),
            *(
                f"table {other} is a parent or a child of kosmos.{table}, and has policies of its own; "
                "end it with ALTER TABLE … NO INHERIT"
                for table, other in self._rows(statement("outside_relatives"))
            ),
        ]

    def _all(self, query: LiteralString) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def _rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        """Return the rows of a statement about the objects compared.

        The first column names the object.
        """
        # Of the tables, wings use those that the kernel does not.
        return [row for row in self._all(query) if not self._newer or base_name(row[0]) in TABLES | list_used_names()]

    def _policy_problems(self) -> list[str]:
        tables: dict[tuple[str, bool], set[Policy]] = {}
        for table, partition, *policy in self._rows(statement("policies")):
            policies = tables.setdefault((table, partition), set())
            if policy[0] is not None:
                policies.add(Policy(*policy))
        problems = []
        for (table, partition), policies in tables.items():
            if base_name(table) not in TABLES:
                problems.append(f"table kosmos.{table} is not of the migrations; drop it, or move it to another schema")
                continue
            expected = list_policies(table, partition=partition)
            problems += [
                f"policy {name} on kosmos.{table} is not as migrated; {_RESTORE}"
                for name in sorted(policy.name for policy in policies - expected)
            ]
            problems += [
                f"policy {name} on kosmos.{table} is missing; {_RESTORE}"
                for name in sorted({policy.name for policy in expected} - {policy.name for policy in policies})
            ]
        return problems

    def _owner_problems(self) -> list[str]:
        return [
            f"{kind} kosmos.{name} belongs to {owner}, which may change what protects it; make {OWNER} its owner"
            for name, kind, owner in self._rows(statement("foreign_owners"))
        ] + [
            f"role {role} may create objects in the schema kosmos; REVOKE CREATE ON SCHEMA kosmos from it and PUBLIC"
            for (role,) in self._all(statement("schema_creators"))
        ]

    def _privilege_problems(self) -> list[str]:
        excess: dict[tuple[str, str], list[str]] = {}
        for table, role, privilege in self._rows(statement("table_privileges")):
            # A login has the privileges of the role that it is a member of.
            if privilege not in list_privileges(role if role in {APP, WORKER} else self._expected_role, table):
                excess.setdefault((table, role), []).append(privilege)
        return [
            f"role {role} has {', '.join(privileges)} on kosmos.{table}, which no migration grants; "
            "REVOKE it from the role and from PUBLIC"
            for (table, role), privileges in excess.items()
        ]

    def _function_problems(self) -> list[str]:
        problems, missing = [], set(load_functions())
        for function in read_functions(self._connection):
            if function.is_declared:
                missing.discard(function.name)
            if self._newer and function.name not in CONTEXT_FUNCTIONS:
                continue  # a newer revision may have replaced it
            if function.definer:
                problems.append(f"function kosmos.{function.signature} is SECURITY DEFINER; {_MIGRATE}")
            elif not function.is_declared:
                problems.append(f"function kosmos.{function.signature} has no file in this version; {_MIGRATE}")
            elif not function.is_current:
                problems.append(f"function kosmos.{function.signature} differs from its file; {_MIGRATE}")
        problems += [
            f"function kosmos.{name} is missing; {_MIGRATE}"
            for name in sorted(missing)
            if not self._newer or name in CONTEXT_FUNCTIONS | list_used_names()
        ]
        return problems + [
            f"function {name} runs with the rights of {owner}, which our policies do not bind; "
            "make it SECURITY INVOKER, or revoke EXECUTE from PUBLIC"
            for name, owner in self._all(statement("definer_functions"))
        ]

    def _view_problems(self) -> list[str]:
        views = [f"kosmos.{name}" for (name,) in self._rows(statement("leaking_relations"))]
        views += [name for (name,) in self._all(statement("outside_views"))]
        return [f"view {name} shows the rows of every tenant; drop it" for name in views]


def inspect(connection: psycopg.Connection, expected_role: str) -> ServerState:
    """Check server, role and catalogue as the connected role."""
    with connection.cursor(row_factory=dict_row) as cursor:
        server = cursor.execute(statement("server")).fetchone()
    assert server is not None
    roles = connection.execute(statement("reachable_roles")).fetchall()
    of_role = _role_problems(server, roles, expected_role)
    problems = _server_problems(server) + of_role
    apart = False if of_role else None
    warnings: list[str] = []
    revision = None
    if connection.execute(statement("schema_exists")).fetchone() != (True,):
        problems.append("the database has no kosmos schema yet; run `kosmos-rag migrate`")
    elif not problems:
        revision, oldest = _revision(connection)
        if not (problems := _revision_problems(revision, oldest)):
            check = _CatalogueCheck(connection, expected_role=expected_role, newer=revision != REVISION)
            problems = check.problems()
            apart = not problems
            warnings = [warning for (warning,) in connection.execute(statement("unusual_objects"))]
            if revision == REVISION:
                warnings += _added_columns(connection)
    connection.rollback()
    return ServerState(
        server_version=server["server_version"],
        vector_version=server["vector_version"],
        role=server["role"],
        revision=revision,
        problems=tuple(problems),
        apart=apart,
        warnings=tuple(warnings),
        read_only="on" in {connection.info.parameter_status(name) for name in _READ_ONLY},
    )


def _added_columns(connection: psycopg.Connection) -> list[str]:
    tables = list_columns()
    columns = [f"{table}.{column}" for table, names in tables.items() for column in names]
    return [
        f"column {column} of kosmos.{table} is not of the migrations; drop it, unless you made it"
        for table, column in connection.execute(
            statement("added_columns"), {"tables": list(tables), "columns": columns}
        )
    ]


def _revision(connection: psycopg.Connection) -> tuple[str | None, str | None]:
    """Return the revision, and the oldest compatible revision of code."""
    try:
        row = connection.execute(statement("revision")).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        # After a downgrade to base: the grants are gone with the tables.
        connection.rollback()
        return None, None
    return row or (None, None)


def _revision_problems(revision: str | None, oldest: str | None) -> list[str]:
    if revision is not None and (older_line := describe_older_line(revision)):
        return [older_line]
    if revision is None or revision < REVISION:
        return [f"the database is at revision {revision} and the code needs {REVISION}; run `kosmos-rag migrate`"]
    if oldest is not None and oldest > REVISION:
        needs = f"needs code of {oldest} or newer, and this is of {REVISION}"
        return [f"the database is at revision {revision}, which {needs}; install a newer kosmos-rag"]
    return []


def require(connection: psycopg.Connection, expected_role: str) -> None:
    """Raise DatabaseNotReady with all problems, unless the server is ready."""
    state = inspect(connection, expected_role)
    if state.problems:
        raise DatabaseNotReady(list(state.problems))
    for warning in state.warnings:
        _LOG.warning("%s", warning, extra={"action": "preflight_warning"})
