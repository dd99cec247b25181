"""Deliver the events of a subscriber in their order, at least once."""

import json
import logging
import random
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row, kwargs_row

from kosmos_rag.core.errors import IngestionError
from kosmos_rag.core.types import Event, Job
from kosmos_rag.engine.engine import Engine
from kosmos_rag.engine.fetching import Fetcher
from kosmos_rag.engine.job_kinds import JobChannel
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.webhooks.metrics import WEBHOOK_DELIVERIES
from kosmos_rag.webhooks.records import DeadLetter, SubscriberState, hide_path
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
    retry_after_s: float | None = None


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


def choose_delay(failures: int, retry_after_s: float | None = None) -> timedelta:
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
        headers = {"content-type": "application/json"}
        headers |= sign(secrets, message_id, at, body)
        try:
            receipt = self._fetcher.post(target.url, body.encode(), headers)
        except IngestionError as error:
            return DeliveryFailure(error=str(error).replace(target.url, hide_path(target.url)), answered=False)
        except Exception as error:  # noqa: BLE001 — every failure is recorded, whatever an endpoint causes
            return DeliveryFailure(error=f"the request failed with {type(error).__name__}", answered=False)
        if 200 <= receipt.status < 300:
            return None
        return DeliveryFailure(
            error=f"the endpoint answered {receipt.status}",
            answered=receipt.status not in _BUSY,
            is_gone=receipt.status == GONE,
            retry_after_s=receipt.retry_after_s,
        )


class EventDelivery:
    """Runs the jobs that deliver: each for one subscriber, and one at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settings = engine.settings.section(WebhookSettings)
        self._sender = Sender(self._settings)

    def run(self, job: Job, channel: JobChannel) -> None:
        """Deliver what waits for a subscriber, until its endpoint fails or the slice ends."""
        tenant, subscriber_id = self._engine.tenant(job.tenant), uuid.UUID(job.payload["subscriber"])
        delivery = _Delivery(tenant, subscriber_id, self._settings, self._sender, job, channel)
        try:
            exists = delivery.run()
        finally:  # what was sent counts, whatever ends the run
            channel.report_counts({(WEBHOOK_DELIVERIES.name, name): n for name, n in delivery.counts.items()})
        if exists:
            channel.finish(job)
        else:
            tenant.jobs.cancel([job.id])


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
        values = {**self._values, "redelivered": True, "limit": BATCH}
        while True:
            with self._tenant.sessions.write() as connection:
                target = self._read_target(connection)
                with connection.cursor(row_factory=kwargs_row(DeadLetter)) as cursor:
                    letters = cursor.execute(statement("list_dead_letters"), values).fetchall()
            if target is None:
                return False
            if not self._is_due(target) or not self._redeliver(target, letters):
                return True
            if len(letters) < BATCH:
                break
        while (batch := self._read_batch()) is not None and self._send_batch(*batch):
            pass
        return True

    def _is_due(self, target: Target) -> bool:
        if target.state != SubscriberState.ACTIVE or time.monotonic() > self._until:
            return False
        return target.next_attempt_at is None or target.next_attempt_at <= datetime.now(UTC)

    def _redeliver(self, target: Target, letters: Sequence[DeadLetter]) -> bool:
        """Send dead letters again, and return whether events may follow."""
        current: Target | None = target
        for letter in letters:
            if current is None or current.state != SubscriberState.ACTIVE or time.monotonic() > self._until:
                return False
            failure = self._send(current, letter)
            values = {**self._values, "sequence": letter.sequence, "now": datetime.now(UTC)}
            with self._tenant.sessions.write() as connection:
                if failure is None:
                    connection.execute(statement("delete_dead_letter"), values)
                    connection.execute(statement("record_redelivery"), values)
                elif failure.is_gone:
                    self._stop_gone(connection, current, current.position, failure)
                    return False
                elif failure.answered:
                    connection.execute(statement("record_failed_redelivery"), {**values, "error": failure.error})
                    self.counts["dead"] += 1
                else:  # The letter waits: the failure is about the endpoint.
                    of_head = {**values, "position": current.position, "attempts": current.attempts}
                    self._back_off(connection, current, of_head, current.failures + 1, failure)
                    return False
                current = self._read_target(connection)
        return current is not None and current.state == SubscriberState.ACTIVE

    def _read_batch(self) -> tuple[Target, int, list[Event]] | None:
        """Return the subscriber, the end of the batch and its events; None where nothing is due."""
        with self._tenant.sessions.write() as connection:
            target = self._read_target(connection)
            if target is None or not self._is_due(target):
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
        self._stop(connection, target, {**values, "reason": reason, "after": following - 1})
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
        if failure is None:
            self.counts["delivered"] += 1
        return failure

    def _advance(self, position: int, after: int, delivered_at: datetime | None) -> bool:
        """Record the position; return whether the subscriber is still active, and no other delivery was faster."""
        values = {**self._values, "position": position, "after": after, "delivered_at": delivered_at}
        with self._tenant.sessions.write() as connection:
            row = connection.execute(statement("advance_subscriber"), values).fetchone()
        return row is not None and row[0] == SubscriberState.ACTIVE

    def _record_failure(self, target: Target, position: int, event: Event, failure: DeliveryFailure) -> bool:
        """Record a failure, and return whether to continue with the next event."""
        is_first = position == target.position
        attempts = (target.attempts if is_first else 0) + failure.answered
        failures = (target.failures if is_first else 0) + 1
        values = {
            **self._values, "position": position, "sequence": event.sequence, "attempts": attempts,
            "error": failure.error, "now": datetime.now(UTC),
        }  # fmt: skip
        with self._tenant.sessions.write() as connection:
            if failure.is_gone:
                self._stop_gone(connection, target, position, failure)
            elif attempts >= self._settings.max_attempts:
                return self._insert_dead_letter(connection, values)
            else:
                self._back_off(connection, target, values, failures, failure)
        return False

    def _insert_dead_letter(self, connection: psycopg.Connection, values: Mapping[str, Any]) -> bool:
        # The position first: a delivery that was overtaken leaves no dead letter.
        advanced = {**values, "after": values["sequence"], "delivered_at": None}
        row = connection.execute(statement("advance_subscriber"), advanced).fetchone()
        if row is None:
            return False
        connection.execute(statement("insert_dead_letter"), values)
        self.counts["dead"] += 1
        return bool(row[0] == SubscriberState.ACTIVE)

    def _back_off(
        self,
        connection: psycopg.Connection,
        target: Target,
        values: Mapping[str, Any],
        failures: int,
        failure: DeliveryFailure,
    ) -> None:
        self.counts["failed"] += 1
        pause = choose_delay(failures, failure.retry_after_s)
        recorded = {**values, "error": failure.error, "next_attempt_at": values["now"] + pause}
        connection.execute(statement("record_failed_delivery"), recorded)
        log.warning(
            "event %d was not delivered to %s; next attempt in %.0f s", values["sequence"], target.name,
            pause.total_seconds(),
            extra={"action": "webhook_failed", "tenant": self._tenant.name, "texts": {"error": failure.error}},
        )  # fmt: skip

    def _stop_gone(
        self, connection: psycopg.Connection, target: Target, position: int, failure: DeliveryFailure
    ) -> None:
        reason = (
            f"{hide_path(target.url)} is gone ({failure.error}); add a subscriber with its new address, or remove it"
        )
        self._stop(connection, target, {**self._values, "position": position, "after": position, "reason": reason})
        self.counts["gone"] += 1

    def _stop(self, connection: psycopg.Connection, target: Target, values: Mapping[str, Any]) -> None:
        if connection.execute(statement("stop_subscriber"), values).rowcount:
            log.error(
                "subscriber %s is stopped", target.name,
                extra={"action": "webhook_stopped", "tenant": self._tenant.name, "texts": {"reason": values["reason"]}},
            )  # fmt: skip

    def _read_target(self, connection: psycopg.Connection) -> Target | None:
        with connection.cursor(row_factory=class_row(Target)) as cursor:
            return cursor.execute(statement("read_subscriber"), self._values).fetchone()
