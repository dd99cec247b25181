"""Deliveries while worker and service are killed: no event is lost, and each subscriber has them in order."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.webhooks.job_kinds import DELIVER
from kosmos_rag.webhooks.store import SubscriberStore
from tests.integration.webhooks.conftest import with_webhooks
from tests.integration.webhooks.receiver import Receiver, receiving

if TYPE_CHECKING:
    from tests.reliability.conftest import Trial

KILLS = 20
DOCUMENTS = 30
KINDS = ("document", DELIVER)
WORK = "tests.reliability.webhooks.delivery_work"
SETTINGS = {
    "WEBHOOKS__ALLOWED_HOSTS": '["127.0.0.1"]', "WEBHOOKS__ALLOW_PRIVATE": "true", "WEBHOOKS__POLL_S": "0.05",
    "WEBHOOKS__SIGNING_KEY": "k" * 32, "RAG__RERANKING__ENABLED": "false",
}  # fmt: skip


@contextmanager
def _serve(log_file: Any) -> Iterator[str]:
    """Start a service, and kill it at the end of the block."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", WORK, str(port)], stderr=log_file, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _upload(url: str, key: str, sources: list[str]) -> None:
    """Upload documents until the service is killed."""
    headers = {"authorization": f"Bearer {key}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=5) as client:
        for source in sources:
            body = f"# {source}\n\nWords of {source}.".encode()
            with suppress(httpx.HTTPError):
                client.post("/v1/documents", params={"source": source}, content=body)


def _fail_sometimes(seed: random.Random) -> Callable[[dict[str, Any]], int]:
    return lambda _: seed.choice([204, 204, 204, 204, 503])


def _first_ids(receiver: Receiver) -> list[int]:
    return list(dict.fromkeys(receiver.sequences))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_delivery__by_worker_and_service_that_are_killed_is_complete_and_in_order(
    trial: "Trial", settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    seed = random.Random(11)
    urls = {"URL": trial.database.url, "WORKER_URL": trial.database.worker_url}
    for name, value in SETTINGS.items() | {f"DATABASE__{key}": url or "" for key, url in urls.items()}.items():
        monkeypatch.setenv(f"KOSMOS_{name}", value)
    with (
        receiving() as steady,
        receiving() as failing,
        Engine(with_webhooks(settings), embedder=HashingEmbedder()) as engine,
        (tmp_path / "service.log").open("wb") as log_file,
    ):
        scope = engine.tenant("acme")
        store = SubscriberStore(scope)
        for name, receiver in (("steady", steady), ("failing", failing)):
            _, receiver.secret = store.add(name, receiver.url)
        failing.reply = _fail_sometimes(seed)
        key = scope.api_keys.create("loader", scopes=["ingest"])
        for number in range(KILLS):
            before = len(steady.messages)
            count = seed.randrange(1, 15)
            with ThreadPoolExecutor(1) as pool, _serve(log_file) as url:
                trial.until(lambda: _answers(url), 60)
                worker = trial.start(work=WORK, kinds=KINDS, batch=4, lease_s=1.0, processes=2)
                pool.submit(_upload, url, key, [f"{number}-{index}.md" for index in range(DOCUMENTS)])
                trial.until(lambda: len(steady.messages) - before >= count, 120)  # noqa: B023 — called at once
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
        worker = trial.start(work=WORK, kinds=KINDS, lease_s=1.0)
        trial.until(lambda: trial.queue.count_unfinished(["document"]) == 0, 120)
        events, last = scope.events.read(limit=10_000)
        assert len(events) == last
        trial.until(lambda: {subscriber.position for subscriber in store.infos()} == {last}, 300)
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
    print(f"{last} events, deliveries: {len(steady.ids)} and {len(failing.ids)}")
    for receiver in (steady, failing):
        assert _first_ids(receiver) == list(range(1, last + 1))
        assert len(set(receiver.ids)) == last
        bodies = dict(zip(receiver.ids, receiver.messages, strict=True))
        assert all(
            bodies[identity] == message for identity, message in zip(receiver.ids, receiver.messages, strict=True)
        )


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{url}/livez", trust_env=False, timeout=2).status_code == 200
    return False
