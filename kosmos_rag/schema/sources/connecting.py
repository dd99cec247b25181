"""Connections to databases that are described or asked: for reading only, closed after use."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kosmos_rag.config import mask_password
from kosmos_rag.config.display import one_line
from kosmos_rag.errors import ConfigError, DatabaseUnavailable, StatementFailed, first_line

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
