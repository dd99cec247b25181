"""A live database as a source, by reflection: whatever SQLAlchemy can read, sample values only where asked for."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kosmos_rag.core.config import mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, DatabaseUnavailable, RequestError, StatementFailed, first_line
from kosmos_rag.text2sql.catalog.model import ColumnSchema, DatabaseSchema, TableSchema
from kosmos_rag.text2sql.catalog.naming import words
from kosmos_rag.text2sql.catalog.sources.tables import table_record

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

TIMED_OUT = "57014"
"""SQLSTATE of a statement that was stopped; what SQLite stops is reported under it as well."""


def engine_of(url: str) -> "Engine":
    """Return an engine that keeps no connection and only reads.

    Raises ConfigError on a URL that cannot be used, or whose driver is not installed.
    """
    from sqlalchemy import create_engine, event, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError
    from sqlalchemy.pool import NullPool

    try:
        made = make_url(url)
        if made.drivername in ("postgresql", "postgres"):
            made = made.set(drivername="postgresql+psycopg")
        engine = create_engine(made, poolclass=NullPool, hide_parameters=True)
    except (ArgumentError, NoSuchModuleError, ImportError, ValueError) as error:
        # Without the cause: it may show the URL, and that its password.
        reason = one_line(mask_password(first_line(error)))
        raise ConfigError(f"the URL of the database cannot be used ({reason}): correct it") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _forbid_writing)
    return engine.execution_options(postgresql_readonly=True) if engine.dialect.name == "postgresql" else engine


def _forbid_writing(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON").close()


@contextmanager
def reading(engine: "Engine") -> Iterator["Connection"]:
    """Connect. Raises DatabaseUnavailable where that fails or the database goes away, StatementFailed for a refusal."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    place = one_line(engine.url.render_as_string(hide_password=True))
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if file and file != ":memory:" and not file.startswith("file:") and not Path(file).is_file():
        # SQLite would make an empty one.
        raise DatabaseUnavailable(f"{place} cannot be read: there is no such file; correct the URL")
    connected = False
    try:
        with engine.connect() as connection:
            connected = True
            yield connection
    except SQLAlchemyError as error:
        said = one_line(mask_password(first_line(error)))
        gone = isinstance(error, DBAPIError) and error.connection_invalidated
        if gone or not connected:
            remedy = "check that it runs, and who may log in"
            raise DatabaseUnavailable(f"{place} cannot be read ({said}); {remedy}") from error
        code = getattr(getattr(error, "orig", None), "sqlstate", None)
        stopped = TIMED_OUT if said.endswith("interrupted") else None
        raise StatementFailed(f"{place} refuses: {said}", sqlstate=code or stopped) from error


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
"""Columns of which no value is ever read, whatever is asked for: what their names have, in words of lower case."""

_NAME = re.compile(r"\b(?:name|title|label|initials|signed|by)\b")
_PEOPLE = re.compile(
    r"\b(?:user|customer|client|person|people|employee|staff|worker|member|patient|student|pupil|teacher|doctor|nurse"
    r"|physician|author|contact|guest|visitor|passenger|driver|tenant|owner|applicant|candidate|subscriber|player"
    r"|speaker|attendee|participant|recipient|sender|guardian|parent|child|children|holder|manager|lead|created|updated"
    r"|approved|assigned)s?\b"
)
"""Words of a table or a column that make a name that of a person."""

_PERSONAL = re.compile(r"@|\d{6}|://|^\+?\d[\d ()/-]{6,}$")
"""Values that tell that a column holds addresses, numbers of people or links, whatever its name is."""

_ROWS_LOOKED_AT = 2_000
_SAMPLE_TIMEOUT_MS = 5_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRules:
    """What sample values may be read. Columns that `PRIVATE` fits are never among them."""

    values: int = 5
    """Values of a column, 1 to 20."""
    longest: int = 40
    """Characters of a value; a column that holds a longer one is text and not a category, and is left out."""
    excluded: tuple[str, ...] = ()
    """Regular expressions of `table.column` that are left out as well."""
    tables: tuple[str, ...] | None = None
    """Full names of the tables that may be read; None is all."""

    def __post_init__(self) -> None:
        """Raises RequestError on bounds that are none, and on an expression that is malformed."""
        if not 1 <= self.values <= 20 or not 1 <= self.longest <= 200:
            raise RequestError("sample values: take 1 to 20 of a column, of at most 1 to 200 characters")
        try:
            re.compile("|".join(self.excluded))
        except re.error as error:
            raise RequestError(f"sample values: {one_line(str(self.excluded))} is no pattern ({error})") from None

    @classmethod
    def of(cls, tables: Sequence[str], excluded: Sequence[str]) -> Self | None:
        """Return rules for these tables, `*` for all; None, by which nothing is read, where none is named.

        Raises RequestError where something is excluded from nothing, or is no pattern.
        """
        if not tables:
            if excluded:
                raise RequestError("sample values: columns are left out, and no table is named to read; name one, or *")
            return None
        return cls(tables=None if "*" in tables else tuple(tables), excluded=tuple(excluded))

    def allows(self, table: str, column: str) -> bool:
        """Whether values of a column may be read."""
        said = " ".join(words(column))
        if PRIVATE.search(said) or (self.tables is not None and table not in self.tables):
            return False
        if _NAME.search(said) and _PEOPLE.search(f"{' '.join(words(table))} {said}"):
            return False
        return not any(re.search(pattern, f"{table}.{column}", re.IGNORECASE) for pattern in self.excluded)


def from_database(
    url: str, *, name: str | None = None, schemas: Sequence[str | None] = (None,), samples: SampleRules | None = None
) -> DatabaseSchema:
    """Reflect the tables and views of a database. None among `schemas` is the namespace that needs no naming.

    Nothing but the catalogue is read unless `samples` says so, and never anything written.
    Raises ConfigError on a URL that cannot be used, RequestError on a namespace that is not there, DatabaseUnavailable
    where the database cannot be reached or goes away, StatementFailed where it refuses.
    """
    engine = engine_of(url)
    with reading(engine) as connection:
        tables = _reflected(connection, schemas)
        _check_named(samples, tables)
        records = [table_record(table, engine.dialect) for table in tables]
        if samples is not None:
            records = [_sampled(connection, *pair, samples) for pair in zip(tables, records, strict=True)]
    database = engine.url.database or engine.dialect.name
    return DatabaseSchema(
        name=name or re.split(r"[/\\]", database)[-1].partition(".")[0] or engine.dialect.name,
        dialect=engine.dialect.name,
        tables=tuple(records),
    )


def _reflected(connection: "Connection", schemas: Sequence[str | None]) -> list["Table"]:
    from sqlalchemy import MetaData, inspect
    from sqlalchemy.exc import SAWarning

    known = set(inspect(connection).get_schema_names())
    if unknown := [schema for schema in schemas if schema is not None and schema not in known]:
        raise RequestError(
            one_line(f"there is no namespace {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        )
    metadata = MetaData()
    with warnings.catch_warnings():
        # Types of extensions and indexes on expressions are passed over, and nobody can do anything about that.
        warnings.simplefilter("ignore", SAWarning)
        for schema in schemas:
            metadata.reflect(connection, schema=schema, views=True)
    return list(metadata.tables.values())


def _check_named(samples: SampleRules | None, tables: Sequence["Table"]) -> None:
    known = {table.fullname for table in tables}
    if samples is not None and (unknown := [name for name in samples.tables or () if name not in known]):
        raise RequestError(
            one_line(f"sample values: there is no table {', '.join(unknown)}; take full names of tables")
        )


def _sampled(connection: "Connection", table: "Table", record: TableSchema, rules: SampleRules) -> TableSchema:
    columns = [
        replace(column, samples=_samples(connection, table, column, rules))
        if not column.enum and rules.allows(record.full_name, column.name)
        else column
        for column in record.columns
    ]
    return replace(record, columns=tuple(columns))


def _samples(connection: "Connection", table: "Table", column: ColumnSchema, rules: SampleRules) -> tuple[str, ...]:
    """Read values of a column of short texts, in their order; none where it is no category."""
    from sqlalchemy import String, select, text

    found = table.columns[column.name]
    if not isinstance(found.type, String) or column.name in _keys(table):
        return ()
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = {_SAMPLE_TIMEOUT_MS}"))
    rows = select(found.label("value")).where(found.is_not(None)).limit(_ROWS_LOOKED_AT).subquery()
    values = [str(value) for (value,) in connection.execute(select(rows.c.value).distinct().order_by(rows.c.value))]
    if any(len(value) > rules.longest or _PERSONAL.search(value) for value in values):
        return ()
    return tuple(value for value in values if value.strip() and "\x00" not in value)[: rules.values]


def _keys(table: "Table") -> set[str]:
    """Return the columns that identify rows: their values say nothing, and may be about people."""
    return {column.name for column in table.columns if column.primary_key or column.foreign_keys}
