"""Subscribers and dead letters as they are read."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from kosmos_rag.core.types.serialize import Serializable


def hide_path(url: str) -> str:
    """Return a URL without its path and query, which may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class SubscriberState(StrEnum):
    """Whether a subscriber receives events."""

    ACTIVE = "active"
    PAUSED = "paused"
    """An administrator paused it; its events wait."""
    STOPPED = "stopped"
    """It needs an administrator: its endpoint is gone, or events were deleted before their delivery."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscriber(Serializable):
    """A subscriber to the events of a tenant."""

    id: uuid.UUID
    name: str
    url: str
    types: list[str]
    """Types of events that it receives; empty for all."""
    collections: list[str]
    """Collections whose events it receives; empty for all."""
    state: SubscriberState
    reason: str | None
    """Why it is stopped."""
    position: int
    """Sequence up to which it has received events."""
    waiting_since: datetime | None
    """Time of the first event that it has not received; None where it has all."""
    attempts: int
    """Answered attempts to deliver that event."""
    error: str | None
    """Why the last attempt failed; None after a success."""
    failing_since: datetime | None
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    """Time of the last delivery."""
    dead_letters: int
    created_at: datetime

    def describe_problem(self) -> str | None:
        """Return what an administrator must do; None where nothing is wrong."""
        if self.state is SubscriberState.STOPPED:
            return f"subscriber {self.name} is stopped: {self.reason}; then `kosmos-rag webhooks resume {self.name}`"
        if self.state is SubscriberState.ACTIVE and self.error is not None:
            since = "" if self.waiting_since is None else f" since {self.waiting_since:%Y-%m-%d %H:%M} UTC"
            return f"events for subscriber {self.name} wait{since}: {self.error}"
        if self.dead_letters:
            return (
                f"subscriber {self.name} has {self.dead_letters} dead letters; remove the cause that `kosmos-rag "
                f"webhooks dead-letters {self.name}` shows, then `kosmos-rag webhooks redeliver {self.name}`"
            )
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetter(Serializable):
    """An event that a subscriber did not accept."""

    sequence: int
    at: datetime
    type: str
    collection: str
    data: Mapping[str, Any]
    attempts: int
    error: str
    failed_at: datetime
    redeliver: bool
    """Whether it waits to be sent again."""
