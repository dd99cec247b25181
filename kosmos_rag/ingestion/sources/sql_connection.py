"""Connections to the databases of sources."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config import mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, SourceError, first_line
from kosmos_rag.core.extras import require_extra

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

ROWS_AT_ONCE = 200
_PSYCOPG = "postgresql+psycopg"
_CONNECT_TIMEOUT_S = 5
_DATA_CLASSES = {"21", "22", "P0"}
"""Classes of SQLSTATE: several rows of a subquery for one, a value, an error that a function raises."""
_REFUSED_STATES = {"28000", "28P01", "42501"}
_REFUSED = re.compile(
    r"authentication failed|no password supplied|not permitted to log in|no pg_hba\.conf entry|permission denied"
    r"|access denied|role \".*\" does not exist|login failed|\[(?:28000|42501)\]|ORA-(?:01017|01045|01031|2800[01])",
    re.IGNORECASE,
)


def escape_colons(query: str) -> str:
    """Escape a query of a spec for `sqlalchemy.text`.

    A colon then names no parameter.
    """
    return query.strip().rstrip(";").replace(":", "\\:")


@contextmanager
def connect(engine: "Engine", variable: str, name: str) -> Iterator["Connection"]:
    """Connect to the database of a source.

    Raises SourceError for errors that the database reports.

    Args:
        engine: from `read_only_engine`.
        variable: variable of the environment that holds the URL, for the message.
        name: what is read, for the message.
    """
    with translate_errors(variable, name), engine.connect() as connection:
        yield connection


@contextmanager
def translate_errors(variable: str, name: str, *, remedy: str = "correct it") -> Iterator[None]:
    """Raise SourceError for errors that the database reports.

    Args:
        variable: see `connect`.
        name: see `connect`.
        remedy: what to do about a query that fails.
    """
    import psycopg
    from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        detail = one_line(mask_password(first_line(error)))
        if _is_refused(error):
            refused = f"{name}: the database of {variable} refuses the account: {detail}"
            raise SourceError("no_permission", f"{refused}; renew its password, or grant it the rights") from error
        is_lost = isinstance(error, OperationalError | psycopg.OperationalError | psycopg.InterfaceError)
        if is_lost or (isinstance(error, DBAPIError) and error.connection_invalidated):
            raise SourceError(
                "unavailable", f"{name}: the database of {variable} fails: {detail}; try again later"
            ) from error
        raise SourceError("unreadable", f"{name}: the query fails: {detail}; {remedy}") from error


def _is_refused(error: Exception) -> bool:
    """Return whether an account may not connect, or not read what a query names."""
    cause = getattr(error, "orig", None) or error
    state = getattr(cause, "sqlstate", None) or ""
    # Of a connection that was refused the driver has no code.
    return state in _REFUSED_STATES or (not state and bool(_REFUSED.search(str(cause))))


def is_data_error(error: SourceError) -> bool:
    """Return whether the data of a row made a query fail, and not the query itself."""
    import psycopg
    from sqlalchemy.exc import DBAPIError

    cause = error.__cause__.orig if isinstance(error.__cause__, DBAPIError) else error.__cause__
    if not isinstance(cause, psycopg.Error):
        return False
    # Values that the driver cannot read are DataErrors without a code.
    return isinstance(cause, psycopg.DataError) or (cause.sqlstate or "")[:2] in _DATA_CLASSES


def read_only_engine(variable: str) -> "Engine":
    """Return an engine that only reads.

    Raises ConfigError if the variable contains no usable URL.
    """
    from sqlalchemy import event

    engine = _create_engine(_read_url(variable), variable)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_query_only)
    return engine.execution_options(postgresql_readonly=True) if engine.dialect.name == "postgresql" else engine


def create_postgresql_engine(variable: str) -> "Engine":
    """Return an engine of PostgreSQL that may write.

    Raises ConfigError if the variable contains no usable URL of PostgreSQL.
    """
    url = _read_url(variable)
    if url.get_backend_name() != "postgresql":
        raise ConfigError(f"{variable} is no URL of PostgreSQL, which has the changes: leave out changes")
    # Where a server does not answer, other sources must not wait long. Each statement must see what was committed while
    # one before it waited for a lock, whatever the default of the database.
    return _create_engine(
        url.set(drivername=_PSYCOPG),
        variable,
        connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        isolation_level="READ COMMITTED",
    )


def _read_url(variable: str) -> "URL":
    require_extra("sql", "reading a database", "sqlalchemy")
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if not (address := os.environ.get(variable)):
        raise ConfigError(f"{variable} is not set: put the URL of the database into that variable")
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        raise _refuse_url(variable, error) from None
    return url.set(drivername=_PSYCOPG) if url.drivername in ("postgresql", "postgres") else url


def _create_engine(url: "URL", variable: str, **options: Any) -> "Engine":
    from sqlalchemy import create_engine
    from sqlalchemy.exc import ArgumentError
    from sqlalchemy.pool import NullPool

    try:
        return create_engine(url, poolclass=NullPool, hide_parameters=True, **options)
    except (ArgumentError, ImportError, ValueError) as error:
        raise _refuse_url(variable, error) from None


def _refuse_url(variable: str, error: Exception) -> ConfigError:
    # Without the cause: it may show the URL, and that its password.
    return ConfigError(f"{variable} contains no usable URL ({one_line(mask_password(first_line(error)))}): correct it")


def _set_query_only(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON").close()
