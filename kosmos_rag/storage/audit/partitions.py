"""Create and drop the monthly partitions of the audit log.

Rows of months without a partition are in the default partitions. A month that started there stays there.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta

import psycopg
from psycopg import sql

from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.types import EVERYONE
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.errors import connect_administrator
from kosmos_rag.storage.provision import BACKUP
from kosmos_rag.storage.sql import statement
from kosmos_rag.storage.tenants import TenantRef

_LOG = logging.getLogger(__name__)

_TABLES = ("audit_events", "audit_passages")
_MONTHS_AHEAD = 2
_DELETE_BATCH = 1_000
"""Records that one statement deletes from the default partition."""

_BATCH_END = """
SELECT at FROM kosmos.audit_events_default WHERE at <= %(last)s ORDER BY at OFFSET %(others)s LIMIT 1
"""
_DELETE = sql.SQL("DELETE FROM kosmos.{} WHERE at <= %(last)s")
"""Both run as the owner, whose policy shows the expired rows of all tenants and no other row. A batch is a slice of
time: a distributed table has no ctid."""

_EXPIRED = sql.SQL(
    "CREATE OR REPLACE FUNCTION kosmos.audit_expired_before() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE "
    "RETURN {}::timestamptz"
)
_LOCK_TIMEOUT = "500ms"
"""Longest time that searches queue behind our lock request while a long query reads the log.

Less than the server's deadlock_timeout: if another session locks both tables in another order, rotation gives way, and
the next round tries again.
"""


def add_months(month: date, number: int) -> date:
    """Return the first day of the month `number` months after another.

    Before it if negative.
    """
    years, months = divmod(month.month - 1 + number, 12)
    return date(month.year + years, months + 1, 1)


def retention_start(now: datetime, keep_months: int) -> date:
    """Return the first retained day: the month `keep_months` ago."""
    return add_months(now.astimezone(UTC).date(), -keep_months)


class PartitionRotation:
    """Rotate the partitions of one database, for all tenants at once.

    An instance remembers months that can no longer get a partition, and does not try them again.
    """

    def __init__(self, database: Database, *, keep_months: int) -> None:
        self._database = database
        self._keep_months = keep_months
        self._started: set[date] = set()

    def rotate(self, owner: TenantRef, *, now: datetime) -> list[str]:
        """Create partitions of the next months, and drop expired ones.

        Return the steps taken.

        Raises:
            ConfigError: a step is due and `database.admin_url` is not set.
            DatabaseError: a statement failed.
        """
        oldest = retention_start(now, self._keep_months)
        with self._database.worker.transaction(owner.id, [EVERYONE]) as connection:
            existing = {name for (name,) in connection.execute(statement("audit_partitions")).fetchall()}
            values = {"tenant_id": owner.id, "since": _midnight(oldest)}
            old_rows = connection.execute(statement("has_audit_events_before"), values).fetchone() == (True,)
        ahead = [add_months(now.astimezone(UTC).date(), number) for number in range(1, _MONTHS_AHEAD + 1)]
        missing = [month for month in ahead if month not in self._started and not existing.issuperset(_names(month))]
        expired = sorted({month for name in existing if (month := _month(name)) is not None and month < oldest})
        if not (missing or expired or old_rows):
            return []
        with _owner_connection(_admin_conninfo(self._database)) as connection:
            steps = [step for month in missing for step in self._create(connection, month, existing)]
            if expired or old_rows:
                _store_expiry(connection, oldest)
                steps += [step for month in expired for step in _drop_partitions(connection, month, existing)]
                steps += _delete_expired(connection, oldest)
            return steps

    def _create(self, connection: psycopg.Connection, month: date, existing: set[str]) -> list[str]:
        steps: list[str] = []
        with _skip_conflicts(f"the month {month:%Y-%m} of the log is not made"):
            try:
                with connection.transaction():
                    steps = [
                        _create_partition(connection, table, month)
                        for table in _TABLES
                        if _name(table, month) not in existing
                    ]
            except psycopg.errors.CheckViolation:
                self._started.add(month)
                raise
        return steps


def _admin_conninfo(database: Database) -> str:
    address = database.urls()["admin_url"]
    if address is None:
        raise ConfigError(
            "database.admin_url is not set, and the months of the audit log need an administrator; set it for a "
            "worker, or run `kosmos-rag audit seal` with it on a schedule"
        )
    return address


@contextmanager
def _owner_connection(admin_conninfo: str) -> Iterator[psycopg.Connection]:
    with connect_administrator(admin_conninfo, autocommit=True) as connection:
        connection.execute(statement("set_owner_role_for_session"))
        connection.execute(sql.SQL("SET statement_timeout = 0"))
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        yield connection


def _create_partition(connection: psycopg.Connection, table: str, month: date) -> str:
    name, until = _name(table, month), _midnight(add_months(month, 1))
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
    backup = sql.Identifier(BACKUP)
    connection.execute(
        sql.SQL("CREATE POLICY backup_read ON {} FOR SELECT TO {} USING (true)").format(partition, backup)
    )
    connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(partition, backup))
    return f"{name} made"


def _store_expiry(connection: psycopg.Connection, oldest: date) -> None:
    """Store the expiry date before rows are dropped.

    The verification of seals reads it.
    """
    with connection.transaction():
        connection.execute(statement("lock_audit_partitions"))
        ((expired_before,),) = connection.execute(statement("audit_expired_before")).fetchall()
        if expired_before is None or expired_before < _midnight(oldest):
            connection.execute(_EXPIRED.format(sql.Literal(_midnight(oldest))))


def _drop_partitions(connection: psycopg.Connection, month: date, existing: set[str]) -> list[str]:
    """Drop the records of a month with their passages.

    Without passages, records would seem changed.
    """
    names = sorted(existing.intersection(_names(month)))
    steps: list[str] = []
    with _skip_conflicts(f"the month {month:%Y-%m} of the log is not dropped"):
        tables = sql.SQL(", ").join(sql.Identifier("kosmos", name) for name in names)
        connection.execute(sql.SQL("DROP TABLE {}").format(tables))
        steps.extend(f"{name} dropped" for name in names)
    return steps


def _delete_expired(connection: psycopg.Connection, oldest: date) -> list[str]:
    """Delete expired records with their passages from the default partitions, in batches."""
    deleted = 0
    with _skip_conflicts("the default partitions of the log are not emptied"):
        while count := _delete_batch(connection, oldest):
            deleted += count
    return [f"{deleted} records of audit_events_default deleted"] if deleted else []


def _delete_batch(connection: psycopg.Connection, oldest: date) -> int:
    end = _midnight(oldest) - timedelta(microseconds=1)
    values = {"last": end, "others": _DELETE_BATCH - 1}
    with connection.transaction():
        for (last,) in connection.execute(_BATCH_END, values).fetchall():
            end = last
        connection.execute(_DELETE.format(sql.Identifier("audit_passages_default")), {"last": end})
        return connection.execute(_DELETE.format(sql.Identifier("audit_events_default")), {"last": end}).rowcount


@contextmanager
def _skip_conflicts(message: str) -> Iterator[None]:
    """Skip a step until the next round on a conflict.

    A held lock, a faster process, or a month in the default partition.
    """
    try:
        yield
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.CheckViolation,
        psycopg.errors.DuplicateTable,
        psycopg.errors.UndefinedTable,
    ) as error:
        _LOG.warning("%s: %s", message, first_line(error), extra={"action": "audit_partition_left"})


def _names(month: date) -> list[str]:
    return [_name(table, month) for table in _TABLES]


def _name(table: str, month: date) -> str:
    return f"{table}_{month:%Y_%m}"


def _month(name: str) -> date | None:
    match = re.fullmatch(r"\w+_(\d{4})_(\d{2})", name)
    return date(int(match[1]), int(match[2]), 1) if match else None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)
