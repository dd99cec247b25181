"""The subscribers of a tenant in the database."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import kwargs_row

from kosmos_rag.core.errors import ConfigError, IngestionError, NotFound, RequestError
from kosmos_rag.core.names import validate_name
from kosmos_rag.core.types import EventType
from kosmos_rag.engine.fetching import check_url, require_allowed_host
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.webhooks.job_kinds import DELIVER
from kosmos_rag.webhooks.records import DeadLetter, Subscriber, SubscriberState
from kosmos_rag.webhooks.settings import SECTION, WebhookSettings
from kosmos_rag.webhooks.signature import derive_secret
from kosmos_rag.webhooks.sql import statement

MAX_DEAD_LETTERS = 1000
"""Dead letters that a list has."""
_MAX_URL = 2000


def require_signing_key(settings: WebhookSettings) -> str:
    """Return the key of all secrets. Raises ConfigError where the settings have none."""
    if settings.signing_key is None:
        raise ConfigError(
            "webhooks.signing_key is not set, so no event can be signed; set it to 32 random characters or more"
        )
    return settings.signing_key.get_secret_value()


def list_subscribers(connection: psycopg.Connection, tenant_id: uuid.UUID, name: str | None = None) -> list[Subscriber]:
    """Return the subscribers of a tenant by name, or one of them.

    Args:
        connection: A transaction of the worker role for the tenant.
    """
    with connection.cursor(row_factory=kwargs_row(_read_subscriber)) as cursor:
        return cursor.execute(statement("list_subscribers"), {"tenant_id": tenant_id, "name": name}).fetchall()


class SubscriberStore:
    """The subscribers of one tenant.

    Every call raises ConfigError without `database.worker_url`, and DatabaseError.
    """

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._settings = tenant.settings.section(WebhookSettings)

    def add(
        self, name: str, url: str, *, types: Sequence[str] = (), collections: Sequence[str] = ()
    ) -> tuple[Subscriber, str]:
        """Add a subscriber to the events from now on; return it and its secret.

        The record of the tenant's events begins, if it is not running.

        Args:
            url: Where events are sent to, by POST.
            types: Types of events; empty for all.
            collections: Collections of events; empty for all.

        Raises:
            RequestError: The name is malformed or taken, the URL is not allowed, there are too many subscribers, or a
                start of the record would delete events of another subscriber.
            ConfigError: `webhooks.signing_key` is not set.
        """
        validate_name("subscriber", name)
        self._check_url(url)
        if unknown := sorted(set(types) - set(EventType)):
            raise RequestError(f"there is no event type {unknown[0][:60]!r}; use {', '.join(EventType)}")
        for collection in collections:
            validate_name("collection", collection)
        key, subscriber_id = require_signing_key(self._settings), uuid.uuid4()
        values = {
            **self._values(name), "id": subscriber_id, "url": url, "types": list(types),
            "collections": list(collections), "now": datetime.now(UTC),
        }  # fmt: skip
        with self._tenant.sessions.write() as connection:
            self._tenant.jobs.ensure_tenant(connection)
            self._check_pause(connection)
            # It locks the record, so the count holds for additions at the same time.
            self._tenant.events.start_recording(connection)
            row = connection.execute(statement("count_subscribers"), values).fetchone()
            if row is not None and row[0] >= self._settings.max_subscribers:
                raise RequestError(f"there are {row[0]} subscribers; remove one, or raise webhooks.max_subscribers")
            if connection.execute(statement("insert_subscriber"), values).fetchone() is None:
                raise RequestError(f"there is a subscriber {name} already; remove it, or use another name")
            self.enqueue(connection, subscriber_id)
            (subscriber,) = list_subscribers(connection, self._tenant.id, name)
        return subscriber, derive_secret(key, self._tenant.id, subscriber_id, 1)

    def infos(self) -> list[Subscriber]:
        """Return the subscribers by name."""
        with self._tenant.sessions.write() as connection:
            return list_subscribers(connection, self._tenant.id)

    def pause(self, name: str) -> None:
        """Deliver no more events to a subscriber; they wait. Raises NotFound, RequestError for a stopped one."""
        self._set_state(name, SubscriberState.PAUSED)

    def resume(self, name: str, *, skip: bool = False) -> None:
        """Deliver events again, at once. Raises NotFound.

        Args:
            skip: Make the event that could not be delivered a dead letter, and continue after it; RequestError where
                there is none.
        """
        if skip:
            self._skip(name)
        self._set_state(name, SubscriberState.ACTIVE)

    def remove(self, name: str) -> None:
        """Remove a subscriber with its dead letters. Raises NotFound.

        The next run of its job cancels that job.
        """
        with self._tenant.sessions.write() as connection:
            _require_row(connection.execute(statement("delete_subscriber"), self._values(name)).fetchone())

    def show_secret(self, name: str, *, rotate: bool = False) -> str:
        """Return the secret of a subscriber. Raises NotFound, ConfigError.

        Args:
            rotate: Make a new one first; requests are signed by both for a day.
        """
        values = {**self._values(name), "now": datetime.now(UTC)}
        query = statement("rotate_secret") if rotate else statement("read_secret_version")
        with self._tenant.sessions.write() as connection:
            subscriber_id, version = _require_row(connection.execute(query, values).fetchone())
            return derive_secret(require_signing_key(self._settings), self._tenant.id, subscriber_id, version)

    def list_dead_letters(self, name: str, limit: int = MAX_DEAD_LETTERS) -> list[DeadLetter]:
        """Return the events that a subscriber did not accept, the oldest first. Raises NotFound.

        Args:
            limit: At most so many; a thousand without it.
        """
        with self._tenant.sessions.write() as connection:
            values = {"id": self._find(connection, name).id, "redelivered": False, "limit": limit}
            with connection.cursor(row_factory=kwargs_row(DeadLetter)) as cursor:
                query = statement("list_dead_letters")
                return cursor.execute(query, {"tenant_id": self._tenant.id, **values}).fetchall()

    def redeliver(self, name: str, sequence: int | None = None) -> int:
        """Send dead letters again, before the events that wait; return their number.

        Args:
            sequence: Of one event; None for all.

        Raises NotFound for an unknown subscriber, RequestError where there is no such dead letter.
        """
        with self._tenant.sessions.write() as connection:
            subscriber = self._find(connection, name)
            values = {"tenant_id": self._tenant.id, "id": subscriber.id, "sequence": sequence}
            count = connection.execute(statement("redeliver_dead_letters"), values).rowcount
            if not count:
                missing = "no dead letters" if sequence is None else f"no dead letter {sequence}"
                raise RequestError(
                    f"subscriber {name} has {missing}; `kosmos-rag webhooks dead-letters {name}` shows all"
                )
            self.enqueue(connection, subscriber.id)
        return count

    def enqueue(self, connection: psycopg.Connection, subscriber_id: uuid.UUID) -> None:
        """Enqueue the periodic delivery to a subscriber, to begin now.

        Args:
            connection: A transaction of the worker role.
        """
        payload, every = {"subscriber": str(subscriber_id)}, timedelta(seconds=self._settings.poll_s)
        self._tenant.jobs.enqueue_tenant_job(connection, DELIVER, str(subscriber_id), payload, every=every)

    def _check_url(self, url: str) -> None:
        if len(url) > _MAX_URL:
            raise RequestError(f"the URL has {len(url):,} characters; use at most {_MAX_URL:,}")
        try:
            require_allowed_host(check_url(url), self._settings, SECTION)
        except ValueError as error:
            raise RequestError(f"the URL is refused: {error}") from error
        except IngestionError as error:
            raise RequestError(str(error)) from error

    def _check_pause(self, connection: psycopg.Connection) -> None:
        """Raise RequestError where a start of the record would delete events that a subscriber needs."""
        stream = connection.execute(statement("read_stream"), {"tenant_id": self._tenant.id}).fetchone()
        if stream is None or stream[1]:
            return
        for subscriber in list_subscribers(connection, self._tenant.id):
            if subscriber.waiting_since is not None or subscriber.dead_letters:
                raise RequestError(
                    "the record of events is stopped, and its start would delete events that subscriber "
                    f"{subscriber.name} has not received; wait until `kosmos-rag webhooks list` shows none, remove "
                    f"this subscriber, or delete them by `kosmos-rag events start -t {self._tenant.name}`"
                )

    def _set_state(self, name: str, state: SubscriberState) -> None:
        with self._tenant.sessions.write() as connection:
            values = {**self._values(name), "state": str(state)}
            row = connection.execute(statement("set_subscriber_state"), values).fetchone()
            if row is None:
                reason = self._find(connection, name).reason
                raise RequestError(f"subscriber {name} is stopped: {reason}; resume or remove it")
            if state is SubscriberState.ACTIVE:
                self.enqueue(connection, row[0])

    def _skip(self, name: str) -> None:
        with self._tenant.sessions.write() as connection:
            subscriber = self._find(connection, name)
            undelivered = {
                "position": subscriber.position, "last": 2**63 - 1, "types": subscriber.types,
                "collections": subscriber.collections, "limit": 1,
            }  # fmt: skip
            values = {"tenant_id": self._tenant.id, "id": subscriber.id, **undelivered}
            event = connection.execute(statement("list_undelivered"), values).fetchone()
            if event is None:
                raise RequestError(f"no event waits for subscriber {name}; resume it without skipping one")
            row = connection.execute(statement("find_next_sequence"), values).fetchone()
            if row is None or row[0] != subscriber.position + 1:
                raise RequestError(
                    f"events after {subscriber.position} were deleted before their delivery; resume subscriber {name} "
                    "without skipping one, and `kosmos-rag webhooks list` shows which"
                )
            error = f"skipped by an administrator; before: {subscriber.error}"
            letter = {"sequence": event[0], "attempts": subscriber.attempts, "error": error, "now": datetime.now(UTC)}
            advanced = values | {"after": event[0], "delivered_at": None}
            if connection.execute(statement("advance_subscriber"), advanced).fetchone() is None:
                raise RequestError(
                    f"subscriber {name} has received event {event[0]} meanwhile; resume it without skipping one"
                )
            connection.execute(statement("insert_dead_letter"), values | letter)

    def _find(self, connection: psycopg.Connection, name: str) -> Subscriber:
        subscribers = list_subscribers(connection, self._tenant.id, name)
        return subscribers[0] if subscribers else _raise_unknown()

    def _values(self, name: str) -> dict[str, Any]:
        return {"tenant_id": self._tenant.id, "name": name}


def _read_subscriber(*, state: str, **columns: Any) -> Subscriber:
    return Subscriber(state=SubscriberState(state), **columns)


def _require_row(row: tuple[Any, ...] | None) -> tuple[Any, ...]:
    return _raise_unknown() if row is None else row


def _raise_unknown() -> Any:
    raise NotFound("there is no such subscriber; `kosmos-rag webhooks list` shows them")
