"""The routes of subscribers, and the page of the console."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kosmos_rag.apps.http.console.pages import PageRoute, redirect, render_page
from kosmos_rag.apps.http.console.sessions import ConsoleOperator
from kosmos_rag.apps.http.toolkit.dependencies import Administrator, Caller, Operator
from kosmos_rag.apps.http.toolkit.wing import HttpWing, PageLink
from kosmos_rag.engine.api_keys import ADMIN, OPERATE
from kosmos_rag.webhooks.records import DeadLetter, Subscriber, hide_path
from kosmos_rag.webhooks.store import SubscriberStore

router = APIRouter(tags=["webhooks"])
pages = APIRouter(route_class=PageRoute, include_in_schema=False)

Name = Annotated[str, Path(max_length=80, description="Name of the subscriber.")]
Sequence = Annotated[int, Path(ge=1, le=2**63 - 1)]
_SHOWN = 50
"""Dead letters of a subscriber on the page."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SubscriberRequest(_Body):
    """A subscriber to add."""

    name: str = Field(max_length=80)
    url: str = Field(max_length=2000, description="Where events are sent to, by POST.")
    types: list[str] = Field(default=[], max_length=50, description="Types of events; empty for all.")
    collections: list[str] = Field(default=[], max_length=1000, description="Collections of events; empty for all.")


class ResumeRequest(_Body):
    """How a subscriber continues."""

    skip: bool = Field(default=False, description="Make the event that cannot be delivered a dead letter first.")


class RedeliveryRequest(_Body):
    """The dead letters to send again."""

    sequence: int | None = Field(default=None, ge=1, le=2**63 - 1, description="Of one event; null for all.")


class SubscriberAdded(BaseModel):
    """A new subscriber and its secret."""

    subscriber: Subscriber
    secret: str


class SubscriberList(BaseModel):
    """All subscribers, by name."""

    subscribers: list[Subscriber]


class SubscriberSecret(BaseModel):
    """The secret of a subscriber."""

    secret: str


class DeadLetterList(BaseModel):
    """The first thousand dead letters, the oldest first."""

    dead_letters: list[DeadLetter]


class Redelivery(BaseModel):
    """How many dead letters are sent again."""

    redelivered: int


def _open(caller: Caller) -> SubscriberStore:
    return SubscriberStore(caller.tenant())


def _redact(caller: Caller, subscriber: Subscriber) -> Subscriber:
    return subscriber if caller.identity.has(ADMIN) else replace(subscriber, url=hide_path(subscriber.url))


@router.post("/v1/webhooks", status_code=201)
async def add(body: SubscriberRequest, caller: Administrator) -> SubscriberAdded:
    """Add a subscriber to the events from now on, and return its secret."""
    store = _open(caller)
    subscriber, secret = await caller.run(
        store.add, body.name, body.url, types=body.types, collections=body.collections
    )
    return SubscriberAdded(subscriber=subscriber, secret=secret)


@router.get("/v1/webhooks")
async def subscribers(caller: Operator) -> SubscriberList:
    """List the subscribers.

    Only administrators see the path of an address, which may hold a secret.
    """
    subscribers = await caller.run(_open(caller).infos)
    return SubscriberList(subscribers=[_redact(caller, subscriber) for subscriber in subscribers])


@router.delete("/v1/webhooks/{name}", status_code=204)
async def remove(name: Name, caller: Administrator) -> None:
    """Remove a subscriber with its dead letters."""
    await caller.run(_open(caller).remove, name)


@router.post("/v1/webhooks/{name}/pause", status_code=204)
async def pause(name: Name, caller: Operator) -> None:
    """Deliver no more events to a subscriber; they wait."""
    await caller.run(_open(caller).pause, name)


@router.post("/v1/webhooks/{name}/resume", status_code=204)
async def resume(name: Name, body: ResumeRequest, caller: Operator) -> None:
    """Deliver events again, at once."""
    await caller.run(_open(caller).resume, name, skip=body.skip)


@router.post("/v1/webhooks/{name}/rotate")
async def rotate(name: Name, caller: Administrator) -> SubscriberSecret:
    """Make a new secret; requests are signed by both for a day."""
    return SubscriberSecret(secret=await caller.run(_open(caller).show_secret, name, rotate=True))


@router.get("/v1/webhooks/{name}/dead-letters")
async def dead_letters(name: Name, caller: Operator) -> DeadLetterList:
    """List the events that a subscriber did not accept, the oldest first."""
    return DeadLetterList(dead_letters=await caller.run(_open(caller).list_dead_letters, name))


@router.post("/v1/webhooks/{name}/redeliver")
async def redeliver(name: Name, body: RedeliveryRequest, caller: Operator) -> Redelivery:
    """Send dead letters again, before the events that wait."""
    return Redelivery(redelivered=await caller.run(_open(caller).redeliver, name, body.sequence))


@pages.get("/webhooks")
async def page(request: Request, caller: ConsoleOperator) -> Response:
    """Show the subscribers, and the dead letters of each."""
    rows = await caller.run(_list_rows, _open(caller))
    redacted = [(_redact(caller, subscriber), letters) for subscriber, letters in rows]
    return render_page(request, "webhooks.html", rows=redacted)


@pages.post("/webhooks/{name}/pause")
async def pause_on_page(name: Name, caller: ConsoleOperator) -> Response:
    """Pause a subscriber."""
    await pause(name, caller)
    return redirect("/webhooks")


@pages.post("/webhooks/{name}/resume")
async def resume_on_page(name: Name, caller: ConsoleOperator) -> Response:
    """Resume a subscriber."""
    await resume(name, ResumeRequest(), caller)
    return redirect("/webhooks")


@pages.post("/webhooks/{name}/redeliver/{sequence}")
async def redeliver_on_page(name: Name, sequence: Sequence, caller: ConsoleOperator) -> Response:
    """Send a dead letter again."""
    await redeliver(name, RedeliveryRequest(sequence=sequence), caller)
    return redirect("/webhooks")


def _list_rows(store: SubscriberStore) -> list[tuple[Subscriber, list[DeadLetter]]]:
    return [
        (subscriber, store.list_dead_letters(subscriber.name, _SHOWN) if subscriber.dead_letters else [])
        for subscriber in store.infos()
    ]


_SUBSCRIBER = {
    "id": "6b7a1d1e-2f4c-4b7e-9d0a-1f3f6f2f9d11",
    "name": "cache",
    "url": "https://hooks.example.org/kosmos",
    "types": ["document.published", "document.removed"],
    "collections": [],
    "state": "active",
    "reason": None,
    "position": 17,
    "waiting_since": None,
    "attempts": 0,
    "error": None,
    "failing_since": None,
    "next_attempt_at": None,
    "delivered_at": "2026-11-20T10:00:00Z",
    "dead_letters": 0,
    "created_at": "2026-11-19T08:00:00Z",
}
_DEAD_LETTER = {
    "sequence": 12,
    "at": "2026-11-20T09:00:00Z",
    "type": "document.published",
    "collection": "default",
    "data": {"document_id": "0c6e6c0e-8c4b-5a43-9f6c-5b0f6c9a7f10", "source": "leave.md", "version": 2},
    "attempts": 15,
    "error": "the endpoint answered 422",
    "failed_at": "2026-11-20T15:00:00Z",
    "redeliver": False,
}
_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 — that of the specification

HTTP = HttpWing(
    routers=(router, pages),
    examples={
        "Subscriber": _SUBSCRIBER,
        "DeadLetter": _DEAD_LETTER,
        "SubscriberRequest": {
            "name": "cache", "url": _SUBSCRIBER["url"], "types": _SUBSCRIBER["types"], "collections": [],
        },
        "ResumeRequest": {"skip": False},
        "RedeliveryRequest": {"sequence": 12},
        "SubscriberAdded": {"subscriber": _SUBSCRIBER, "secret": _SECRET},
        "SubscriberList": {"subscribers": [_SUBSCRIBER]},
        "SubscriberSecret": {"secret": _SECRET},
        "DeadLetterList": {"dead_letters": [_DEAD_LETTER]},
        "Redelivery": {"redelivered": 1},
    },
    templates="kosmos_rag.webhooks",
    links=(PageLink(path="/webhooks", title="Webhooks", scope=OPERATE),),
)  # fmt: skip
