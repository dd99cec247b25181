"""Checked queries run: in a read-only transaction, as a role that may not write, with a time limit and a row cap."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kosmos_rag.config.display import one_line
from kosmos_rag.errors import DatabaseNotReady, QueryRefused, RequestError
from kosmos_rag.schema.guard import CheckedQuery, check_query
from kosmos_rag.schema.model import DatabaseSchema
from kosmos_rag.schema.quoting import quoted_table
from kosmos_rag.schema.sources.connecting import TIMED_OUT, engine_of, reading

if TYPE_CHECKING:
    from sqlalchemy import Connection, TextClause

_DIALECTS = ("postgresql", "sqlite")
_SQLITE_STEPS = 1_000
"""Instructions of SQLite's machine between two looks at the clock: some microseconds."""

_TIME_LIMIT = "SELECT set_config('statement_timeout', :limit, true), set_config('lock_timeout', :limit, true)"
_EXPLAIN = {"postgresql": "EXPLAIN (FORMAT JSON) ", "sqlite": "EXPLAIN QUERY PLAN "}
_POWERS = """
SELECT rolsuper,
       (SELECT coalesce(array_agg(granted), '{}') FROM unnest(ARRAY[
           'pg_write_all_data', 'pg_write_server_files', 'pg_read_server_files', 'pg_execute_server_program'
       ]) AS granted WHERE pg_has_role(current_user, granted, 'MEMBER')),
       (SELECT coalesce(array_agg(written), '{}') FROM unnest(CAST(:tables AS text[])) AS written
         WHERE has_table_privilege(written, 'INSERT, UPDATE, DELETE, TRUNCATE'))
  FROM pg_roles WHERE rolname = current_user
"""
_WRITING_NODES = {"ModifyTable", "LockRows"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a query may take."""

    timeout_ms: int = 5_000
    max_rows: int = 1_000

    def __post_init__(self) -> None:
        """Raises RequestError on a limit below one."""
        if self.timeout_ms < 1 or self.max_rows < 1:
            raise RequestError("limits of a query: timeout_ms and max_rows are at least 1")


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryResult:
    """Rows of a query."""

    sql: str
    """As it was run, parameters as `:name`."""
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool
    """Whether there were more rows than the cap."""
    seconds: float


class GuardedDatabase:
    """A database that answers checked queries. Its URL names a role that may read, and not write."""

    def __init__(
        self, url: str, schema: DatabaseSchema, *, limits: Limits | None = None, functions: Collection[str] = ()
    ) -> None:
        """Connect to nothing yet. `functions` as in `check_query`.

        Raises ConfigError on a URL that cannot be used, RequestError on a database that cannot be guarded.
        """
        self._engine = engine_of(url)
        self._schema = schema
        self._limits = limits or Limits()
        self._functions = frozenset(functions)
        if self._engine.dialect.name not in _DIALECTS:
            raise RequestError(
                f"queries on {self._engine.dialect.name} cannot be guarded: use {' or '.join(_DIALECTS)}"
            )

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> QueryResult:
        """Run a query.

        Raises QueryRefused where it breaks a rule, DatabaseNotReady where the role may write, DatabaseUnavailable
        where the database cannot be reached, StatementFailed where it stops the query (`sqlstate` 57014: out of time).
        """
        from sqlalchemy import text

        query = check_query(
            sql,
            self._schema,
            parameters=parameters,
            functions=self._functions,
            max_rows=self._limits.max_rows + 1,  # one more tells that there are more
        )
        started = time.monotonic()
        with reading(self._engine) as connection:
            if connection.dialect.name == "postgresql":
                self._prepare_postgresql(connection, query)
            else:
                self._prepare_sqlite(connection)
            self._plan(connection, query)
            result = connection.execute(text(query.sql), dict(query.parameters))
            columns = tuple(result.keys())
            rows = [tuple(row) for row in result]
        return QueryResult(
            sql=query.sql,
            columns=columns,
            rows=tuple(rows[: self._limits.max_rows]),
            truncated=len(rows) > self._limits.max_rows,
            seconds=time.monotonic() - started,
        )

    def _prepare_postgresql(self, connection: "Connection", query: CheckedQuery) -> None:
        from sqlalchemy import text

        connection.execute(text(_TIME_LIMIT), {"limit": str(self._limits.timeout_ms)})
        names = [quoted_table(table) for name in query.reading.tables if (table := self._schema.table(name))]
        superuser, granted, written = connection.execute(text(_POWERS), {"tables": names}).one()
        problems = ["the role is a superuser"] if superuser else []
        if not superuser:  # who may do everything
            problems += [f"the role is a member of {role}" for role in granted]
            problems += [f"the role may write {table}" for table in written]
        if problems:
            raise DatabaseNotReady([*problems, "log in as a role that may only read"])

    def _prepare_sqlite(self, connection: "Connection") -> None:
        deadline = time.monotonic() + self._limits.timeout_ms / 1000
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > deadline, _SQLITE_STEPS)

    def _plan(self, connection: "Connection", query: CheckedQuery) -> None:
        """Have the database plan the query: what it does not understand is refused before it runs."""
        from sqlalchemy import text

        explain = text(_EXPLAIN[connection.dialect.name] + query.sql)
        plan = self._explained(connection, explain, query.parameters)
        if writing := _WRITING_NODES & set(_nodes(plan)):
            raise QueryRefused("plan", f"the plan of the query has {', '.join(sorted(writing))}: only SELECT is run")

    def _explained(self, connection: "Connection", explain: "TextClause", parameters: Mapping[str, Any]) -> Any:
        from sqlalchemy.exc import DBAPIError

        try:
            return connection.execute(explain, dict(parameters)).scalar()
        except DBAPIError as error:
            code = getattr(error.orig, "sqlstate", None)
            if error.connection_invalidated or code == TIMED_OUT:
                raise
            raise QueryRefused(
                "plan", one_line(f"the database cannot plan the query ({str(error.orig).splitlines()[0]}); correct it")
            ) from error


def _nodes(plan: Any) -> Iterator[str]:
    """Give the types of all nodes of a plan in JSON."""
    if isinstance(plan, dict):
        if "Node Type" in plan:
            yield plan["Node Type"]
        plan = list(plan.values())
    if isinstance(plan, list):
        for part in plan:
            yield from _nodes(part)
