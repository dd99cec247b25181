"""A document that takes long: the others do not wait for it, and its job is its worker's until it is published."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kosmos_rag import Engine, SourceDocument, Tenant
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import Job, JobState
from kosmos_rag.ingestion import run
from kosmos_rag.ingestion.division import divide
from kosmos_rag.ingestion.document import ChunkedDocument
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker import channel
from kosmos_rag.worker.channel import Progress
from kosmos_rag.worker.handlers import EngineJobRunner
from kosmos_rag.worker.handlers.documents import DocumentHandler, _ProcessThreads
from tests.integration.worker.working import open_channel
from tests.waiting import eventually

pytestmark = pytest.mark.emptied_database


class Held:
    """Jobs of a process of which one does not end before `finish`."""

    def __init__(self, engine: Engine, scope: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
        self.queue = Queue.open(engine.database, engine.settings.worker)
        self.error: Exception | None = None
        self._scope = scope
        self._may_end = threading.Event()
        self._process = engine.ingest_pipeline.processor.process
        monkeypatch.setattr(engine.ingest_pipeline.processor, "process", self._process_late)
        self.supervisor, channel = open_channel(self.queue)
        self.runner = EngineJobRunner(engine)
        for name in ("slow", "a", "b"):
            scope.jobs.enqueue(SourceDocument(source=name, data=f"The word {name}.".encode()))
        self.jobs = self.claim()
        self.runner.run(self.jobs, channel)

    def claim(self) -> list[Job]:
        return self.queue.claim(64, kinds=[kinds.DOCUMENT], worker="test")

    def _process_late(
        self, key: uuid.UUID, document: SourceDocument, *arguments: Any, **options: Any
    ) -> ChunkedDocument:
        if document.source == "slow":
            assert self._may_end.wait(60)
            if self.error is not None:
                raise self.error
        return self._process(key, document, *arguments, **options)

    @property
    def slow(self) -> Job:
        return next(job for job in self.jobs if job.payload["document"]["source"] == "slow")

    def ended(self) -> set[uuid.UUID]:
        """The leases that the supervisor renews no more."""
        ended: set[uuid.UUID] = set()
        while self.supervisor.poll():
            message = self.supervisor.recv()
            ended |= message.ended if isinstance(message, Progress) else set()
        return ended

    def finish(self) -> None:
        """Let the document end, and the process."""
        self._may_end.set()
        self.runner._documents.close()

    def slow_job(self) -> tuple[str, str | None]:
        (info,) = self._scope.jobs.find(ids=[self.slow.id])
        return str(info.state), info.code


@pytest.fixture
def blocked(engine: Engine, scope: Tenant, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    blocked = Held(engine, scope, monkeypatch)
    eventually(lambda: set(scope.sources()) == {"a", "b"}, within_s=20)
    yield blocked
    blocked.finish()


def test_slow_document__is_published_after_the_others_and_keeps_its_lease(blocked: Held, scope: Tenant) -> None:
    eventually(lambda: {str(info.state) for info in scope.jobs.find(limit=9)} >= {JobState.DONE}, within_s=20)
    assert blocked.slow_job() == (JobState.RUNNING, None)
    assert blocked.slow.token not in blocked.ended()
    blocked.finish()
    assert blocked.slow_job() == (JobState.DONE, None)
    assert blocked.slow.token in blocked.ended()
    assert [(item.source, item.version) for item in scope.documents()] == [("a", 1), ("b", 1), ("slow", 1)]


def test_slow_document__that_fails_ends_its_own_job(blocked: Held, scope: Tenant) -> None:
    blocked.error = ParseError("corrupt", "the file ends too early")
    blocked.finish()
    assert blocked.slow_job() == (JobState.DEAD, "corrupt")
    assert blocked.slow.token in blocked.ended()
    assert set(scope.sources()) == {"a", "b"}


def test_slow_document__whose_lease_is_lost_is_left_to_the_next_worker(blocked: Held, scope: Tenant) -> None:
    blocked.queue.expire_leases([blocked.slow.token])
    (again,) = blocked.claim()
    assert again.id == blocked.slow.id
    blocked.finish()
    assert set(scope.sources()) == {"a", "b"}
    assert blocked.slow_job() == (JobState.RUNNING, "lease_lost")
    assert blocked.slow.token in blocked.ended()


@pytest.mark.parametrize(("limit_s", "both_slow"), [(60.0, True), (0.0, False)])
def test_process_threads__wait_for_one_that_is_slow(limit_s: float, both_slow: bool) -> None:
    """Where the next one is slow too, and where it takes longer than a process may make no progress."""
    threads, may_end = _ProcessThreads(limit_s), threading.Event()

    def work() -> ChunkedDocument:
        may_end.wait(60)
        raise ParseError("corrupt", "the file ends too early")

    def quick() -> ChunkedDocument:
        raise ParseError("corrupt", "the file ends too early")

    first = threads.process(work)
    assert not first.done()
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(threads.process, work if both_slow else quick)
        time.sleep(0.4)
        assert not second.done()
        may_end.set()
        following = second.result(10)
    # Two slow ones end at the same time, and the second waits for either.
    assert first.done() or (both_slow and following.done())
    threads.close()


def test_progress__is_reported_while_a_document_is_loaded_and_divided(
    engine: Engine, scope: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue.open(engine.database, engine.settings.worker)
    supervisor, to_supervisor = open_channel(queue)
    reports: list[bool] = []

    def wait_for_report(action: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_run(*values: Any) -> Any:
            while supervisor.poll():
                supervisor.recv()
            reports.append(supervisor.poll(5))
            return action(*values)

        return wait_and_run

    monkeypatch.setattr(channel, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(DocumentHandler, "_load", wait_for_report(DocumentHandler._load))
    monkeypatch.setattr(run, "divide", wait_for_report(divide))
    scope.jobs.enqueue(SourceDocument(source="page", data=b"The word page."))
    runner = EngineJobRunner(engine)
    runner.run(queue.claim(64, kinds=[kinds.DOCUMENT], worker="test"), to_supervisor)
    runner._documents.close()
    assert (reports, set(scope.sources())) == ([True, True], {"page"})
