"""Run validated queries in a read-only transaction.

They have limits of time, rows and bytes.
"""

import sqlite3
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import QUERY_CANCELED, DatabaseNotReady, RequestError, StatementFailed
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.catalog.sources.database import connect_read_only, create_read_only_engine
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.records import QueryResult, json_row
from kosmos_rag.text2sql.sql.exposure import check_exposure
from kosmos_rag.text2sql.sql.quoting import quote_table
from kosmos_rag.text2sql.sql.validate import CheckedQuery, check_query

if TYPE_CHECKING:
    from sqlalchemy import Connection, CursorResult, TextClause

_DIALECTS = ("postgresql", "sqlite")
_SQLITE_STEPS = 1_000
"""Instructions of SQLite's machine between two looks at the clock: some microseconds."""
_SQLITE_BYTES = 1_000_000
"""The longest value or row. SQLite makes them in this process, and looks at no clock while it makes one."""

_BATCH_ROWS = 32
"""Rows that one batch has at most: what is in memory beyond the limit of bytes."""
_DECLARE = "DECLARE query_rows NO SCROLL CURSOR FOR "
_FETCH = f"FETCH FORWARD {_BATCH_ROWS} FROM query_rows"

_SETTINGS = """
SELECT set_config('statement_timeout', :limit, true), set_config('lock_timeout', :limit, true),
       set_config('standard_conforming_strings', 'on', true), set_config('cursor_tuple_fraction', '1', true),
       set_config('timezone', 'UTC', true), set_config('work_mem', '4MB', true)
"""
"""The third: the query is written for texts in which a backslash means itself. The fourth: a cursor has the plan of
the query alone. The fifth: conditions of grounding mean days in UTC. The last: sorts and hashes of many queries at once
go to the disk, whatever the server allows one."""
_EXPLAIN = {"postgresql": "EXPLAIN (FORMAT JSON) ", "sqlite": "EXPLAIN QUERY PLAN "}
_ROLE_PRIVILEGES = """
SELECT rolsuper,
       (SELECT coalesce(array_agg(granted), '{}') FROM unnest(ARRAY[
           'pg_write_all_data', 'pg_write_server_files', 'pg_read_server_files', 'pg_execute_server_program'
       ]) AS granted WHERE pg_has_role(current_user, granted, 'MEMBER')),
       (SELECT coalesce(array_agg(written), '{}') FROM unnest(CAST(:tables AS text[])) AS written
         WHERE has_table_privilege(written, 'INSERT, UPDATE, DELETE, TRUNCATE')
            OR has_any_column_privilege(written, 'INSERT, UPDATE'))
  FROM pg_roles WHERE rolname = current_user
"""
_OVERLOADS = """
SELECT p.proname FROM pg_proc p
 WHERE p.proname = ANY(CAST(:functions AS text[])) AND p.pronamespace <> CAST('pg_catalog' AS regnamespace)
   AND pg_function_is_visible(p.oid) AND NOT EXISTS (
       SELECT FROM pg_depend d
        WHERE d.classid = CAST('pg_proc' AS regclass) AND d.objid = p.oid AND d.deptype = 'e')
 UNION
SELECT o.oprname FROM pg_operator o
 WHERE position(CAST(o.oprname AS text) IN CAST(:sql AS text)) > 0
   AND o.oprnamespace <> CAST('pg_catalog' AS regnamespace) AND pg_operator_is_visible(o.oid)
   AND NOT EXISTS (
       SELECT FROM pg_depend d
        WHERE d.classid = CAST('pg_operator' AS regclass) AND d.objid = o.oid AND d.deptype = 'e')
"""
"""Functions and operators of somebody's own that are found by the names that the query has: those of the server and
of extensions are not meant. A closer match of types is taken before the server's own (CVE-2018-1058)."""
_COLUMNS = """
SELECT t.full_name, a.attname
  FROM unnest(CAST(:names AS text[]), CAST(:tables AS text[])) AS t(full_name, written)
  JOIN pg_attribute a ON a.attrelid = to_regclass(t.written) AND a.attnum > 0 AND NOT a.attisdropped
"""
_SQLITE_COLUMNS = "SELECT x.name FROM pragma_table_xinfo(:name) AS x"
_WRITE_NODES = {"ModifyTable", "LockRows"}


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryLimits:
    """Limits of a query."""

    timeout_ms: int = 5_000
    max_rows: int = 1_000
    max_bytes: int = 1_000_000
    """Size of the returned rows as JSON in UTF-8."""
    max_cost: int = 10_000_000
    """Cost that PostgreSQL expects, in the units of its planner. SQLite expects none."""

    def __post_init__(self) -> None:
        """Raise RequestError on a limit below one."""
        if min(self.timeout_ms, self.max_rows, self.max_bytes, self.max_cost) < 1:
            raise RequestError("limits of a query: timeout_ms, max_rows, max_bytes and max_cost are at least 1")


class ReadOnlyDatabase:
    """A database that answers checked queries.

    Its URL names a role that may read and not write.
    """

    def __init__(
        self, url: str, schema: DatabaseSchema, *, limits: QueryLimits | None = None, functions: Collection[str] = ()
    ) -> None:
        """Configure access; connects on `run` only.

        Args:
            schema: The tables and columns that queries may use.
            limits: Limits of time, rows and bytes.
            functions: Names of functions allowed in addition to functions.txt, as in `check_query`.

        Raises:
            ConfigError: The URL cannot be used.
            RequestError: The dialect is neither postgresql nor sqlite.
        """
        self._engine = create_read_only_engine(url)
        # Names are resolved by the rules of this database, not of the schema's origin.
        self._schema = replace(schema, dialect=self._engine.dialect.name)
        self._limits = limits or QueryLimits()
        self._functions = frozenset(functions)
        if self._engine.dialect.name not in _DIALECTS:
            raise RequestError(
                f"queries on {self._engine.dialect.name} cannot be guarded: use {' or '.join(_DIALECTS)}"
            )

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> QueryResult:
        """Check and run a query.

        Raises:
            QueryRefused: The query breaks a rule.
            DatabaseNotReady: The role may write.
            DatabaseUnavailable: The database cannot be reached.
            StatementFailed: The database stops the query; `sqlstate` 57014 is the time limit.
        """
        query = check_query(
            sql,
            self._schema,
            parameters=parameters,
            functions=self._functions,
            max_rows=self._limits.max_rows + 1,  # one more row shows whether the result is truncated
        )
        started = time.monotonic()
        with connect_read_only(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                columns_of = self._prepare_postgresql(connection, query)
            else:
                columns_of = self._prepare_sqlite(connection, query)
            check_exposure(query.analysis, self._schema, columns_of)
            self._check_plan(connection, query)
            columns, streamed = _execute(connection, query)
            with closing(streamed):
                rows, truncated = self._fetch(streamed, started)
        return QueryResult(
            sql=query.sql,
            columns=columns,
            tables=query.analysis.tables,
            used_columns=query.analysis.columns,
            rows=rows,
            truncated=truncated,
            milliseconds=round((time.monotonic() - started) * 1000, 1),
        )

    def _fetch(self, rows: Iterable[Sequence[Any]], started: float) -> tuple[tuple[tuple[Any, ...], ...], bool]:
        """Return the rows within the limits, and whether there were more.

        No row is requested after a limit is reached. Raises StatementFailed when the time is over: the server limits
        each batch of rows, not all of them.
        """
        fetched: list[tuple[Any, ...]] = []
        size = 0
        for row in rows:
            if time.monotonic() - started > self._limits.timeout_ms / 1000:
                raise StatementFailed("the query takes too long: ask for less", sqlstate=QUERY_CANCELED)
            size += len(to_json(json_row(row)))
            if len(fetched) == self._limits.max_rows or size > self._limits.max_bytes:
                return tuple(fetched), True
            fetched.append(tuple(row))
        return tuple(fetched), False

    def _prepare_postgresql(self, connection: "Connection", query: CheckedQuery) -> dict[str, set[str]]:
        """Set limits, check the role, and return the tables' columns."""
        from sqlalchemy import text

        connection.execute(text(_SETTINGS), {"limit": str(self._limits.timeout_ms)})
        tables_by_name = {use.table.full_name: quote_table(use.table) for use in query.analysis.uses}
        tables = {"names": list(tables_by_name), "tables": list(tables_by_name.values())}
        superuser, dangerous_roles, writable = connection.execute(text(_ROLE_PRIVILEGES), tables).one()
        problems = ["the role is a superuser"] if superuser else []
        if not superuser:  # who may do everything
            problems += [f"the role is a member of {role}" for role in dangerous_roles]
            problems += [f"the role may write {table}" for table in writable]
        if problems:
            raise DatabaseNotReady([*problems, "log in as a role that may only read"])
        self._check_overloads(connection, query)
        return _group_columns(connection.execute(text(_COLUMNS), tables))

    def _check_overloads(self, connection: "Connection", query: CheckedQuery) -> None:
        from sqlalchemy import text

        values = {"functions": list(query.functions), "sql": query.sql}
        if overloads := sorted(set(connection.execute(text(_OVERLOADS), values).scalars()) - self._functions):
            raise QueryRefused(
                "function",
                one_line(
                    f"the database defines a function {overloads[0]}, which may be called instead: use another one"
                ),
            )

    def _prepare_sqlite(self, connection: "Connection", query: CheckedQuery) -> dict[str, set[str]]:
        """Set the limits, and return the tables' columns."""
        from sqlalchemy import text

        deadline = time.monotonic() + self._limits.timeout_ms / 1000
        driver: Any = connection.connection.driver_connection
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_BYTES)
        driver.set_progress_handler(lambda: time.monotonic() > deadline, _SQLITE_STEPS)
        tables = {use.table.full_name: use.table.name for use in query.analysis.uses}
        column_query = text(_SQLITE_COLUMNS)
        return {full: set(connection.execute(column_query, {"name": name}).scalars()) for full, name in tables.items()}

    def _check_plan(self, connection: "Connection", query: CheckedQuery) -> None:
        """Have the database plan the query, and refuse plans that write or cost too much.

        A function may look at no clock while it works, so the time limit alone does not stop every query in time.
        """
        from sqlalchemy import text

        explain = text(_EXPLAIN[connection.dialect.name] + query.sql)
        plan = self._explain(connection, explain, query.parameters)
        if writes := _WRITE_NODES & set(_plan_nodes(plan)):
            raise QueryRefused("plan", f"the plan of the query has {', '.join(sorted(writes))}: only SELECT is run")
        if connection.dialect.name == "postgresql" and (cost := plan[0]["Plan"]["Total Cost"]) > self._limits.max_cost:
            allowed = f"and {self._limits.max_cost} is allowed"
            remedy = "ask for fewer rows, or raise text2sql.max_cost"
            raise QueryRefused("cost", f"the planner expects a cost of {cost:.0f}, {allowed}: {remedy}")

    def _explain(self, connection: "Connection", explain: "TextClause", parameters: Mapping[str, Any]) -> Any:
        from sqlalchemy.exc import DBAPIError

        try:
            return connection.execute(explain, dict(parameters)).scalar()
        except DBAPIError as error:
            code = getattr(error.orig, "sqlstate", None)
            if error.connection_invalidated or code == QUERY_CANCELED:
                raise
            raise QueryRefused(
                "plan", one_line(f"the database cannot plan the query ({str(error.orig).splitlines()[0]}); correct it")
            ) from error


def _execute(
    connection: "Connection", query: CheckedQuery
) -> tuple[tuple[str, ...], Generator[Sequence[Any], None, None]]:
    """Return the names of the columns, and rows computed when read."""
    from sqlalchemy import text

    if connection.dialect.name == "postgresql":
        declaration = _DECLARE + query.sql
        connection.execute(text(declaration), dict(query.parameters))
        result = connection.execute(text(_FETCH))
        return tuple(result.keys()), _read_batches(connection, result)
    result = connection.execute(text(query.sql), dict(query.parameters))
    return tuple(result.keys()), (row for row in result)


def _read_batches(connection: "Connection", result: "CursorResult[Any]") -> Generator[Sequence[Any], None, None]:
    from sqlalchemy import text

    while True:
        batch = result.all()
        yield from batch
        if len(batch) < _BATCH_ROWS:
            return
        result = connection.execute(text(_FETCH))


def _group_columns(rows: Iterable[Any]) -> dict[str, set[str]]:
    """Return the columns of each table."""
    columns: dict[str, set[str]] = {}
    for table, column in rows:
        columns.setdefault(table, set()).add(column)
    return columns


def _plan_nodes(plan: Any) -> Iterator[str]:
    """Yield the types of all nodes of a JSON plan."""
    if isinstance(plan, dict):
        if "Node Type" in plan:
            yield plan["Node Type"]
        plan = list(plan.values())
    if isinstance(plan, list):
        for part in plan:
            yield from _plan_nodes(part)
