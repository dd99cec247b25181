"""A live database as a schema source, by SQLAlchemy reflection.

Sample values are read on request only.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kosmos_rag.core.config import mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import (
    QUERY_CANCELED,
    ConfigError,
    DatabaseUnavailable,
    RequestError,
    StatementFailed,
    first_line,
)
from kosmos_rag.core.extras import require_extra
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.naming import words
from kosmos_rag.text2sql.catalog.sources.tables import table_record

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine


def create_read_only_engine(url: str) -> "Engine":
    """Create an engine without a connection pool that only reads.

    Raises:
        ConfigError: The URL cannot be used, or its driver is not installed.
    """
    require_extra("schema", "reading a database", "sqlalchemy")
    from sqlalchemy import create_engine, event, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    from sqlalchemy.pool import NullPool

    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, poolclass=NullPool, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        # Without the cause: it may show the URL, and that its password.
        reason = one_line(mask_password(first_line(error)))
        raise ConfigError(f"the URL of the database cannot be used ({reason}): correct it") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_query_only)
    return engine.execution_options(postgresql_readonly=True) if engine.dialect.name == "postgresql" else engine


def _set_query_only(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON").close()


@contextmanager
def connect_read_only(engine: "Engine") -> Iterator["Connection"]:
    """Open a connection that only reads.

    Raises:
        DatabaseUnavailable: The connection fails or is lost.
        StatementFailed: The database rejects a statement.
    """
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    url = one_line(engine.url.render_as_string(hide_password=True))
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if file and file != ":memory:" and not file.startswith("file:") and not Path(file).is_file():
        # SQLite would create an empty database.
        raise DatabaseUnavailable(f"{url} cannot be read: there is no such file; correct the URL")
    connected = False
    try:
        with engine.connect() as connection:
            connected = True
            yield connection
    except SQLAlchemyError as error:
        message = one_line(mask_password(first_line(error)))
        disconnected = isinstance(error, DBAPIError) and error.connection_invalidated
        if disconnected or not connected:
            remedy = "check that it runs, and who may log in"
            raise DatabaseUnavailable(f"{url} cannot be read ({message}); {remedy}") from error
        code = getattr(getattr(error, "orig", None), "sqlstate", None)
        timed_out = QUERY_CANCELED if message.endswith("interrupted") else None  # as SQLite says it
        raise StatementFailed(f"{url} refuses: {message}", sqlstate=code or timed_out) from error


if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

PRIVATE = re.compile(
    r"password|passwd|passphrase|passport|secret|token|signature|credential|private|apikey|api key|session|cookie"
    r"|social sec|national id|email|phone|mobile|address|street|postal|postcode|post code|birth|gender|ethnic|religion"
    r"|nationality|health|diagnos|medic|allerg|firstname|first name|lastname|last name|surname|sur name|fullname"
    r"|full name|given name|family name|middle name|username|user name|login|salary|income|iban|account|license plate"
    r"|latitude|longitude|comment|message"
    r"|\b(?:pwd|hash|salt|key|ssn|tax|vat|mail|mails|tel|fax|zip|dob|age|sex|race|blood|wage|wages|card|cvv|bank|nick"
    r"|plate|ip|lat|lon|lng|geo|note|notes|body|remark|remarks)\b"
)
"""Column names of which no value is ever read, as lower-case words."""

_NAME = re.compile(r"\b(?:name|title|label|initials|signed|by)\b")
_PEOPLE = re.compile(
    r"\b(?:user|customer|client|person|people|employee|staff|worker|member|patient|student|pupil|teacher|doctor|nurse"
    r"|physician|author|contact|guest|visitor|passenger|driver|tenant|owner|applicant|candidate|subscriber|player"
    r"|speaker|attendee|participant|recipient|sender|guardian|parent|child|children|holder|manager|lead|created|updated"
    r"|approved|assigned)s?\b"
)
"""Words of a table or column that make a name column personal."""

_PERSONAL = re.compile(r"@|\d{6}|://|^\+?\d[\d ()/-]{6,}$")
"""Values by which a column holds addresses, personal numbers or links, whatever its name is."""

_MAX_SAMPLED_ROWS = 2_000
_MAX_VALUES_OF_NAMED = 500
"""Values of a column that the rules name by itself."""
_SAMPLE_TIMEOUT_MS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRules:
    """Rules for reading sample values.

    Columns that match `PRIVATE` are never read.
    """

    max_values: int = 5
    """Maximum number of values of a column, 1 to 20."""
    max_chars: int = 40
    """Maximum characters of a value; a column with a longer value is not categorical and is left out."""
    excluded: tuple[str, ...] = ()
    """Regular expressions of `table.column` that are left out too."""
    tables: tuple[str, ...] | None = None
    """Full names of the tables that may be read, or `table.column` of single columns; None is all tables."""

    def __post_init__(self) -> None:
        """Check the bounds and the patterns.

        Raises RequestError on bounds out of range or a malformed expression.
        """
        if not 1 <= self.max_values <= 20 or not 1 <= self.max_chars <= 200:
            raise RequestError("sample values: take 1 to 20 of a column, of at most 1 to 200 characters")
        try:
            re.compile("|".join(self.excluded))
        except re.error as error:
            raise RequestError(f"sample values: {one_line(str(self.excluded))} is no pattern ({error})") from None

    @classmethod
    def from_options(cls, tables: Sequence[str], excluded: Sequence[str]) -> Self | None:
        """Build rules for these tables; None if no table is named.

        Args:
            tables: Full names of tables, or `table.column`; `*` for all tables, none reads nothing.
            excluded: Regular expressions of `table.column` that are left out.

        Raises:
            RequestError: Columns are excluded and no table is named, or a pattern is malformed.
        """
        if not tables:
            if excluded:
                raise RequestError("sample values: columns are left out, and no table is named to read; name one, or *")
            return None
        return cls(tables=None if "*" in tables else tuple(tables), excluded=tuple(excluded))

    def allows(self, table: str, column: str) -> bool:
        """Return whether values of a column may be read."""
        name = " ".join(words(column))
        if PRIVATE.search(name) or not (
            self.tables is None or table in self.tables or self.names_column(table, column)
        ):
            return False
        if _NAME.search(name) and _PEOPLE.search(f"{' '.join(words(table))} {name}"):
            return False
        return not any(re.search(pattern, f"{table}.{column}", re.IGNORECASE) for pattern in self.excluded)

    def names_column(self, table: str, column: str) -> bool:
        """Return whether the rules name the column by itself."""
        return f"{table}.{column}" in (self.tables or ())


def from_database(
    url: str, *, name: str | None = None, schemas: Sequence[str | None] = (None,), samples: SampleRules | None = None
) -> DatabaseSchema:
    """Reflect the tables and views of a database.

    Only the catalogue is read, and sample values if `samples` is set. Nothing is written.

    Args:
        url: URL of SQLAlchemy.
        name: Name of the schema; the database's name by default.
        schemas: Namespaces to reflect; None is the default namespace.
        samples: Rules for sample values; None reads none.

    Raises:
        ConfigError: The URL cannot be used.
        RequestError: A namespace or a table of `samples` does not exist.
        DatabaseUnavailable: The database cannot be reached, or the connection is lost.
        StatementFailed: The database rejects a statement.
    """
    engine = create_read_only_engine(url)
    with connect_read_only(engine) as connection:
        tables = _reflect(connection, schemas)
        _check_table_names(samples, tables)
        records = [table_record(table, engine.dialect) for table in tables]
        if samples is not None:
            records = [_add_samples(connection, *pair, samples) for pair in zip(tables, records, strict=True)]
    database = engine.url.database or engine.dialect.name
    return DatabaseSchema(
        name=name or re.split(r"[/\\]", database)[-1].partition(".")[0] or engine.dialect.name,
        dialect=engine.dialect.name,
        tables=tuple(records),
    )


def _reflect(connection: "Connection", schemas: Sequence[str | None]) -> list["Table"]:
    from sqlalchemy import MetaData, inspect
    from sqlalchemy.exc import SAWarning

    namespaces = set(inspect(connection).get_schema_names())
    if unknown := [schema for schema in schemas if schema is not None and schema not in namespaces]:
        raise RequestError(
            one_line(f"there is no namespace {', '.join(unknown)}; there are {', '.join(sorted(namespaces))}")
        )
    metadata = MetaData()
    with warnings.catch_warnings():
        # SQLAlchemy skips types of extensions and indexes on expressions; the user cannot change that.
        warnings.simplefilter("ignore", SAWarning)
        for schema in schemas:
            metadata.reflect(connection, schema=schema, views=True)
    return list(metadata.tables.values())


def _check_table_names(samples: SampleRules | None, tables: Sequence["Table"]) -> None:
    full_names = {table.fullname for table in tables}
    full_names |= {f"{table.fullname}.{column.name}" for table in tables for column in table.columns}
    if samples is not None and (unknown := [name for name in samples.tables or () if name not in full_names]):
        raise RequestError(
            one_line(
                f"sample values: there is no table {', '.join(unknown)}; take full names of tables, or table.column"
            )
        )


def _add_samples(connection: "Connection", table: "Table", record: TableSchema, rules: SampleRules) -> TableSchema:
    columns = [
        replace(column, samples=_read_samples(connection, table, column, rules))
        if not column.enum and rules.allows(record.full_name, column.name)
        else column
        for column in record.columns
    ]
    return replace(record, columns=tuple(columns))


def _read_samples(
    connection: "Connection", table: "Table", column: ColumnSchema, rules: SampleRules
) -> tuple[str, ...]:
    """Read sorted values of a short text column; none unless categorical."""
    from sqlalchemy import String, select, text

    source = table.columns[column.name]
    if not isinstance(source.type, String) or column.name in _key_columns(table):
        return ()
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = {_SAMPLE_TIMEOUT_MS}"))
    rows = select(source.label("value")).where(source.is_not(None)).limit(_MAX_SAMPLED_ROWS).subquery()
    values = [str(value) for (value,) in connection.execute(select(rows.c.value).distinct().order_by(rows.c.value))]
    if any(len(value) > rules.max_chars or _PERSONAL.search(value) for value in values):
        return ()
    is_explicit = rules.names_column(table.fullname, column.name)
    most = _MAX_VALUES_OF_NAMED if is_explicit else rules.max_values
    return tuple(value for value in values if value.strip() and "\x00" not in value)[:most]


def _key_columns(table: "Table") -> set[str]:
    """Return the key columns.

    Their values carry no meaning and may identify people.
    """
    return {column.name for column in table.columns if column.primary_key or column.foreign_keys}
