"""Deliver the events of a subscriber in their order, at least once."""

import json
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row, kwargs_row

from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import Event, Job
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.fetching import Fetcher
from kosmos_rag.engine.job_kinds import JobChannel, JobCounts
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.webhooks.metrics import WEBHOOK_DELIVERIES
from kosmos_rag.webhooks.records import DeadLetter, SubscriberState
from kosmos_rag.webhooks.settings import SECTION, WebhookSettings
from kosmos_rag.webhooks.signature import derive_secret, sign
from kosmos_rag.webhooks.sql import statement
from kosmos_rag.webhooks.store import require_signing_key

log = logging.getLogger("kosmos_rag.worker")

SLICE_S = 5.0
"""Seconds after which a job ends, although events wait: other jobs wait too."""
BATCH = 50
FIRST_DELAY_S, LONGEST_DELAY_S = 5.0, 3600.0
LONGEST_RETRY_AFTER_S = 86400
ROTATION = timedelta(days=1)
"""For how long the former secret signs too."""
GONE = 410
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BUSY = frozenset({429, 502, 503, 504})
"""Answers that are about the endpoint, and not about the event."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliveryFailure:
    """Why an event was not delivered."""

    error: str
    answered: bool
    """Whether the endpoint refused this event, and may accept the next one."""
    is_gone: bool = False
    retry_after_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A subscriber as it was when a part of its delivery began."""

    id: uuid.UUID
    name: str
    url: str
    types: list[str]
    collections: list[str]
    state: str
    position: int
    attempts: int
    failures: int
    next_attempt_at: datetime | None
    secret_version: int
    rotated_at: datetime | None


def choose_delay(failures: int, retry_after_s: int | None = None) -> timedelta:
    """Return the pause after consecutive failures, the first of which is 1.

    It doubles from 5 seconds to an hour, with a jitter of 50 %, and is no shorter than the endpoint asks for.
    """
    doubled = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2.0 ** min(failures - 1, 16))
    jittered = doubled * random.uniform(0.5, 1.5)  # noqa: S311 — jitter, not a secret
    return timedelta(seconds=max(jittered, min(retry_after_s or 0, LONGEST_RETRY_AFTER_S)))


def build_message(tenant: str, subscriber_id: uuid.UUID, event: Event | DeadLetter) -> tuple[str, str]:
    """Return id and body of the message of an event, the same for each attempt.

    The id has the time of the event: sequences begin again after an erasure, and repeat after a restore.
    """
    data = {**event.data, "tenant": tenant, "collection": event.collection, "sequence": event.sequence}
    message = {"type": event.type, "timestamp": event.at.astimezone(UTC).isoformat(), "data": data}
    microseconds = (event.at - _EPOCH) // timedelta(microseconds=1)
    return f"evt_{subscriber_id.hex}_{event.sequence}_{microseconds}", json.dumps(message, ensure_ascii=False)


class Sender:
    """Sends signed messages within the limits of the settings."""

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings, max_bytes=0, section=SECTION)

    def send(self, tenant: Tenant, target: Target, event: Event | DeadLetter) -> DeliveryFailure | None:
        """Send an event; return why it was not accepted. Raises ConfigError without a signing key."""
        key, at = require_signing_key(self._settings), datetime.now(UTC)
        versions = [target.secret_version]
        if target.rotated_at is not None and at - target.rotated_at < ROTATION:
            versions.append(target.secret_version - 1)
        secrets = [derive_secret(key, tenant.id, target.id, version) for version in versions]
        message_id, body = build_message(tenant.name, target.id, event)
        headers = {"content-type": "application/json", "user-agent": "kosmos-rag"}
        try:
            receipt = self._fetcher.post(target.url, body.encode(), headers | sign(secrets, message_id, at, body))
        except IngestionError as error:
            return DeliveryFailure(error=str(error), answered=False)
        if 200 <= receipt.status < 300:
            return None
        return DeliveryFailure(
            error=f"the endpoint answered {receipt.status}",
            answered=receipt.status not in _BUSY,
            is_gone=receipt.status == GONE,
            retry_after_s=int(receipt.retry_after) if receipt.retry_after.isdecimal() else None,
        )


class EventDelivery:
    """Runs the jobs that deliver: each for one subscriber, and one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings.section(WebhookSettings)
        self._sender = Sender(self._settings)

    def run(self, job: Job, channel: JobChannel) -> JobCounts:
        """Deliver what waits for a subscriber, until its endpoint fails or the slice ends."""
        tenant, subscriber_id = self._engine.tenant(job.tenant), uuid.UUID(job.payload["subscriber"])
        delivery = _Delivery(tenant, subscriber_id, self._settings, self._sender, job, channel)
        if delivery.run():
            channel.finish(job)
        else:
            tenant.jobs.cancel([job.id])
        return {(WEBHOOK_DELIVERIES.name, outcome): count for outcome, count in delivery.counts.items()}


class _Delivery:
    """One run of a job."""

    def __init__(
        self,
        tenant: Tenant,
        subscriber_id: uuid.UUID,
        settings: WebhookSettings,
        sender: Sender,
        job: Job,
        channel: JobChannel,
    ) -> None:
        self._tenant = tenant
        self._values: dict[str, Any] = {"tenant_id": tenant.id, "id": subscriber_id}
        self._settings = settings
        self._sender = sender
        self._job, self._channel = job, channel
        self._until = time.monotonic() + SLICE_S
        self.counts: Counter[str] = Counter()

    def run(self) -> bool:
        """Send the dead letters that are to be sent again, then the events.

        Returns whether the subscriber exists.
        """
        if not self._redeliver():
            return False
        while (batch := self._read_batch()) is not None and self._send_batch(*batch):
            pass
        return True

    def _redeliver(self) -> bool:
        values = {**self._values, "redelivered": True, "limit": BATCH}
        with self._tenant.sessions.write() as connection:
            target = self._read_target(connection)
            with connection.cursor(row_factory=kwargs_row(DeadLetter)) as cursor:
                letters = cursor.execute(statement("list_dead_letters"), values).fetchall()
        if target is None or target.state != SubscriberState.ACTIVE:
            return target is not None
        for letter in letters:
            if time.monotonic() > self._until:
                break
            failure = self._send(target, letter)
            now = datetime.now(UTC)
            with self._tenant.sessions.write() as connection:
                of_letter = {**self._values, "sequence": letter.sequence}
                if failure is None:
                    connection.execute(statement("delete_dead_letter"), of_letter)
                else:
                    recorded = {**of_letter, "error": failure.error, "now": now}
                    connection.execute(statement("record_failed_redelivery"), recorded)
        return True

    def _read_batch(self) -> tuple[Target, int, list[Event]] | None:
        """Return the subscriber, the end of the batch and its events; None where nothing is due."""
        with self._tenant.sessions.write() as connection:
            target = self._read_target(connection)
            if target is None or target.state != SubscriberState.ACTIVE or time.monotonic() > self._until:
                return None
            if target.next_attempt_at is not None and target.next_attempt_at > datetime.now(UTC):
                return None
            # The end first: what is committed after it is of the next batch.
            row = connection.execute(statement("read_stream"), self._values).fetchone()
            last = target.position if row is None else row[0]
            if last <= target.position or self._stop_at_gap(connection, target, last):
                return None
            values = {
                **self._values, "position": target.position, "last": last, "types": target.types,
                "collections": target.collections, "limit": BATCH,
            }  # fmt: skip
            with connection.cursor(row_factory=kwargs_row(Event)) as cursor:
                events = cursor.execute(statement("list_undelivered"), values).fetchall()
        return target, last if len(events) < BATCH else events[-1].sequence, events

    def _stop_at_gap(self, connection: psycopg.Connection, target: Target, last: int) -> bool:
        """Stop a subscriber that has missed events, and return whether it is so."""
        values = {**self._values, "position": target.position}
        row = connection.execute(statement("find_next_sequence"), values).fetchone()
        following = row[0] if row is not None and row[0] is not None else last + 1
        if following == target.position + 1:
            return False
        reason = (
            f"the events {target.position + 1} to {following - 1} were deleted before their delivery, or not recorded; "
            "compare its documents with the list of documents"
        )
        connection.execute(statement("stop_subscriber"), {**values, "reason": reason, "after": following - 1})
        self._log_stop(target, reason)
        return True

    def _send_batch(self, target: Target, end: int, events: Sequence[Event]) -> bool:
        """Send events in their order, and return whether to read the next batch."""
        position = target.position
        for event in events:
            if time.monotonic() > self._until:
                return False
            failure = self._send(target, event)
            if failure is not None:
                return self._record_failure(target, position, event, failure)
            if not self._advance(position, event.sequence, datetime.now(UTC)):
                return False
            position = event.sequence
        return position == end or self._advance(position, end, None)

    def _send(self, target: Target, event: Event | DeadLetter) -> DeliveryFailure | None:
        self._channel.report_progress()
        self._channel.require_running(self._job)
        failure = self._sender.send(self._tenant, target, event)
        self.counts["delivered" if failure is None else "failed"] += 1
        return failure

    def _advance(self, position: int, after: int, delivered_at: datetime | None) -> bool:
        """Record the position; return whether no other delivery was faster."""
        values = {**self._values, "position": position, "after": after, "delivered_at": delivered_at}
        with self._tenant.sessions.write() as connection:
            return connection.execute(statement("advance_subscriber"), values).fetchone() is not None

    def _record_failure(self, target: Target, position: int, event: Event, failure: DeliveryFailure) -> bool:
        """Record a failure, and return whether to continue with the next event."""
        now = datetime.now(UTC)
        is_first = position == target.position
        attempts = (target.attempts if is_first else 0) + failure.answered
        failures = (target.failures if is_first else 0) + 1
        values = {**self._values, "position": position, "error": failure.error, "now": now, "attempts": attempts}
        with self._tenant.sessions.write() as connection:
            if failure.is_gone:
                reason = f"{target.url} is gone ({failure.error}); add a subscriber with its new address, or remove it"
                connection.execute(statement("stop_subscriber"), {**values, "reason": reason, "after": position})
                self._log_stop(target, reason)
                return False
            if attempts >= self._settings.max_attempts:
                connection.execute(statement("insert_dead_letter"), {**values, "sequence": event.sequence})
                advanced = {**values, "after": event.sequence, "delivered_at": None}
                connection.execute(statement("advance_subscriber"), advanced)
                self.counts["dead"] += 1
                return True
            pause = choose_delay(failures, failure.retry_after_s)
            connection.execute(statement("record_failed_delivery"), {**values, "next_attempt_at": now + pause})
        log.warning(
            "event %d was not delivered to %s; next attempt in %.0f s", event.sequence, target.name,
            pause.total_seconds(),
            extra={"action": "webhook_failed", "tenant": self._tenant.name, "texts": {"error": failure.error}},
        )  # fmt: skip
        return False

    def _read_target(self, connection: psycopg.Connection) -> Target | None:
        with connection.cursor(row_factory=class_row(Target)) as cursor:
            return cursor.execute(statement("read_subscriber"), self._values).fetchone()

    def _log_stop(self, target: Target, reason: str) -> None:
        log.error(
            "subscriber %s is stopped", target.name,
            extra={"action": "webhook_stopped", "tenant": self._tenant.name, "texts": {"reason": reason}},
        )  # fmt: skip
