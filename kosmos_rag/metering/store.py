"""Usage in the database."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta

import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.telemetry import usage
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.metering.limits import begin_period, list_limits, list_states, read_totals
from kosmos_rag.metering.records import DIMENSIONS, INTERVALS, LimitState, UsageAmount, UsageReport
from kosmos_rag.metering.settings import MeteringSettings
from kosmos_rag.metering.sql import statement

LEVELS = (usage.Quantity.STORED_CHUNKS, usage.Quantity.STORED_BYTES)
"""Quantities of which a time has the last amount, and not the sum."""
_HOUR = timedelta(hours=1)
_MAX_ROWS = 100_000
"""Rows of a report: 50 MB in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageRow:
    """A stored row: the same id again is the same row."""

    id: uuid.UUID
    hour: datetime
    collection: str | None
    subject: str | None
    quantity: str
    model: str | None
    amount: float
    cost: float | None


def insert_rows(connection: psycopg.Connection, tenant_id: uuid.UUID, rows: Sequence[UsageRow]) -> None:
    """Append rows; those that are stored already stay."""
    with connection.cursor() as cursor:
        cursor.executemany(statement("insert_usage"), [{"tenant_id": tenant_id, **asdict(row)} for row in rows])


def has_tenant(connection: psycopg.Connection, tenant_id: uuid.UUID) -> bool:
    """Return whether a tenant has a row: from its first document to its erasure."""
    return connection.execute(statement("has_tenant"), {"tenant_id": tenant_id}).fetchone() is not None


class UsageStore:
    """The usage of one tenant."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._settings = tenant.settings.section(MeteringSettings)

    @property
    def warn_at(self) -> float:
        """Share of a limit from which on there is a warning."""
        return self._settings.warn_at

    def read(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        every: str | None = None,
        by: Collection[str] = (),
        subject: str | None = None,
        limits: bool = True,
    ) -> UsageReport:
        """Return what the tenant has used.

        Raises RequestError for an unknown interval or dimension, an end before the beginning, or over 100,000 rows;
        DatabaseError.

        Args:
            since: Beginning, rounded down to the hour; None for the first day of this month.
            until: End; None for now.
            every: Interval of the rows: `hour`, `day` or `month`; None for one row of the whole time.
            by: What the amounts are listed by: `collection`, `subject`, `model`.
            subject: Of this reader alone, `key:NAME` for an API key; None for all.
            limits: Whether the report has the limits; each is a sum of its whole period.
        """
        now = datetime.now(UTC)
        start = begin_period("hour", since) if since else begin_period("month", now)
        end = until or begin_period("hour", now) + _HOUR
        if every is not None and every not in INTERVALS:
            raise RequestError(f"the interval is {every[:40]!r}; use {', '.join(INTERVALS)}")
        if unknown := sorted(set(by) - set(DIMENSIONS)):
            raise RequestError(f"usage is not listed by {unknown[0][:40]!r}; use {', '.join(DIMENSIONS)}")
        if end <= start:
            raise RequestError(f"the time ends at {end:%Y-%m-%d %H:%M}, before it begins; give a later end")
        values = {
            "tenant_id": self._tenant.id,
            "since": start,
            "until": end,
            "every": every,
            "subject": subject,
            "levels": list(LEVELS),
            "rows": _MAX_ROWS + 1,
            **{f"by_{dimension}": dimension in by for dimension in DIMENSIONS},
        }
        with self._tenant.sessions.read() as connection, connection.cursor(row_factory=kwargs_row(UsageAmount)) as rows:
            amounts = tuple(rows.execute(statement("read_usage"), values).fetchall())
            states = tuple(self._list_limits(connection, now)) if limits else ()
        if len(amounts) > _MAX_ROWS:
            raise RequestError(f"the usage has more than {_MAX_ROWS:,} rows; ask for a shorter time, or by fewer names")
        return UsageReport(
            tenant=self._tenant.name,
            since=start,
            until=end,
            currency=self._settings.currency,
            cost=sum(amount.cost or 0.0 for amount in amounts),
            amounts=amounts,
            limits=states,
        )

    def _list_limits(self, connection: psycopg.Connection, at: datetime) -> Iterator[LimitState]:
        for subject, limit in list_limits(self._settings.limits, self._tenant.name):
            totals = read_totals(connection, self._tenant.id, subject, begin_period(limit.per, at))
            yield from list_states(limit, subject, totals)

    def record_stored(self, at: datetime) -> None:
        """Record what is stored now, once an hour. Raises ConfigError without `database.worker_url`, DatabaseError."""
        hour = begin_period("hour", at)
        values = {"tenant_id": self._tenant.id, "hour": hour, "levels": list(LEVELS)}
        with self._tenant.sessions.write() as connection:
            rows = [
                UsageRow(
                    id=uuid.uuid5(self._tenant.id, f"{hour.isoformat()}/{collection}/{quantity}"),
                    hour=hour,
                    collection=collection,
                    subject=None,
                    quantity=quantity,
                    model=None,
                    amount=amount,
                    cost=None,
                )
                for collection, *amounts in connection.execute(statement("measure_stored"), values).fetchall()
                for quantity, amount in zip(LEVELS, amounts, strict=True)
            ]
            insert_rows(connection, self._tenant.id, rows)

    def join_hours(self, at: datetime, *, days: int | None = None) -> int:
        """Join the rows of each account in closed hours.

        Returns how many rows fewer there are. Raises ConfigError without `database.worker_url`, DatabaseError.

        Args:
            days: Age of the oldest hours; None for all that are kept.
        """
        until = begin_period("hour", at)
        since = until - timedelta(days=self._settings.keep_days if days is None else days)
        fewer = 0
        with self._tenant.sessions.write() as connection:
            values = {"tenant_id": self._tenant.id, "since": since, "until": until}
            hours = connection.execute(statement("find_split_hours"), values).fetchall()
            for (hour,) in hours:
                span = {"tenant_id": self._tenant.id, "since": hour, "until": hour + _HOUR}
                with connection.cursor(row_factory=kwargs_row(UsageRow)) as cursor:
                    rows = cursor.execute(statement("take_usage"), span).fetchall()
                joined = join_rows(rows)
                insert_rows(connection, self._tenant.id, joined)
                fewer += len(rows) - len(joined)
        return fewer

    def prune(self, at: datetime) -> int:
        """Delete usage older than `metering.keep_days`; return the number of rows.

        Raises ConfigError without `database.worker_url`, DatabaseError.
        """
        values = {"tenant_id": self._tenant.id, "before": at - timedelta(days=self._settings.keep_days)}
        with self._tenant.sessions.write() as connection:
            return connection.execute(statement("prune_usage"), values).rowcount


def join_rows(rows: Sequence[UsageRow]) -> list[UsageRow]:
    """Return one row, with a new id, of each account, quantity and model of an hour."""
    groups: defaultdict[tuple[datetime, str | None, str | None, str, str | None], list[UsageRow]] = defaultdict(list)
    for row in rows:
        groups[row.hour, row.collection, row.subject, row.quantity, row.model].append(row)
    return [
        replace(
            group[0],
            id=uuid.uuid4(),
            amount=sum(row.amount for row in group),
            cost=None if all(row.cost is None for row in group) else sum(row.cost or 0.0 for row in group),
        )
        for group in groups.values()
    ]
