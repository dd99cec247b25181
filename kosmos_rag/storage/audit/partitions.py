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

from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.errors import translated
from kosmos_rag.storage.pool import Database
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_LOG = logging.getLogger(__name__)

_TABLES = ("audit_events", "audit_passages")
_AHEAD = 2
_BATCH = 1_000
"""Records that are deleted from the default partition at once."""

_DELETE = """
WITH expired AS (DELETE FROM kosmos.audit_events_default
                  WHERE ctid = ANY (ARRAY(SELECT ctid FROM kosmos.audit_events_default
                                           WHERE at < %(oldest)s LIMIT %(limit)s))
                 RETURNING tenant_id, id, at),
     told AS (DELETE FROM kosmos.audit_passages_default p USING expired e
               WHERE p.tenant_id = e.tenant_id AND p.event_id = e.id AND p.at = e.at)
SELECT count(*) FROM expired
"""
"""As the owner, whose policy shows it what is past retention, of all tenants, and nothing else."""

_EXPIRED = sql.SQL(
    "CREATE OR REPLACE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE "
    "RETURN {}::timestamptz"
)
_LOCK_TIMEOUT = "500ms"
"""How long questions may have to wait behind us while a long look at the log goes on; the next round tries again.

Less than the server's deadlock_timeout: where both tables are waited for in another order, it is we who give way.
"""


def month_after(month: date, number: int) -> date:
    """Return the first day of the month so many after another, or before it."""
    years, months = divmod(month.month - 1 + number, 12)
    return date(month.year + years, months + 1, 1)


def kept_since(now: datetime, keep_months: int) -> date:
    """Return the first day that is within retention: the running month and so many before it are kept."""
    return month_after(now.astimezone(UTC).date(), -keep_months)


class Months:
    """The months of the log of one database, for all tenants at once.

    Kept for as long as it is used: a month that cannot be made any more is not tried again.
    """

    def __init__(self, database: Database, *, keep_months: int) -> None:
        self._database = database
        self._keep_months = keep_months
        self._begun: set[date] = set()

    def rotate(self, owner: TenantRef, *, now: datetime) -> list[str]:
        """Make the partitions of the next months and give up what is past retention, where this is due.

        Returns what was done. Raises ConfigError where it is due and `database.admin_url` is not set, DatabaseError.
        """
        oldest = kept_since(now, self._keep_months)
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            there = {name for (name,) in connection.execute(statement("audit_partitions")).fetchall()}
            values = {"tenant_id": owner.id, "since": _midnight(oldest)}
            old_rows = connection.execute(statement("has_audit_events_before"), values).fetchone() == (True,)
        ahead = [month_after(now.astimezone(UTC).date(), number) for number in range(1, _AHEAD + 1)]
        missing = [month for month in ahead if month not in self._begun and not there.issuperset(_names(month))]
        expired = sorted({month for name in there if (month := _month(name)) is not None and month < oldest})
        if not (missing or expired or old_rows):
            return []
        with _owner(_administrator(self._database)) as connection:
            done = [step for month in missing for step in self._create(connection, month, there)]
            if expired or old_rows:
                _give_up(connection, oldest)
                done += [step for month in expired for step in _drop(connection, month, there)]
                done += _empty(connection, oldest)
            return done

    def _create(self, connection: psycopg.Connection, month: date, there: set[str]) -> list[str]:
        done: list[str] = []
        with _unless_in_the_way(f"the month {month:%Y-%m} of the log is not made"):
            try:
                with connection.transaction():
                    done = [_made(connection, table, month) for table in _TABLES if _name(table, month) not in there]
            except psycopg.errors.CheckViolation:
                self._begun.add(month)
                raise
        return done


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
        connection.execute(statement("set_owner_role_for_session"))
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        yield connection


def _made(connection: psycopg.Connection, table: str, month: date) -> str:
    name, until = _name(table, month), _midnight(month_after(month, 1))
    partition = sql.Identifier("kosmos", name)
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
    return f"{name} made"


def _give_up(connection: psycopg.Connection, oldest: date) -> None:
    """Write down what is about to go, before it does: a seal goes by it, whatever retention is by then."""
    with connection.transaction():
        connection.execute(statement("lock_audit_partitions"))
        ((before,),) = connection.execute(statement("audit_expired_before")).fetchall()
        if before is None or before < _midnight(oldest):
            connection.execute(_EXPIRED.format(sql.Literal(_midnight(oldest))))


def _drop(connection: psycopg.Connection, month: date, there: set[str]) -> list[str]:
    """Drop the records of a month with their passages: without those, they would seem changed."""
    names = sorted(there.intersection(_names(month)))
    done: list[str] = []
    with _unless_in_the_way(f"the month {month:%Y-%m} of the log is not dropped"):
        tables = sql.SQL(", ").join(sql.Identifier("kosmos", name) for name in names)
        connection.execute(sql.SQL("DROP TABLE {}").format(tables))
        done.extend(f"{name} dropped" for name in names)
    return done


def _empty(connection: psycopg.Connection, oldest: date) -> list[str]:
    """Delete what is past retention in the default partitions, some records at a time, with their passages."""
    deleted = 0
    with _unless_in_the_way("the default partitions of the log are not emptied"):
        while count := _delete_batch(connection, oldest):
            deleted += count
    return [f"{deleted} records of audit_events_default deleted"] if deleted else []


def _delete_batch(connection: psycopg.Connection, oldest: date) -> int:
    values = {"oldest": _midnight(oldest), "limit": _BATCH}
    ((count,),) = connection.execute(_DELETE, values).fetchall()
    return int(count)


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


def _names(month: date) -> list[str]:
    return [_name(table, month) for table in _TABLES]


def _name(table: str, month: date) -> str:
    return f"{table}_{month:%Y_%m}"


def _month(name: str) -> date | None:
    match = re.fullmatch(r"\w+_(\d{4})_(\d{2})", name)
    return date(int(match[1]), int(match[2]), 1) if match else None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)
