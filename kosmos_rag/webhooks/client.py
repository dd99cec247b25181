"""Calls of the Python client for subscribers."""

from collections.abc import Mapping, Sequence
from typing import Any

from kosmos_rag.apps.client.transport import Call
from kosmos_rag.core.types.serialize import from_dict
from kosmos_rag.webhooks.records import DeadLetter, Subscriber


def add_webhook(
    name: str, url: str, *, types: Sequence[str] = (), collections: Sequence[str] = ()
) -> Call[tuple[Subscriber, str]]:
    """Add a subscriber to the events from now on; return it and its secret.

    Args:
        url: Where events are sent to.
        types: Types of events; empty for all.
        collections: Collections of events; empty for all.
    """
    body = {"name": name, "url": url, "types": list(types), "collections": list(collections)}
    return Call(method="POST", path="/v1/webhooks", body=body, read=_read_added)


def webhooks() -> Call[list[Subscriber]]:
    """List the subscribers of the tenant."""
    return Call(method="GET", path="/v1/webhooks", read=_read_subscribers)


def remove_webhook(name: str) -> Call[None]:
    """Remove a subscriber with its dead letters."""
    return Call(method="DELETE", path=f"/v1/webhooks/{name}", read=_ignore)


def pause_webhook(name: str) -> Call[None]:
    """Deliver no more events to a subscriber; they wait."""
    return Call(method="POST", path=f"/v1/webhooks/{name}/pause", read=_ignore)


def resume_webhook(name: str, *, skip: bool = False) -> Call[None]:
    """Deliver events again, at once.

    Args:
        skip: Make the event that cannot be delivered a dead letter first.
    """
    return Call(method="POST", path=f"/v1/webhooks/{name}/resume", body={"skip": skip}, read=_ignore)


def rotate_webhook(name: str) -> Call[str]:
    """Make a new secret and return it; requests are signed by both for a day."""
    return Call(method="POST", path=f"/v1/webhooks/{name}/rotate", read=_read_secret)


def dead_letters(name: str) -> Call[list[DeadLetter]]:
    """List the events that a subscriber did not accept, the oldest first."""
    return Call(method="GET", path=f"/v1/webhooks/{name}/dead-letters", read=_read_letters)


def redeliver(name: str, sequence: int | None = None) -> Call[int]:
    """Send dead letters again, before the events that wait; return their number.

    Args:
        sequence: Of one event; None for all.
    """
    path = f"/v1/webhooks/{name}/redeliver"
    return Call(method="POST", path=path, body={"sequence": sequence}, read=_read_redelivered)


def _ignore(_: Any) -> None:
    return None


def _read_added(body: Mapping[str, Any]) -> tuple[Subscriber, str]:
    return from_dict(Subscriber, body["subscriber"]), body["secret"]


def _read_subscribers(body: Mapping[str, Any]) -> list[Subscriber]:
    return [from_dict(Subscriber, subscriber) for subscriber in body["subscribers"]]


def _read_secret(body: Mapping[str, Any]) -> str:
    return str(body["secret"])


def _read_letters(body: Mapping[str, Any]) -> list[DeadLetter]:
    return [from_dict(DeadLetter, letter) for letter in body["dead_letters"]]


def _read_redelivered(body: Mapping[str, Any]) -> int:
    return int(body["redelivered"])


CALLS = {
    "add_webhook": add_webhook,
    "webhooks": webhooks,
    "remove_webhook": remove_webhook,
    "pause_webhook": pause_webhook,
    "resume_webhook": resume_webhook,
    "rotate_webhook": rotate_webhook,
    "dead_letters": dead_letters,
    "redeliver": redeliver,
}
"""The methods that the client has while the wing is present."""
