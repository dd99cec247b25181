"""A tenant moved to another model while questions are asked and documents come: no failure, no mixture, no loss."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import SearchResult
from kosmos_rag.engine.tenant import Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.integration.two_models import NEW, OLD, document, find_model
from tests.integration.variants import opened

pytestmark = pytest.mark.slow

CHUNKS = 120
ASKERS = 3


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    """An engine with both models, and a tenant that was embedded by the first."""
    with opened(settings, {}, embedder=OLD, next_embedder=NEW) as running:
        running.tenant("acme").ingest(document(number) for number in range(CHUNKS))
        yield running


@dataclass
class Load:
    """Threads that ask and ingest until they are told to stop."""

    scope: Tenant
    stop: threading.Event = field(default_factory=threading.Event)
    answers: list[tuple[float, float, SearchResult]] = field(default_factory=list)
    """When each was asked and answered."""
    ingested: int = 0

    def ask(self, seed: int) -> None:
        number = seed
        while not self.stop.is_set():
            started_at = time.monotonic()
            result = self.scope.search(f"churn of account{number % CHUNKS}", 5)
            self.answers.append((started_at, time.monotonic(), result))
            number += ASKERS

    def ingest(self) -> None:
        while not self.stop.is_set():
            changed = document(self.ingested % CHUNKS, metadata={"turn": self.ingested})
            self.scope.ingest([document(1000 + self.ingested), changed])
            self.ingested += 1

    def wait_for_answers(self, count: int = 2 * ASKERS) -> None:
        """Return when so many more questions have been answered."""
        expected = len(self.answers) + count
        for _ in range(2_000):
            if len(self.answers) >= expected or self.stop.wait(0.01):
                return
        raise AssertionError("no answers come")

    def models(self, since: float, until: float) -> set[str]:
        """By what the questions were answered that were asked and answered within this time."""
        return {
            find_model(outcome)
            for model_calls, result, outcome in list(self.answers)
            if since < model_calls and result < until
        }


def _missing(scope: Tenant) -> list[int]:
    return [info.chunks - info.embedded for info in scope.spaces.status()]


def test_move__under_load_fails_no_question_and_mixes_no_spaces(engine: Engine) -> None:
    scope = engine.tenant("acme")
    load = Load(scope=scope)
    with ThreadPoolExecutor(ASKERS + 1) as threads:
        running = [threads.submit(load.ask, seed) for seed in range(ASKERS)] + [threads.submit(load.ingest)]
        try:
            at = [time.monotonic()]
            load.wait_for_answers()
            scope.spaces.start(chunks_per_second=400)
            load.wait_for_answers()
            at.append(time.monotonic())
            for turn in (scope.spaces.cutover, scope.spaces.rollback, scope.spaces.cutover):
                turn()
                since = time.monotonic()
                load.wait_for_answers()
                at += [since, time.monotonic()]
            scope.spaces.drop(OLD.name)
            at.append(time.monotonic())
            load.wait_for_answers()
        finally:
            load.stop.set()
        for thread in running:
            thread.result()

    began, started, *turns, dropped = at
    assert load.models(began, started) == {OLD.name}
    assert [load.models(since, until) for since, until in zip(turns[::2], turns[1::2], strict=True)] == [
        {NEW.name},
        {OLD.name},
        {NEW.name},
    ]
    assert load.models(dropped, time.monotonic()) == {NEW.name}
    assert {find_model(result) for _, _, result in load.answers} == {OLD.name, NEW.name}
    assert all(result.returned == 5 for _, _, result in load.answers)
    assert load.ingested > 2
    assert _missing(scope) == [0]
    assert len(scope.documents()) == CHUNKS + load.ingested


class WaitingEmbedder(HashingEmbedder):
    """Waits before it embeds a batch of texts, until it may."""

    def __init__(self) -> None:
        super().__init__(dimensions=384)
        self.waiting, self.may = threading.Event(), threading.Event()

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.waiting.set()
        assert self.may.wait(30)
        return super().embed(texts)


def test_publication__that_a_switch_overtakes_is_written_in_the_space_that_is_live(
    engine: Engine, settings: Settings
) -> None:
    scope, slow = engine.tenant("acme"), WaitingEmbedder()
    with opened(settings, {}, embedder=slow, next_embedder=NEW) as other, ThreadPoolExecutor(1) as threads:
        # Into a collection that is new, which no lock on the corpora could know of.
        coming = threads.submit(other.tenant("acme", collection="wiki").ingest, document(500))
        assert slow.waiting.wait(30)
        scope.spaces.start()
        scope.spaces.cutover()
        slow.may.set()
        assert coming.result().failed == ()
    assert _missing(scope) == [0, 0]
    result = scope.search("churn of account500", 5)
    assert find_model(result) == NEW.name
    assert result.hits[0].source == "d500"
    assert result.hits[0].dense_rank == 1


_START = """
import json, sys
from kosmos_rag import Engine, Settings
from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.models.testing.hashing import HashingEmbedder

given = json.loads(sys.argv[1])
settings = Settings().model_copy(update={"database": DatabaseSettings(**given)})
models = {"embedder": HashingEmbedder(dimensions=384), "next_embedder": HashingEmbedder(dimensions=768)}
with Engine(settings, **models) as engine:
    engine.tenant("acme").spaces.start(chunks_per_second=20)
"""


def test_start__that_is_killed_goes_on_where_it_was(settings: Settings) -> None:
    database = settings.database
    urls = {"url": database.url, "worker_url": database.worker_url, "admin_url": database.admin_url}
    with opened(settings, {}, embedder=OLD, next_embedder=HashingEmbedder(dimensions=768)) as engine:
        scope = engine.tenant("acme")
        scope.ingest(document(number) for number in range(CHUNKS))
        child = subprocess.Popen([sys.executable, "-c", _START, json.dumps(urls)], env={**os.environ})
        try:
            deadline = time.monotonic() + 60
            while len(_missing(scope)) < 2 or _missing(scope)[1] > CHUNKS - 20:
                assert time.monotonic() < deadline, "nothing is embedded"
                assert child.poll() is None, "the process has ended"
                time.sleep(0.05)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        left = _missing(scope)[1]
        assert 0 < left < CHUNKS
        numbers: list[int] = []
        scope.spaces.start(on_progress=lambda result, _total, _step: numbers.append(result))
        assert numbers[-1] == CHUNKS
        assert _missing(scope) == [0, 0]
        scope.spaces.cutover()
