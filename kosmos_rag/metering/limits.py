"""Limits of tenants and readers: what is used in the present period, and what is refused."""

import logging
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psycopg

from kosmos_rag.core import errors
from kosmos_rag.core.telemetry import usage
from kosmos_rag.engine.query_hooks import HookContext, TenantRef
from kosmos_rag.metering.records import LimitState, format_rule
from kosmos_rag.metering.settings import EVERY_TENANT, MeteringSettings, Period, UsageLimit
from kosmos_rag.metering.sql import statement

log = logging.getLogger(__name__)

LIMITED = ("questions", "tokens", "cost", "documents", "bytes")
_NAMES = {
    usage.Quantity.QUESTIONS: "questions",
    usage.Quantity.INPUT_TOKENS: "tokens",
    usage.Quantity.OUTPUT_TOKENS: "tokens",
    usage.Quantity.DOCUMENTS: "documents",
    usage.Quantity.BYTES: "bytes",
}
_STOPPING = {
    usage.Quantity.QUESTIONS: ("questions", "tokens", "cost"),
    usage.Quantity.INPUT_TOKENS: ("tokens", "cost"),
    usage.Quantity.EMBEDDED_TOKENS: ("cost",),
    usage.Quantity.DOCUMENTS: ("documents", "bytes", "cost"),
}
"""The limits that stop work, by what it uses."""


def begin_period(per: Period, at: datetime) -> datetime:
    """Return the beginning of the hour, day or month of a time, in UTC."""
    hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    if per == "hour":
        return hour
    return hour.replace(hour=0) if per == "day" else hour.replace(day=1, hour=0)


def end_period(per: Period, at: datetime) -> datetime:
    """Return the end of the hour, day or month of a time, in UTC."""
    start = begin_period(per, at)
    if per == "month":
        return begin_period(per, start + timedelta(days=32))
    return start + (timedelta(hours=1) if per == "hour" else timedelta(days=1))


def find_limit(limits: Mapping[str, UsageLimit], tenant: str, subject: str | None) -> UsageLimit | None:
    """Return the limit of a tenant or reader, else that of every tenant, else None."""
    suffix = "" if subject is None else f"/{subject}"
    return limits.get(f"{tenant}{suffix}") or limits.get(f"{EVERY_TENANT}{suffix}")


def list_limits(limits: Mapping[str, UsageLimit], tenant: str) -> Iterator[tuple[str | None, UsageLimit]]:
    """Yield the limits of a tenant with their subjects; None for the whole tenant."""
    for subject in dict.fromkeys(key.partition("/")[2] or None for key in limits):
        if (limit := find_limit(limits, tenant, subject)) is not None:
            yield subject, limit


def read_totals(
    connection: psycopg.Connection, tenant_id: uuid.UUID, subject: str | None, since: datetime
) -> Counter[str]:
    """Return what is stored of a period, by name of the limit.

    Args:
        connection: A transaction of the tenant.
        subject: Of this reader alone; None for all.
        since: Beginning of the period.
    """
    values = {"tenant_id": tenant_id, "subject": subject, "since": since}
    totals: Counter[str] = Counter()
    for quantity, amount, cost in connection.execute(statement("read_totals"), values).fetchall():
        with suppress(ValueError):  # a quantity of a newer version
            totals.update(_name_amounts(usage.Quantity(quantity), amount, cost))
    return totals


def list_states(limit: UsageLimit, subject: str | None, totals: Mapping[str, float]) -> Iterator[LimitState]:
    """Yield what is used of each quantity of a limit.

    Args:
        subject: Whose it is; None for the whole tenant.
        totals: What is used in its period, by name.
    """
    for name in LIMITED:
        if (amount := getattr(limit, name)) is not None:
            yield LimitState(subject=subject, per=limit.per, quantity=name, amount=amount, total=totals.get(name, 0.0))


def _name_amounts(quantity: usage.Quantity, amount: float, cost: float | None) -> dict[str, float]:
    amounts = {_NAMES[quantity]: amount} if quantity in _NAMES else {}
    return amounts if cost is None else {**amounts, "cost": cost}


class LimitCounter:
    """What is used of one limit. Thread-safe."""

    def __init__(self, owner: TenantRef, subject: str | None, limit: UsageLimit, currency: str) -> None:
        self.owner = owner
        self.subject = subject
        self.limit = limit
        self._currency = currency
        self.start = begin_period(limit.per, datetime.now(UTC))
        self.is_stale = False
        """Whether it was used since it was read: others may have used more of the limit too."""
        self._stored: Counter[str] = Counter()
        self._moving: Counter[str] = Counter()
        """Amounts that are being written, or wait for it."""
        self._new: Counter[str] = Counter()
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def add(self, amounts: Mapping[str, float]) -> None:
        """Add what is used now."""
        with self._lock:
            self._renew()
            self.is_stale = True
            self._new.update(amounts)

    def move(self) -> None:
        """Note that what was added is being written."""
        with self._lock:
            self._moving.update(self._new)
            self._new = Counter()

    def replace_stored(self, totals: Counter[str], start: datetime) -> None:
        """Set what the database has, with all that was being written.

        Args:
            totals: What was read; ignored where another period has begun since.
            start: Beginning of the period that was read.
        """
        with self._lock:
            if start == self.start:
                self._stored, self._moving, self.is_stale = totals, Counter(), False

    def check(self, quantity: usage.Quantity, warn_at: float) -> None:
        """Raise LimitReached where no more of a quantity may be used.

        Args:
            quantity: What is going to be used.
            warn_at: Share of a limit from which on a warning is logged, once a period.
        """
        with self._lock:
            self._renew()
            self.is_stale = True
            totals = self._stored + self._moving + self._new
        for name in _STOPPING.get(quantity, ()):
            amount = getattr(self.limit, name)
            if amount is None:
                continue
            total = totals[name]
            if total >= amount:
                raise self._build_error(name, amount)
            if total >= warn_at * amount and name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "%s has used %.0f %% of its %s", self.owner.name, 100 * total / amount,
                    format_rule(name, amount, self.limit.per, self._currency),
                    extra={"action": "usage_limit_near", "tenant": self.owner.name, "texts": {"subject": self.subject}},
                )  # fmt: skip

    def _renew(self) -> None:
        start = begin_period(self.limit.per, datetime.now(UTC))
        if start != self.start:
            self.start = start
            self._stored, self._moving, self._new, self._warned = Counter(), Counter(), Counter(), set()

    def _build_error(self, name: str, amount: float) -> errors.LimitReached:
        now = datetime.now(UTC)
        end = end_period(self.limit.per, now)
        who = "the tenant" if self.subject is None else self.subject
        rule = format_rule(name, amount, self.limit.per, self._currency)
        message = (
            f"{who} has used up its limit of {rule}; ask again from {end:%Y-%m-%d %H:%M} UTC on, or let the operator "
            "raise metering.limits"
        )
        kind = errors.BudgetReached if name == "cost" else errors.LimitReached
        return kind(message, retry_after_s=max(1, int((end - now).total_seconds())))


class LimitKeeper:
    """Keeps the counters of the limits of an engine. Thread-safe."""

    def __init__(self, context: HookContext) -> None:
        self._settings = context.settings.section(MeteringSettings)
        self._read = context.read
        self._limits = self._settings.limits
        self._counters: dict[tuple[TenantRef, str | None], LimitCounter] = {}

    def admit(self, owner: TenantRef, subject: str | None, quantity: usage.Quantity) -> None:
        """Raise LimitReached where the tenant or the reader may use no more of a quantity."""
        for counter in self._list_counters(owner, subject):
            counter.check(quantity, self._settings.warn_at)

    def add(
        self, owner: TenantRef, subject: str | None, quantity: usage.Quantity, amount: float, cost: float | None
    ) -> None:
        """Add an amount to the counters of a tenant and a reader.

        Args:
            subject: The reader; None where it is not known.
            cost: What it costs; None without a price.
        """
        amounts = _name_amounts(quantity, amount, cost)
        for key in {(owner, None), (owner, subject)}:
            if (counter := self._counters.get(key)) is not None:
                counter.add(amounts)

    def move(self) -> None:
        """Note that what was added is being written.

        Counters that nobody has used in this period are dropped.
        """
        now = datetime.now(UTC)
        for key, counter in list(self._counters.items()):
            if counter.start < begin_period(counter.limit.per, now):
                del self._counters[key]
            else:
                counter.move()

    def refresh(self, owner: TenantRef) -> None:
        """Read what all processes have stored of the used limits of a tenant. Raises DatabaseError."""
        counters = [counter for counter in self._list_stale() if counter.owner == owner]
        if counters:
            with self._read(owner) as connection:
                for counter in counters:
                    _read_stored(connection, counter)

    @property
    def stale_owners(self) -> set[TenantRef]:
        """The tenants whose limits were used since they were read."""
        return {counter.owner for counter in self._list_stale()}

    def _list_stale(self) -> list[LimitCounter]:
        return [counter for counter in list(self._counters.values()) if counter.is_stale]

    def _list_counters(self, owner: TenantRef, subject: str | None) -> Iterator[LimitCounter]:
        for name in dict.fromkeys((None, subject)):
            if (limit := find_limit(self._limits, owner.name, name)) is not None:
                yield self._counters.get((owner, name)) or self._open(owner, name, limit)

    def _open(self, owner: TenantRef, subject: str | None, limit: UsageLimit) -> LimitCounter:
        counter = LimitCounter(owner, subject, limit, self._settings.currency)
        try:
            with self._read(owner) as connection:
                _read_stored(connection, counter)
        except errors.DatabaseError as error:  # the counter begins at 0, and is read with the next batch
            log.warning(
                "the use of a limit is not known yet: %s", error,
                extra={"action": "usage_limit_unknown", "tenant": owner.name},
            )  # fmt: skip
        return self._counters.setdefault((owner, subject), counter)


def _read_stored(connection: psycopg.Connection, counter: LimitCounter) -> None:
    start = counter.start  # a check may begin the next period while the totals are read
    counter.replace_stored(read_totals(connection, counter.owner.id, counter.subject, start), start)
