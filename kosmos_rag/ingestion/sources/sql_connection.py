"""Connections to the databases of sources."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kosmos_rag.core.config import mask_password
from kosmos_rag.core.config.display import one_line
from kosmos_rag.core.errors import ConfigError, SourceError, first_line
from kosmos_rag.core.extras import require_extra

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

ROWS_AT_ONCE = 200


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
    from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

    try:
        with engine.connect() as connection:
            yield connection
    except SQLAlchemyError as error:
        detail = one_line(mask_password(first_line(error)))
        if isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated):
            raise SourceError(
                "unavailable", f"{name}: the database of {variable} fails: {detail}; try again later"
            ) from error
        raise SourceError("unreadable", f"{name}: the query fails: {detail}; correct it") from error


def read_only_engine(variable: str) -> "Engine":
    """Return an engine that only reads.

    Raises ConfigError if the variable contains no usable URL.
    """
    require_extra("sql", "reading a database", "sqlalchemy")
    from sqlalchemy import create_engine, event, make_url
    from sqlalchemy.exc import ArgumentError
    from sqlalchemy.pool import NullPool

    if not (address := os.environ.get(variable)):
        raise ConfigError(f"{variable} is not set: put the URL of the database into that variable")
    try:
        url = make_url(address)
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        engine = create_engine(url, poolclass=NullPool, hide_parameters=True)
    except (ArgumentError, ImportError, ValueError) as error:
        reason = one_line(mask_password(first_line(error)))
        # Without the cause: it may show the URL, and that its password.
        raise ConfigError(f"{variable} contains no usable URL ({reason}): correct it") from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _set_query_only)
    return engine.execution_options(postgresql_readonly=True) if engine.dialect.name == "postgresql" else engine


def _set_query_only(connection: Any, _record: object) -> None:
    connection.execute("PRAGMA query_only = ON").close()
