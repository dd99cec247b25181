"""The part of maintenance that watches over the deliveries of events."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

import psycopg

from kosmos_rag.core.config import Settings
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.webhooks.metrics import WEBHOOK_BEHIND_SECONDS, WEBHOOK_DEAD_LETTERS
from kosmos_rag.webhooks.records import SubscriberState
from kosmos_rag.webhooks.sql import statement
from kosmos_rag.webhooks.store import SubscriberStore, list_subscribers

_GAUGE_ROUNDS = 3
"""Rounds of maintenance for which a gauge keeps its value."""


class WebhookMaintenance:
    """Restores cancelled deliveries, deletes old dead letters, and measures how far each subscriber is behind."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._hold_s = _GAUGE_ROUNDS * engine.settings.worker.maintenance_every_s

    def run(self, tenant: str, channel: JobChannel) -> JobCounts:
        """Maintain the subscribers of a tenant. Raises DatabaseError."""
        owner, now = self._engine.tenant(tenant), datetime.now(UTC)
        store = SubscriberStore(owner)
        with owner.sessions.write() as connection:
            connection.execute(statement("prune_dead_letters"), {"tenant_id": owner.id})
            for (active,) in connection.execute(
                statement("lock_active_subscribers"), {"tenant_id": owner.id}
            ).fetchall():
                store.enqueue(connection, active)
            subscribers = list_subscribers(connection, owner.id)
        if subscribers:
            waiting = [
                (now - subscriber.waiting_since).total_seconds()
                for subscriber in subscribers
                if subscriber.waiting_since is not None and subscriber.state is not SubscriberState.PAUSED
            ]
            gauges = {
                WEBHOOK_BEHIND_SECONDS: max([0.0, *waiting]),
                WEBHOOK_DEAD_LETTERS: float(sum(subscriber.dead_letters for subscriber in subscribers)),
            }
            channel.report_gauges(tenant, gauges, hold_s=self._hold_s)
        return {}


def list_warnings(connection: psycopg.Connection, tenant_id: uuid.UUID, settings: Settings) -> Iterator[str]:  # noqa: ARG001
    """Yield the problems of the subscribers of a tenant, for `doctor`."""
    for subscriber in list_subscribers(connection, tenant_id):
        if problem := subscriber.describe_problem():
            yield problem
