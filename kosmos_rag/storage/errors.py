"""Translate the errors of psycopg into errors of the library."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import psycopg_pool

from kosmos_rag.core.errors import (
    QUERY_CANCELED,
    DatabaseUnavailable,
    NodeUnavailable,
    StatementFailed,
    first_line,
)

_ADMINISTRATOR = "database.admin_url"

_NODE = re.compile(r"(?:remote node (?:\S+@)?|marked as essential: |while executing command on )(\S+?:\d+)")
"""How Citus names the node in an error: in the message, or in its context."""

_TENANT_KEY = re.compile(r"_tenant_id_fkey(?:_\d+)?$")
"""Foreign keys to the tenant. Those of a shard end with its number."""


def _is_connection_lost(sqlstate: str | None) -> bool:
    # A cancelled statement or a full disk is operational too, but the server answered: the error has a code.
    return sqlstate is None or (sqlstate[:2] in {"08", "28", "3D", "57"} and sqlstate != QUERY_CANCELED)


def _find_lost_node(error: psycopg.Error) -> NodeUnavailable | None:
    """Return the error of a lost node, or None."""
    if error.sqlstate is None or not (_is_connection_lost(error.sqlstate) or "marked as essential" in str(error)):
        return None
    match = _NODE.search(str(error)) or _NODE.search(error.diag.context or "")
    if match is None:
        return None
    reason = first_line(error).rpartition("following error: ")[2]
    return NodeUnavailable(
        f"node {match[1]} of the cluster cannot be reached by the coordinator: {reason}; start it, or look at its log; "
        "tenants on other nodes are not affected"
    )


def _unavailable(error: psycopg.OperationalError, setting: str) -> DatabaseUnavailable:
    reason = first_line(error)
    if "password" in reason or "authentication" in reason:
        remedy = f"check user and password of {setting}"
        if setting != _ADMINISTRATOR:
            remedy += ", whose role `kosmos-rag migrate` creates"
    elif "does not exist" in reason:
        remedy = f"create it, or correct {setting}"
    elif "startup parameter" in reason:
        remedy = (
            "a pooler refuses the timeouts of the connection: set ignore_startup_parameters = options in PgBouncer "
            "(docs/how-to/pgbouncer.md), or name the server's own address"
        )
    elif "query_wait_timeout" in reason:
        remedy = (
            "the connections of the pooler are all in use: raise default_pool_size of PgBouncer above the number of "
            "worker processes, each of which holds one during maintenance (docs/how-to/pgbouncer.md)"
        )
    else:
        remedy = f"check that the server runs and that {setting} names it; `kosmos-rag doctor` says more"
    return DatabaseUnavailable(f"cannot connect to PostgreSQL: {reason}; {remedy}")


def _remedy(error: psycopg.Error, setting: str) -> str:
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction) or "during recovery" in str(error):
        return (
            f"; the server is a replica: name its primary in {setting}, and replicas in database.replica_urls. Or its "
            "provider refuses changes because its disk is full"
        )
    if isinstance(error, psycopg.errors.DiskFull):
        return "; the server's disk is full: make room and try again, what was stored before is kept"
    if isinstance(error, psycopg.errors.ForeignKeyViolation) and _TENANT_KEY.search(error.diag.constraint_name or ""):
        return "; the tenant was erased meanwhile and nothing was stored: try again if it shall exist"
    return ""


@contextmanager
def translate_errors(setting: str = "database.url") -> Iterator[None]:
    """Translate errors of the driver and its pool into subclasses of DatabaseError.

    Args:
        setting: That has the address of the server, for remedies.

    Raises:
        DatabaseUnavailable: no connection to the server, or no free one in the pool.
        NodeUnavailable: the coordinator has no connection to the node of the tenant.
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
        if (node := _find_lost_node(error)) is not None:
            raise node from error
        if _is_connection_lost(error.sqlstate):
            raise _unavailable(error, setting) from error
        raise StatementFailed(f"{first_line(error)}{_remedy(error, setting)}", sqlstate=error.sqlstate) from error
    except psycopg.Error as error:
        if (node := _find_lost_node(error)) is not None:
            raise node from error
        raise StatementFailed(f"{first_line(error)}{_remedy(error, setting)}", sqlstate=error.sqlstate) from error


@contextmanager
def connect_administrator(conninfo: str, **arguments: Any) -> Iterator[psycopg.Connection]:
    """Connect as the role of `database.admin_url`.

    Arguments are those of `psycopg.connect`. Raises what `translate_errors` raises.
    """
    with translate_errors(_ADMINISTRATOR), psycopg.connect(conninfo, **arguments) as connection:
        yield connection
