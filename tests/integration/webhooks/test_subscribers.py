"""Subscribers by library, command line, HTTP, client, console and doctor: who may add which, and what each shows."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from typer.testing import CliRunner

from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.apps.cli.app import app
from kosmos_rag.apps.client import Client
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.core.errors import ConfigError, NotFound, RequestError
from kosmos_rag.engine.diagnosis import diagnose
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.webhooks.store import SubscriberStore
from kosmos_rag.wings import load_wing_jobs
from tests.integration.apps.http.console_visits import extract_text, visitor
from tests.integration.apps.http.serving import Running, Signer, serving
from tests.integration.webhooks.conftest import Deliver, with_webhooks
from tests.integration.webhooks.receiver import Receiver

pytestmark = pytest.mark.emptied_database
Write = Callable[..., None]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Cache!", "http://127.0.0.1/"), "subscriber name 'Cache!' is malformed"),
        (("cache", "http://example.org/"), r"host example.org is not in webhooks\.allowed_hosts"),
        (("cache", "http://127.0.0.1.example.org/"), "is not in webhooks"),
        (("cache", "file:///etc/passwd"), "must begin with http:// or https://"),
        (("cache", "http://user:secret@127.0.0.1/"), "must not contain a user or password"),
        (("cache", "http://127.0.0.1:65536/"), "its port is 65536; a port is 1 to 65535"),
        (("cache", "http://127.0.0.1/" + "x" * 2000), "use at most 2,000"),
    ],
)
def test_add__refuses_what_it_cannot_deliver_to(
    store: SubscriberStore, arguments: tuple[str, str], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        store.add(*arguments)
    assert store.infos() == []


def test_add__refuses_unknown_types_second_names_and_too_many(settings: Settings) -> None:
    with Engine(with_webhooks(settings, max_subscribers=2), embedder=HashingEmbedder()) as engine:
        store = SubscriberStore(engine.tenant("acme"))
        with pytest.raises(RequestError, match=r"there is no event type 'document\.read'; use document\.published"):
            store.add("cache", "http://127.0.0.1/", types=["document.read"])
        store.add("cache", "http://127.0.0.1/")
        with pytest.raises(RequestError, match="there is a subscriber cache already"):
            store.add("cache", "http://127.0.0.1/")
        store.add("second", "http://127.0.0.1/")
        with pytest.raises(RequestError, match="there are 2 subscribers"):
            store.add("third", "http://127.0.0.1/")
        SubscriberStore(engine.tenant("other")).add("cache", "http://127.0.0.1/")


def test_add__deletes_no_event_that_waits_for_a_subscriber(
    acme: Tenant, store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    write("a.md", "b.md")
    acme.events.stop()
    for name in ("cache", "second"):
        with pytest.raises(RequestError, match="would delete events that subscriber cache has not received"):
            store.add(name, receiver.url)
    deliver()
    assert receiver.sequences == [1, 2]
    store.add("second", receiver.url)
    write("c.md")
    deliver()
    assert receiver.sequences == [1, 2, 4]


def test_add__that_is_refused_starts_no_record(acme: Tenant, store: SubscriberStore, receiver: Receiver) -> None:
    store.add("cache", receiver.url)
    acme.events.stop()
    with pytest.raises(RequestError, match="there is a subscriber cache already"):
        store.add("cache", receiver.url)
    acme.ingest([SourceDocument(source="a.md", data=b"words")])
    assert acme.events.read() == ([], 0)


def test_add__at_the_same_time_keeps_the_limit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    added, insert = Barrier(2), SubscriberStore.enqueue

    def wait_and_enqueue(*arguments: Any) -> None:
        with suppress(BrokenBarrierError):
            added.wait(1)
        insert(*arguments)

    monkeypatch.setattr(SubscriberStore, "enqueue", wait_and_enqueue)
    with (
        Engine(with_webhooks(settings, max_subscribers=1), embedder=HashingEmbedder()) as engine,
        ThreadPoolExecutor(2) as pool,
    ):
        store = SubscriberStore(engine.tenant("acme"))
        additions = [pool.submit(store.add, name, "http://127.0.0.1/") for name in ("a", "b")]
        refusals = [error for addition in additions if (error := addition.exception()) is not None]
        assert ["there are 1 subscribers" in str(error) for error in refusals] == [True]
        assert len(store.infos()) == 1


def test_add__needs_a_signing_key(settings: Settings) -> None:
    with Engine(with_webhooks(settings, signing_key=None), embedder=HashingEmbedder()) as engine:
        with pytest.raises(ConfigError, match=r"webhooks\.signing_key is not set"):
            SubscriberStore(engine.tenant("acme")).add("cache", "http://127.0.0.1/")
        with pytest.raises(RequestError, match="records no events"):
            engine.tenant("acme").events.read()


def test_subscribers__are_of_one_tenant(engine: Engine, store: SubscriberStore, receiver: Receiver) -> None:
    _, secret = store.add("cache", receiver.url)
    other = SubscriberStore(engine.tenant("other"))
    assert other.infos() == []
    for call in (other.pause, other.resume, other.remove, other.show_secret, other.list_dead_letters, other.redeliver):
        with pytest.raises(NotFound, match="there is no such subscriber"):
            call("cache")
    assert secret != other.add("cache", receiver.url)[1]
    assert store.show_secret("cache") == secret


def test_erasure__of_a_tenant_removes_its_subscribers(acme: Tenant, store: SubscriberStore, receiver: Receiver) -> None:
    store.add("cache", receiver.url)
    assert acme.erase_all().erased["webhook_subscribers"] == 1
    assert store.infos() == []


def test_commands__add_list_pause_resume_and_remove(
    database: DatabaseSettings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DATABASE__URL": database.url, "DATABASE__WORKER_URL": database.worker_url,
        "WEBHOOKS__ALLOWED_HOSTS": '["127.0.0.1"]', "WEBHOOKS__ALLOW_PRIVATE": "true",
        "WEBHOOKS__SIGNING_KEY": "k" * 32,
    }.items():  # fmt: skip
        monkeypatch.setenv(f"KOSMOS_{name}", value or "")

    def run(*arguments: str, code: int = 0) -> Any:
        result = CliRunner().invoke(app, ["webhooks", *arguments, "-t", "acme", "--json"])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    added = run("add", "cache", receiver.url, "--type", "document.removed")
    assert added["secret"].startswith("whsec_")
    assert run("secret", "cache")["secret"] == added["secret"] != run("secret", "cache", "--rotate")["secret"]
    assert run("pause", "cache")["state"] == "paused"
    (listed,) = run("list")["subscribers"]
    assert (listed["state"], listed["types"]) == ("paused", ["document.removed"])
    assert run("resume", "cache")["state"] == "active"
    assert run("dead-letters", "cache") == {"dead_letters": []}
    run("redeliver", "cache", code=1)
    assert run("remove", "cache")["state"] == "removed"
    assert run("list") == {"subscribers": []}
    plain = CliRunner().invoke(app, ["webhooks", "list", "-t", "acme"])
    assert "tenant acme has no subscribers" in plain.output


@pytest.fixture
def served(engine: Engine, signer: Signer) -> Iterator[Running]:
    with serving(engine, signer) as running:
        yield running


def test_routes_and_client__manage_subscribers(
    served: Running, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Client(served.url, served.key("ops", "admin")) as client:
        subscriber, secret = client.add_webhook("cache", receiver.url, types=["document.published"])
        assert client.webhooks() == [subscriber]
        client.pause_webhook("cache")
        assert client.webhooks()[0].state == "paused"
        client.resume_webhook("cache")
        assert client.rotate_webhook("cache") != secret
        assert client.dead_letters("cache") == []
        with pytest.raises(RequestError, match="has no dead letters"):
            client.redeliver("cache")
        with pytest.raises(RequestError, match=r"not in webhooks\.allowed_hosts"):
            client.add_webhook("other", "http://169.254.169.254/latest")
        client.remove_webhook("cache")
        with pytest.raises(NotFound):
            client.remove_webhook("cache")
    with served.client(served.key("loader", "ingest")) as client:
        assert client.get("/v1/webhooks").status_code == 403
        assert client.post("/v1/webhooks", json={"name": "a", "url": receiver.url}).status_code == 403


def test_bodies__are_checked(served: Running) -> None:
    with served.client(served.key("ops", "admin")) as client:
        bodies: list[dict[str, Any]] = [
            {},
            {"name": "a"},
            {"name": "a", "url": "http://127.0.0.1/", "secret": "x"},
            {"name": "a", "url": "http://127.0.0.1/", "types": ["x"] * 51},
            {"name": "a\u0000", "url": "http://127.0.0.1/"},
        ]
        for body in bodies:
            assert client.post("/v1/webhooks", json=body).status_code == 422, body
        assert client.get("/v1/webhooks").json() == {"subscribers": []}


def test_path_of_an_address__is_shown_to_administrators_alone(served: Running, store: SubscriberStore) -> None:
    store.add("chat", "http://127.0.0.1/services/T0/s3cr3t")
    for scope, is_shown in (("operate", False), ("admin", True)):
        with visitor(served, scope) as console, served.client(served.key(scope, scope)) as client:
            for page in (console.get("/webhooks").text, client.get("/v1/webhooks").text):
                assert "http://127.0.0.1" in page
                assert ("s3cr3t" in page) is is_shown


def test_page_and_doctor__show_a_dead_letter_and_send_it_again(
    served: Running, engine: Engine, store: SubscriberStore, receiver: Receiver, write: Write, deliver: Deliver
) -> None:
    store.add("cache", receiver.url)
    receiver.reply = lambda _: 503
    write("<b>.md")
    deliver()
    with visitor(served, "admin") as console:
        assert "events for subscriber cache wait since" in extract_text(console.get("/webhooks"))
        store.resume("cache", skip=True)
        checks = [check.detail for check in diagnose(engine.settings, None, load_wing_jobs())]
        assert any("subscriber cache has 1 dead letters" in detail for detail in checks)
        page = console.get("/webhooks")
        assert "subscriber cache has 1 dead letters" in extract_text(page)
        assert "&lt;b&gt;.md" in page.text
        assert console.post("/webhooks/cache/redeliver/1").status_code == 303
        assert "queued" in extract_text(console.get("/webhooks"))
        assert console.post("/webhooks/cache/pause").status_code == 303
        assert console.post("/webhooks/cache/resume").status_code == 303
    receiver.reply = lambda _: 204
    deliver()
    assert receiver.sequences == [1]


def test_page__shows_fifty_dead_letters_of_a_subscriber(
    served: Running, store: SubscriberStore, receiver: Receiver, write: Write
) -> None:
    store.add("cache", receiver.url)
    write(*(f"{number}.md" for number in range(51)))
    with visitor(served, "admin") as console:
        for _ in range(50):
            store.resume("cache", skip=True)
        assert "The oldest" not in extract_text(console.get("/webhooks"))
        store.resume("cache", skip=True)
        page = console.get("/webhooks")
    assert page.text.count("Send again") == 50
    assert "The oldest 50 of 51." in extract_text(page)
