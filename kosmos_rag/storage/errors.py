"""Translate the errors of psycopg into errors of the library."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool

from kosmos_rag.core.errors import DatabaseUnavailable, StatementFailed, first_line


def _unavailable(error: psycopg.OperationalError) -> DatabaseUnavailable:
    reason = first_line(error)
    if "password" in reason or "authentication" in reason:
        remedy = "check user and password of database.url"
    elif "does not exist" in reason:
        remedy = "create it, or correct database.url"
    else:
        remedy = "check that the server runs and that database.url names it; `kosmos-rag doctor` says more"
    return DatabaseUnavailable(f"cannot connect to PostgreSQL: {reason}; {remedy}")


def _remedy(error: psycopg.OperationalError) -> str:
    if isinstance(error, psycopg.errors.DiskFull):
        return "; the server's disk is full: make room and try again, what was stored before is kept"
    return ""


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate errors of the driver and its pool into subclasses of DatabaseError.

    Raises:
        DatabaseUnavailable: no connection to the server, or no free one in the pool.
        StatementFailed: the server refused a statement.
    """
    try:
        yield
    except psycopg_pool.PoolTimeout as error:
        raise DatabaseUnavailable(
            f"no free connection to PostgreSQL: {first_line(error)}; raise database.pool_size or lower the load"
        ) from error
    except psycopg_pool.PoolClosed as error:
        raise DatabaseUnavailable("the engine is closed; open a new one") from error
    except psycopg.OperationalError as error:
        # A cancelled statement or a full disk is operational too, but the server answered: the error has a code.
        if error.sqlstate is None or (error.sqlstate[:2] in {"08", "28", "3D", "57"} and error.sqlstate != "57014"):
            raise _unavailable(error) from error
        raise StatementFailed(f"{first_line(error)}{_remedy(error)}", sqlstate=error.sqlstate) from error
    except psycopg.Error as error:
        raise StatementFailed(first_line(error), sqlstate=error.sqlstate) from error
