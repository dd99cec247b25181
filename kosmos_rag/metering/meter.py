"""Add up what is used in memory, and write it in batches."""

import logging
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from kosmos_rag.core.errors import DatabaseError, concerns_all_tenants
from kosmos_rag.core.telemetry import usage
from kosmos_rag.engine.query_hooks import AuditContext, HookContext, QueryHooks, TenantRef
from kosmos_rag.metering.limits import LimitKeeper
from kosmos_rag.metering.settings import MeteringSettings, ModelPrice
from kosmos_rag.metering.store import UsageRow, has_tenant, insert_rows, join_rows

log = logging.getLogger(__name__)

_HOUR_S = 3600
_MAX_WAITING = 100_000
"""Rows that wait for the database; more are dropped, those without a tenant first."""
_UNOWNED_KEPT = timedelta(days=1)
"""How long usage waits for the first document of its tenant."""
_PER_PRICE = {
    usage.Quantity.INPUT_TOKENS: ("input", 1e6),
    usage.Quantity.EMBEDDED_TOKENS: ("input", 1e6),
    usage.Quantity.OUTPUT_TOKENS: ("output", 1e6),
    usage.Quantity.RERANKED_PASSAGES: ("passages", 1e3),
}
"""The price of a quantity, and how much it is the price of."""


class _Key(NamedTuple):
    """What amounts are added up by."""

    owner: TenantRef
    hour: int
    """Hours since 1970, in UTC."""
    collection: str | None
    subject: str | None
    quantity: usage.Quantity
    model: str | None


def compute_cost(
    prices: Mapping[str, ModelPrice], quantity: usage.Quantity, model: str | None, amount: float
) -> float | None:
    """Return what an amount costs; None where the model has no price.

    Args:
        prices: In the currency of the settings, by name of the model.
        model: Name of the model; None without one.
    """
    price = None if model is None else prices.get(model)
    if price is None or quantity not in _PER_PRICE:
        return None
    name, unit = _PER_PRICE[quantity]
    cost: float = getattr(price, name) * amount / unit
    return cost


class BufferedMeter:
    """Adds up usage by account and hour, and writes it every `metering.flush_s` seconds. Thread-safe.

    What cannot be written waits: while the database cannot be reached, and up to a day for the tenant's first document.
    `close` writes the rest.
    """

    def __init__(self, context: HookContext) -> None:
        """Create a meter; its thread starts with the first amount."""
        self._settings = context.settings.section(MeteringSettings)
        self._append = context.append
        self.limits = LimitKeeper(context) if self._settings.limits else None
        """Keeps the counters of the limits; None without one."""
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._amounts: defaultdict[_Key, float] = defaultdict(float)
        self._waiting: dict[TenantRef, list[UsageRow]] = {}
        self._stored: set[uuid.UUID] = set()
        """Tenants whose usage has been written: one of them that is not there any more was erased."""
        self._failures: dict[TenantRef, DatabaseError] = {}
        """Why usage waits; that of other tenants waits for their first document."""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def charge(self, reader: AuditContext, quantity: usage.Quantity | None = None) -> AbstractContextManager[None]:
        """Charge what the block uses to a reader. Raises LimitReached. Args: see `Meter.charge`."""
        if self.limits is not None and quantity is not None:
            self.limits.admit(reader.tenant, reader.subject, quantity)
        return usage.charge_to(partial(self._add, reader))

    def _add(self, reader: AuditContext, quantity: usage.Quantity, amount: float, model: str | None) -> None:
        """Add an amount to what a reader has used; nothing is written yet."""
        key = _Key(reader.tenant, int(time.time()) // _HOUR_S, reader.collection, reader.subject, quantity, model)
        with self._lock:
            self._amounts[key] += amount
            if self.limits is not None:
                cost = compute_cost(self._settings.prices, key.quantity, key.model, amount)
                self.limits.add(key.owner, key.subject, key.quantity, amount, cost)
            if self._thread is None and not self._closed.is_set():
                thread = threading.Thread(target=self._run, name="kosmos-rag-metering", daemon=True)
                with suppress(RuntimeError):  # no thread can be started: the next amount tries again
                    thread.start()
                    self._thread = thread

    def flush(self) -> None:
        """Write what is recorded. What the database refuses waits for the next time."""
        with self._writing:
            self._collect_rows()
            self._write_rows()
            self._drop_oldest()
            self._refresh_limits()

    def close(self) -> None:
        """Write what is recorded, and end the thread.

        A database that cannot be reached costs one connection timeout, not one for each tenant.
        """
        self._closed.set()
        self.flush()
        for owner, rows in self._waiting.items():
            # A question to a new tenant is no fault.
            failure = self._failures.get(owner)
            log.log(
                logging.WARNING if failure else logging.INFO,
                "usage of tenant %s was not stored: %s", owner.name,
                f"{failure}; {len(rows):,} rows are lost" if failure else "it has no document",
                extra={"action": "usage_dropped", "tenant": owner.name},
            )  # fmt: skip
        self._waiting.clear()  # a second close reports no loss again

    def _run(self) -> None:
        while not self._closed.wait(self._settings.flush_s):
            try:
                self.flush()
            except Exception:  # the thread continues
                log.exception("usage was not written", extra={"action": "usage_failed"})

    def _collect_rows(self) -> None:
        with self._lock:
            amounts, self._amounts = self._amounts, defaultdict(float)
            if self.limits is not None:
                self.limits.move()
        for key, amount in amounts.items():
            row = UsageRow(
                id=uuid.uuid4(),
                hour=datetime.fromtimestamp(key.hour * _HOUR_S, UTC),
                collection=key.collection,
                subject=key.subject,
                quantity=key.quantity,
                model=key.model,
                amount=amount,
                cost=compute_cost(self._settings.prices, key.quantity, key.model, amount),
            )
            self._waiting.setdefault(key.owner, []).append(row)

    def _write_rows(self) -> None:
        self._failures = {}
        for owner, rows in list(self._waiting.items()):
            try:
                with self._append(owner) as connection:
                    if is_owned := has_tenant(connection, owner.id):
                        insert_rows(connection, owner.id, rows)
                if is_owned:
                    self._stored.add(owner.id)
                    del self._waiting[owner]
                else:
                    self._keep_recent(owner)
            except DatabaseError as error:
                self._failures[owner] = error
                log.debug("usage waits: %s", error, extra={"action": "usage_waits", "tenant": owner.name})
                if concerns_all_tenants(error):
                    self._failures = dict.fromkeys(self._waiting, error)
                    return

    def _keep_recent(self, owner: TenantRef) -> None:
        """Keep the last day of a tenant without a document, joined by hour and without subjects.

        Work on the first document is used before the tenant exists, and belongs on its bill. What an erased tenant used
        is dropped, and no erased name comes back with a new tenant.
        """
        rows, oldest = self._waiting[owner], datetime.now(UTC) - _UNOWNED_KEPT
        recent = [] if owner.id in self._stored else [row for row in rows if row.hour >= oldest]
        if recent:
            # In its place: the order is that in which rows are dropped.
            self._waiting[owner] = join_rows([replace(row, subject=None) for row in recent])
        else:
            del self._waiting[owner]
        if dropped := len(rows) - len(recent):
            log.warning(
                "%d rows of usage were dropped: their tenant was erased, or had no document for a day", dropped,
                extra={"action": "usage_dropped", "tenant": owner.name},
            )  # fmt: skip

    def _refresh_limits(self) -> None:
        if self.limits is None:
            return
        for owner in self.limits.stale_owners - self._waiting.keys():
            if self._closed.is_set():
                return
            try:
                self.limits.refresh(owner)
            except DatabaseError as error:  # the counters stay, and are read the next time
                if concerns_all_tenants(error):
                    return

    def _drop_oldest(self) -> None:
        excess = sum(map(len, self._waiting.values())) - _MAX_WAITING
        for owner in sorted(self._waiting, key=lambda owner: owner.id in self._stored) if excess > 0 else ():
            dropped = len(self._waiting.pop(owner))
            log.error(
                "%d rows of usage were dropped: the database has refused them for long", dropped,
                extra={"action": "usage_dropped", "tenant": owner.name},
            )  # fmt: skip
            excess -= dropped
            if excess <= 0:
                return


def create_query_hooks(context: HookContext) -> QueryHooks:
    """Create the meter of an engine; none where `metering.enabled` is false."""
    return QueryHooks(meter=BufferedMeter(context) if context.settings.section(MeteringSettings).enabled else None)
