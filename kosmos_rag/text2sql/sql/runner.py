"""Run queries of readers on described databases.

Nothing runs unless `text2sql.databases` names the database for the tenant and the collection.
"""

import os
import time
from collections.abc import Mapping
from typing import Any

from kosmos_rag.core.errors import ConfigError, NotFound, StatementFailed
from kosmos_rag.core.types import AuditKind, AuditOutcome
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.text2sql.catalog.model import DatabaseSchema
from kosmos_rag.text2sql.errors import QueryRefused
from kosmos_rag.text2sql.records import QueryResult
from kosmos_rag.text2sql.settings import Text2SqlSettings
from kosmos_rag.text2sql.sql.execute import QueryLimits, ReadOnlyDatabase


class QueryRunner:
    """Runs queries of one reader. Thread-safe."""

    def __init__(self, tenant: Tenant, collection: str) -> None:
        """Keep the tenant; nothing is opened before `run`.

        Args:
            tenant: The tenant with the reader's principals.
            collection: The collection of its schemas.
        """
        self._tenant = tenant
        self._collection = collection
        self._settings = tenant.settings.section(Text2SqlSettings)

    def databases(self) -> list[str]:
        """Return the names of the databases that may be queried."""
        prefix = f"{self._tenant.name}/{self._collection}/"
        return sorted(key.removeprefix(prefix) for key in self._settings.databases if key.startswith(prefix))

    def require(self, database: str) -> None:
        """Check that queries on a database are enabled.

        Raises NotFound, ConfigError.
        """
        self._url(database)

    def run(self, schema: DatabaseSchema, sql: str, parameters: Mapping[str, Any] | None = None) -> QueryResult:
        """Check, run and record a query.

        The audit log is written before rows are returned. The reader's schema decides which tables and columns a query
        may use.

        Args:
            schema: The schema as the reader may read it.
            sql: One SELECT; values as `:name`.

        Raises:
            NotFound: Queries on this database are not enabled.
            QueryRefused: The query breaks a rule, or the database reports an error of the query.
            StatementFailed: The query takes too long; `sqlstate` is 57014.
            ConfigError: The environment variable of the URL is not set.
            DatabaseNotReady: The role may write.
            DatabaseUnavailable: The database cannot be reached.
            DatabaseError: The audit log cannot be written; the rows are dropped.
        """
        database = ReadOnlyDatabase(self._url(schema.name), schema, limits=_limits(self._settings))
        started = time.monotonic()
        try:
            result = database.run(sql, parameters)
        except QueryRefused:
            self._record(schema, sql, AuditOutcome.REFUSED, started)
            raise
        except StatementFailed as error:
            self._record(schema, sql, AuditOutcome.REFUSED, started)
            if error.is_cancelled:
                raise
            raise QueryRefused("failed", _database_message(error)) from error
        self._record(schema, result.sql, AuditOutcome.HITS, started)
        return result

    def _url(self, name: str) -> str:
        variable = self._settings.databases.get(f"{self._tenant.name}/{self._collection}/{name}")
        if variable is None:
            raise NotFound(f"queries on the database {name!r} are not enabled; see text2sql.databases")
        if not (url := os.environ.get(variable)):
            raise ConfigError(f"{variable} is not set: put the URL of the database {name!r} into that variable")
        return url

    def _record(self, schema: DatabaseSchema, sql: str, outcome: AuditOutcome, started: float) -> None:
        milliseconds = (time.monotonic() - started) * 1000
        self._tenant.record_access(AuditKind.QUERY, f"query on {schema.name}: {sql}", outcome, milliseconds)


def _limits(settings: Text2SqlSettings) -> QueryLimits:
    return QueryLimits(
        timeout_ms=settings.timeout_ms,
        max_rows=settings.max_rows,
        max_bytes=settings.max_bytes,
        max_cost=settings.max_cost,
    )


def _database_message(error: StatementFailed) -> str:
    """Return what the database says of a query, without its address."""
    original = getattr(error.__cause__, "orig", None)
    lines = str(original or "it failed").splitlines()
    return f"the database reports: {lines[0] if lines else 'an error'}; correct the query"
