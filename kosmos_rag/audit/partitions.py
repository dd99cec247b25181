"""The months of the log: a partition for each of the next ones, made ahead, and none for those past retention.

What belongs to no month that is there is in the default partitions; a month that began there stays there to its end.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time

import psycopg
from psycopg import sql

from kosmos_rag.errors import ConfigError, first_line
from kosmos_rag.records import EVERYONE
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.errors import translated
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenancy import Tenant

_LOG = logging.getLogger(__name__)

_TABLES = ("retrievals", "retrieved_passages")
_AHEAD = 2
_LOCK_TIMEOUT = "1s"
"""How long questions may have to wait behind us while a long look at the log goes on; the next round tries again."""


def month_after(month: date, number: int) -> date:
    """Return the first day of the month so many after another, or before it."""
    years, months = divmod(month.month - 1 + number, 12)
    return date(month.year + years, months + 1, 1)


def kept_since(now: datetime, keep_months: int) -> date:
    """Return the first day that is within retention: the running month and so many before it are kept."""
    return month_after(now.astimezone(UTC).date(), -keep_months)


def rotate(database: Database, owner: Tenant, *, now: datetime, keep_months: int) -> list[str]:
    """Make the partitions of the next months and drop what is past retention, where this is due, for all tenants.

    Returns what was done. Raises ConfigError where it is due and `database.admin_url` is not set, DatabaseError.
    """
    oldest = kept_since(now, keep_months)
    wanted = {
        _name(table, month_after(now.date(), number)): (table, month_after(now.date(), number))
        for table in _TABLES
        for number in range(1, _AHEAD + 1)
    }
    with database.worker.transaction(owner.id, [EVERYONE]) as connection:
        there = {name for (name,) in connection.execute(statement("log_partitions")).fetchall()}
        values = {"tenant_id": owner.id, "since": _midnight(oldest)}
        old_rows = connection.execute(statement("has_retrievals_before"), values).fetchone() == (True,)
    missing = sorted(wanted.keys() - there)
    expired = sorted(name for name in there if (month := _month(name)) is not None and month < oldest)
    if not (missing or expired or old_rows):
        return []
    with _owner(_administrator(database)) as connection:
        done = [step for name in missing for step in _create(connection, name, *wanted[name])]
        done += [step for name in expired for step in _drop(connection, name)]
        return done + [step for table in _TABLES for step in _empty(connection, table, oldest)]


def _administrator(database: Database) -> str:
    address = database.urls()["admin_url"]
    if address is None:
        raise ConfigError(
            "database.admin_url is not set, and the months of the audit log need an administrator; set it for a "
            "worker, or run `kosmos-rag audit seal` with it by the clock"
        )
    return address


@contextmanager
def _owner(admin_conninfo: str) -> Iterator[psycopg.Connection]:
    with translated(), psycopg.connect(admin_conninfo, autocommit=True) as connection:
        connection.execute(statement("become_owner_for_session"))
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        yield connection


def _create(connection: psycopg.Connection, name: str, table: str, month: date) -> list[str]:
    partition, until = sql.Identifier("kosmos", name), _midnight(month_after(month, 1))
    done: list[str] = []
    with _unless_in_the_way(f"{name} is not made"), connection.transaction():
        connection.execute(
            sql.SQL("CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(
                partition,
                sql.Identifier("kosmos", table),
                sql.Literal(_midnight(month)),
                sql.Literal(until),
            )
        )
        connection.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY").format(partition))
        connection.execute(sql.SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(partition))
        done.append(f"{name} made")
    return done


def _drop(connection: psycopg.Connection, name: str) -> list[str]:
    done: list[str] = []
    with _unless_in_the_way(f"{name} is not dropped"):
        connection.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier("kosmos", name)))
        done.append(f"{name} dropped")
    return done


def _empty(connection: psycopg.Connection, table: str, oldest: date) -> list[str]:
    """Delete what is past retention in the default partition."""
    partition = sql.Identifier("kosmos", f"{table}_default")
    done: list[str] = []
    with _unless_in_the_way(f"{table}_default is not emptied"), connection.transaction():
        # Forced, row-level security holds for the owner too, who has no policy and would see no row.
        connection.execute(sql.SQL("ALTER TABLE {} NO FORCE ROW LEVEL SECURITY").format(partition))
        deleted = connection.execute(
            sql.SQL("DELETE FROM {} WHERE at < {}").format(partition, sql.Literal(_midnight(oldest)))
        ).rowcount
        connection.execute(sql.SQL("ALTER TABLE {} FORCE ROW LEVEL SECURITY").format(partition))
        if deleted:
            done.append(f"{deleted} rows of {table}_default deleted")
    return done


@contextmanager
def _unless_in_the_way(what: str) -> Iterator[None]:
    """Leave it to the next round where a lock is held, another was faster, or the month began in the default."""
    try:
        yield
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.CheckViolation,
        psycopg.errors.DuplicateTable,
        psycopg.errors.UndefinedTable,
    ) as error:
        _LOG.warning("%s: %s", what, first_line(error), extra={"action": "audit_partition_left"})


def _name(table: str, month: date) -> str:
    return f"{table}_{month:%Y_%m}"


def _month(name: str) -> date | None:
    match = re.fullmatch(r"\w+_(\d{4})_(\d{2})", name)
    return date(int(match[1]), int(match[2]), 1) if match else None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)
