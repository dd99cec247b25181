"""Delivery to a real endpoint: in order, at least once, with back-off, dead letters and gaps that stop it."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Thread
from typing import Any

import pytest

from kosmos_rag import Engine, Tenant
from kosmos_rag.core.errors import DatabaseError, RequestError
from kosmos_rag.core.types import Job, JobState
from kosmos_rag.storage.sql import statement
from kosmos_rag.webhooks import delivery
from kosmos_rag.webhooks.job_kinds import DELIVER
from kosmos_rag.webhooks.records import Subscriber
from kosmos_rag.webhooks.store import SubscriberStore
from kosmos_rag.worker.channel import SupervisorChannel
from tests.integration.webhooks.conftest import Deliver, Maintain
from tests.integration.webhooks.receiver import Receiver

pytestmark = pytest.mark.emptied_database
Write = Callable[..., None]


def _show(store: SubscriberStore, name: str = "cache") -> Subscriber:
    return next(subscriber for subscriber in store.infos() if subscriber.name == name)


def _refuse(status: int, *sources: str) -> Callable[[dict[str, Any]], int]:
    return lambda message: status if not sources or message["data"].get("source") in sources else 204


def _set_position(tenant: Tenant, position: int) -> None:
    with tenant.sessions.write() as connection:
        query = "UPDATE kosmos.webhook_subscribers SET position = %s WHERE tenant_id = %s"
        connection.execute(query, [position, tenant.id])


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each failed attempt repeated at the next job."""
    monkeypatch.setattr(delivery, "choose_delay", lambda *_: timedelta(seconds=-1))


def test_events__are_delivered_signed_and_in_order(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    write("before.md")
    subscriber, receiver.secret = store.add("cache", receiver.url)
    write(*(f"{number}.md" for number in range(3)))
    acme.delete("1.md")
    deliver()
    deliver()
    assert receiver.sequences == [1, 2, 3, 4]
    assert [message["type"] for message in receiver.messages] == ["document.published"] * 3 + ["document.removed"]
    first = receiver.messages[0]
    assert first["data"]["source"] == "0.md"
    assert (first["data"]["tenant"], first["data"]["collection"]) == ("acme", "default")
    assert datetime.fromisoformat(first["timestamp"]).tzinfo is not None
    events, _ = acme.events.read()
    times = [int(event.at.replace(microsecond=0).timestamp()) * 10**6 + event.at.microsecond for event in events]
    assert receiver.ids == [f"evt_{subscriber.id.hex}_{number}_{at}" for number, at in enumerate(times, 1)]
    delivered = _show(store)
    assert (delivered.position, delivered.waiting_since, delivered.error) == (4, None, None)
    assert delivered.delivered_at is not None
    assert subscriber.id == delivered.id


def test_subscriber__receives_the_types_and_collections_it_chose(
    engine: Engine, store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url, types=["document.removed"], collections=["default"])
    write("a.md", "b.md")
    acme.delete("a.md")
    other = engine.tenant("acme", collection="other")
    other.ingest([])
    deliver()
    assert [message["type"] for message in receiver.messages] == ["document.removed"]
    assert _show(store).position == 3


def test_endpoint__that_is_down_receives_all_events_in_order_later(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, at_once: None
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = _refuse(503)
    write("a.md", "b.md", "c.md")
    for _ in range(6):
        deliver()
    waiting = _show(store)
    assert (waiting.error, waiting.attempts, waiting.dead_letters) == ("the endpoint answered 503", 0, 0)
    assert waiting.failing_since is not None
    assert waiting.waiting_since is not None
    assert len(receiver.requests) == 6
    assert {request["webhook-id"] for request in receiver.requests} == {receiver.requests[0]["webhook-id"]}
    receiver.reply = _refuse(204)
    deliver()
    assert receiver.sequences == [1, 2, 3]
    assert (_show(store).error, _show(store).failing_since) == (None, None)


def test_failed_event__waits_for_its_next_attempt(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply, receiver.headers = _refuse(429), {"Retry-After": "120"}
    write("a.md")
    for _ in range(3):
        deliver()
    assert len(receiver.requests) == 1
    next_attempt = _show(store).next_attempt_at
    assert next_attempt is not None
    assert 100 < (next_attempt - datetime.now(UTC)).total_seconds() <= 120
    receiver.reply = _refuse(204)
    store.resume("cache")
    deliver()
    assert receiver.sequences == [1]


def test_retry_after__that_is_hostile_or_a_date_is_recorded(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply, receiver.headers = _refuse(503), {"Retry-After": "9" * 5000}
    write("a.md")
    deliver()
    failing = _show(store)
    assert failing.error == "the endpoint answered 503"
    assert failing.next_attempt_at is not None
    assert 86_000 < (failing.next_attempt_at - datetime.now(UTC)).total_seconds() <= delivery.LONGEST_RETRY_AFTER_S
    receiver.headers = {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=120), usegmt=True)}
    store.resume("cache")
    deliver()
    next_attempt = _show(store).next_attempt_at
    assert next_attempt is not None
    assert 100 < (next_attempt - datetime.now(UTC)).total_seconds() <= 121


def test_request__that_fails_in_an_unexpected_way_is_a_recorded_failure(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    with acme.sessions.write() as connection:  # by hand, since no check accepts it
        query = "UPDATE kosmos.webhook_subscribers SET url = 'http://127.0.0.1:port/' WHERE tenant_id = %s"
        connection.execute(query, [acme.id])
    deliver()
    failing = _show(store)
    assert (failing.error or "").startswith("the request failed with ")
    assert failing.next_attempt_at is not None


def test_redelivery__in_an_outage_waits_until_the_endpoint_answers(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    write("a.md", "b.md")
    for _ in range(2):
        store.resume("cache", skip=True)
    store.redeliver("cache")
    receiver.reply = _refuse(503)
    for _ in range(3):
        deliver()
    assert len(receiver.requests) == 1
    failing = _show(store)
    assert (failing.error, failing.next_attempt_at is None) == ("the endpoint answered 503", False)
    assert [letter.redeliver for letter in store.list_dead_letters("cache")] == [True, True]
    receiver.reply = _refuse(204)
    store.resume("cache")
    deliver()
    assert receiver.sequences == [1, 2]
    assert (_show(store).error, _show(store).dead_letters) == (None, 0)


def test_redelivery__of_more_letters_than_a_batch_is_before_the_events_that_wait(
    store: SubscriberStore,
    receiver: Receiver,
    write: Write,
    deliver: Deliver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "BATCH", 2)
    monkeypatch.setattr(delivery, "SLICE_S", 60.0)
    store.add("cache", receiver.url)
    write(*(f"{number}.md" for number in range(6)))
    for _ in range(5):
        store.resume("cache", skip=True)
    store.redeliver("cache")
    deliver()
    assert receiver.sequences == [1, 2, 3, 4, 5, 6]


def test_redelivery__to_an_endpoint_that_is_gone_stops_the_subscriber(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    write("a.md", "b.md")
    for _ in range(2):
        store.resume("cache", skip=True)
    store.redeliver("cache")
    receiver.reply = _refuse(410)
    deliver()
    assert (_show(store).state, len(receiver.requests)) == ("stopped", 1)
    assert [letter.redeliver for letter in store.list_dead_letters("cache")] == [True, True]


def test_overtaken_delivery__leaves_no_dead_letter(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant, at_once: None
) -> None:
    store.add("cache", receiver.url)

    def refuse(_: dict[str, Any]) -> int:
        if len(receiver.requests) == 3:
            _set_position(acme, 1)  # another worker has delivered it
        return 422

    receiver.reply = refuse
    write("a.md")
    for _ in range(3):
        deliver()
    assert len(receiver.requests) == 3
    assert (_show(store).position, _show(store).dead_letters) == (1, 0)


def test_skip__of_an_event_that_is_delivered_meanwhile_is_refused(
    store: SubscriberStore, receiver: Receiver, write: Write, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    find = SubscriberStore._find

    def find_and_deliver(*arguments: Any) -> Subscriber:
        subscriber = find(*arguments)
        _set_position(acme, 1)
        return subscriber

    with monkeypatch.context() as patch:
        patch.setattr(SubscriberStore, "_find", find_and_deliver)
        with pytest.raises(RequestError, match="has received event 1 meanwhile"):
            store.resume("cache", skip=True)
    assert (_show(store).position, _show(store).dead_letters) == (1, 0)


def test_skip__over_deleted_events_is_refused(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    write("a.md", "b.md")
    with acme.sessions.write() as connection:
        values = {"tenant_id": acme.id, "before": datetime.now(UTC) + timedelta(days=1)}
        connection.execute(statement("prune_events"), values)
    write("c.md")
    with pytest.raises(RequestError, match="events after 0 were deleted before their delivery"):
        store.resume("cache", skip=True)
    deliver()
    assert "the events 1 to 2 were deleted before their delivery" in (_show(store).reason or "")


def test_pause__ends_a_batch_after_the_event_that_is_sent(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)

    def pause(_: dict[str, Any]) -> int:
        store.pause("cache")
        return 204

    receiver.reply = pause
    write("a.md", "b.md", "c.md")
    deliver()
    assert (receiver.sequences, _show(store).position) == ([1], 1)
    receiver.reply = _refuse(204)
    store.resume("cache")
    deliver()
    assert receiver.sequences == [1, 2, 3]


def test_pause__of_a_stopped_subscriber_is_refused_and_keeps_the_reason(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = _refuse(410)
    write("a.md")
    deliver()
    with pytest.raises(RequestError, match="subscriber cache is stopped: http://127"):
        store.pause("cache")
    assert "is gone" in (_show(store).describe_problem() or "")


@pytest.mark.parametrize("status", [410, 0])
def test_problem__names_no_path_and_query_of_a_url(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, status: int
) -> None:
    url = receiver.url if status else "http://127.0.0.1:9"
    store.add("cache", f"{url}/hidden-path?token=hidden-query")
    receiver.reply = _refuse(status)
    write("a.md")
    deliver()
    problem = _show(store).describe_problem() or ""
    assert "http://127.0.0.1:" in problem
    assert "hidden" not in problem


def test_refused_event__becomes_a_dead_letter_that_is_sent_again(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, at_once: None
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = _refuse(422, "b.md")
    write("a.md", "b.md", "c.md")
    for _ in range(3):
        deliver()
    assert receiver.sequences == [1, 3]
    (letter,) = store.list_dead_letters("cache")
    assert (letter.sequence, letter.attempts, letter.error) == (2, 3, "the endpoint answered 422")
    assert letter.data["source"] == "b.md"
    assert "has 1 dead letters" in (_show(store).describe_problem() or "")
    assert store.redeliver("cache", 2) == 1
    deliver()
    (letter,) = store.list_dead_letters("cache")
    assert (letter.attempts, letter.redeliver) == (4, False)
    receiver.reply = _refuse(204)
    store.redeliver("cache")
    deliver()
    assert receiver.sequences == [1, 3, 2]
    assert store.list_dead_letters("cache") == []


def test_deliveries__are_counted_by_what_becomes_of_the_event(
    store: SubscriberStore,
    receiver: Receiver,
    write: Write,
    deliver: Deliver,
    at_once: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: Counter[str] = Counter()

    def record(_: object, reported: Mapping[tuple[str, str], float]) -> None:
        counts.update({outcome: int(count) for (_, outcome), count in reported.items()})

    monkeypatch.setattr(SupervisorChannel, "report_counts", record)
    store.add("cache", receiver.url)
    receiver.reply = _refuse(422, "b.md")
    write("a.md", "b.md")
    for _ in range(3):
        deliver()
    assert counts == {"delivered": 1, "failed": 2, "dead": 1}
    store.redeliver("cache")
    deliver()
    assert counts == {"delivered": 1, "failed": 2, "dead": 2}
    receiver.reply = _refuse(410)
    write("c.md")
    deliver()
    assert counts == {"delivered": 1, "failed": 2, "dead": 2, "gone": 1}


def test_deliveries__before_an_interruption_are_counted(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[Mapping[tuple[str, str], float]] = []
    monkeypatch.setattr(SupervisorChannel, "report_counts", lambda _, counts: reports.append(counts))
    require_running = SupervisorChannel.require_running

    def stop_after_one(self: SupervisorChannel, job: Job) -> None:
        if receiver.requests:
            self._stopping.set()
        require_running(self, job)

    monkeypatch.setattr(SupervisorChannel, "require_running", stop_after_one)
    store.add("cache", receiver.url)
    write("a.md", "b.md")
    deliver()
    assert receiver.sequences == [1]
    assert reports == [{("kosmos_webhook_deliveries", "delivered"): 1}]


def test_skip__makes_the_event_a_dead_letter_and_continues(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = _refuse(503, "a.md")
    write("a.md", "b.md")
    deliver()
    store.resume("cache", skip=True)
    deliver()
    assert receiver.sequences == [2]
    assert [letter.sequence for letter in store.list_dead_letters("cache")] == [1]


def test_endpoint__that_is_gone_stops_its_subscriber(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = _refuse(410)
    write("a.md")
    deliver()
    deliver()
    assert len(receiver.requests) == 1
    stopped = _show(store)
    assert stopped.state == "stopped"
    assert "is gone" in (stopped.describe_problem() or "")
    receiver.reply = _refuse(204)
    store.resume("cache")
    deliver()
    assert receiver.sequences == [1]


def test_deleted_events__stop_the_subscriber_and_say_which(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    store.pause("cache")
    write("a.md", "b.md")
    with acme.sessions.write() as connection:
        values = {"tenant_id": acme.id, "before": datetime.now(UTC) + timedelta(days=1)}
        connection.execute(statement("prune_events"), values)
    write("c.md")
    store.resume("cache")
    deliver()
    assert receiver.sequences == []
    assert "the events 1 to 2 were deleted before their delivery" in (_show(store).reason or "")
    store.resume("cache")
    deliver()
    assert receiver.sequences == [3]


def test_paused_subscriber__receives_nothing_until_it_is_resumed(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    store.pause("cache")
    write("a.md")
    deliver()
    assert receiver.requests == []
    assert _show(store).describe_problem() is None
    store.resume("cache")
    deliver()
    assert receiver.sequences == [1]


def test_subscribers__do_not_wait_for_each_other(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("down", "http://127.0.0.1:9/hook")
    store.add("up", receiver.url)
    write("a.md", "b.md")
    deliver()
    assert receiver.sequences == [1, 2]
    assert "http://127.0.0.1:9 cannot be reached" in (_show(store, "down").error or "")


def test_rotation__signs_by_both_secrets(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    _, former = store.add("cache", receiver.url)
    new = store.show_secret("cache", rotate=True)
    assert (store.show_secret("cache"), new != former) == (new, True)
    for secret in (former, new):
        receiver.secret = secret
        write(f"{secret}.md")
        deliver()
    assert receiver.sequences == [1, 2]
    assert [len(request["webhook-signature"].split()) for request in receiver.requests] == [2, 2]


def test_tenant__that_is_erased_and_created_again_repeats_no_id(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    for _ in range(2):
        store.add("cache", receiver.url)
        write("a.md")
        deliver()
        acme.erase_all()
    assert receiver.sequences == [1, 1]
    assert len(set(receiver.ids)) == 2


def test_event__that_takes_the_sequence_of_another_after_a_restore_has_another_id(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    deliver()
    with acme.sessions.write() as connection:  # as after the restore of an earlier backup
        for query in (
            "DELETE FROM kosmos.events WHERE tenant_id = %s",
            "UPDATE kosmos.event_streams SET last_sequence = 0 WHERE tenant_id = %s",
            "UPDATE kosmos.webhook_subscribers SET position = 0 WHERE tenant_id = %s",
        ):
            connection.execute(query, [acme.id])
    write("b.md")
    deliver()
    assert receiver.sequences == [1, 1]
    assert len(set(receiver.ids)) == 2


def test_redirect__is_a_failure_and_is_not_followed(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply, receiver.headers = _refuse(307), {"Location": "http://169.254.169.254/"}
    write("a.md")
    deliver()
    assert len(receiver.requests) == 1
    assert _show(store).error == "the endpoint answered 307"


def test_host__that_is_not_allowed_any_more_gets_nothing(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    monkeypatch.setattr("kosmos_rag.ingestion.sources.addresses.is_allowed", lambda *_: False)
    deliver()
    assert receiver.requests == []
    assert "host 127.0.0.1 is not in webhooks.allowed_hosts" in (_show(store).error or "")


def test_maintenance__restores_a_delivery_that_was_cancelled(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, maintain: Maintain, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    acme.jobs.cancel([job.id for job in acme.jobs.find(kinds=[DELIVER])])
    deliver()
    assert receiver.requests == []
    maintain()
    deliver()
    assert receiver.sequences == [1]


def test_maintenance__does_not_bring_an_erased_tenant_back(
    store: SubscriberStore, receiver: Receiver, maintain: Maintain, acme: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add("cache", receiver.url)
    erasure, enqueue = Thread(target=acme.erase_all), SubscriberStore.enqueue

    def erase_and_enqueue(*arguments: Any) -> None:
        erasure.start()
        erasure.join(1)
        enqueue(*arguments)

    monkeypatch.setattr(SubscriberStore, "enqueue", erase_and_enqueue)
    with suppress(DatabaseError):  # of a deadlock, which ends one of the two; the erasure is repeated
        maintain()
    erasure.join()
    with acme.sessions.write() as connection:
        rows = connection.execute("SELECT FROM kosmos.tenants WHERE tenant_id = %s", [acme.id]).fetchall()
    assert rows == []


def test_maintenance__reports_who_is_behind_and_deletes_dead_letters_of_deleted_events(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, maintain: Maintain, acme: Tenant,
    at_once: None,
) -> None:  # fmt: skip
    assert maintain() == {}
    store.add("cache", receiver.url)
    assert maintain() == {"kosmos_webhook_behind_seconds": 0.0, "kosmos_webhook_dead_letters": 0.0}
    receiver.reply = _refuse(400, "a.md")
    write("a.md")
    assert 0 < maintain()["kosmos_webhook_behind_seconds"] < 60
    for _ in range(3):
        deliver()
    assert maintain() == {"kosmos_webhook_behind_seconds": 0.0, "kosmos_webhook_dead_letters": 1.0}
    with acme.sessions.write() as connection:
        values = {"tenant_id": acme.id, "before": datetime.now(UTC) + timedelta(days=1)}
        connection.execute(statement("prune_events"), values)
    assert maintain()["kosmos_webhook_dead_letters"] == 0.0
    assert _show(store).dead_letters == 0


def test_deletion_of_a_collection__cancels_no_delivery(
    store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver, acme: Tenant
) -> None:
    store.add("cache", receiver.url)
    write("a.md")
    acme.collections.delete("default")
    deliver()
    assert receiver.sequences == [1, 2]
    store.remove("cache")
    deliver()
    assert [job.state for job in acme.jobs.find(kinds=[DELIVER])] == [JobState.CANCELLED]
