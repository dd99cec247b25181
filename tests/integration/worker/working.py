"""A worker's work within a test, and what is to be true after it."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from kosmos_rag import Engine, Tenant
from kosmos_rag.core.protocols import Vectors
from kosmos_rag.core.types import RunInfo
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.worker.channel import SupervisorChannel
from kosmos_rag.worker.handlers import EngineJobRunner
from kosmos_rag.worker.handlers.maintenance import count_orphans

Work = Callable[[], None]
_PIPES: list[Connection] = []
"""Their ends: a channel takes the end of its pipe for the end of its supervisor, and exits."""


def open_channel(queue: Queue) -> tuple[Connection, SupervisorChannel]:
    """Return the supervisor's end of a channel, which stays open until the last test, and the channel."""
    supervisor, process = multiprocessing.Pipe()
    os.set_inheritable(supervisor.fileno(), True)
    _PIPES.extend((supervisor, process))
    return supervisor, SupervisorChannel(process, queue)


def receive_all(supervisor: Connection) -> list[Any]:
    """Return the messages that wait at the supervisor's end of a channel."""
    messages = []
    while supervisor.poll():
        messages.append(supervisor.recv())
    return messages


def run_listing(engine: Engine) -> list[Any]:
    """Run a job that lists a source, and return the messages of its process."""
    queue = Queue.open(engine.database, engine.settings.worker)
    supervisor, channel = open_channel(queue)
    EngineJobRunner(engine).run(queue.claim(1, kinds=[kinds.SYNC], worker="test"), channel)
    return receive_all(supervisor)


class CountingEmbedder(HashingEmbedder):
    """Counts the texts that it is given."""

    texts = 0

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += len(texts)
        return super().embed(texts)


def last_run(scope: Tenant) -> RunInfo:
    return scope.jobs.runs()[0]


def counts(run: RunInfo) -> dict[str, int]:
    assert run.state == "finished"
    assert run.seen == run.new + run.changed + run.unchanged + run.removed + run.failed
    names = ("new", "changed", "unchanged", "removed", "failed")
    return {name: getattr(run, name) for name in names if getattr(run, name)}


def assert_adds_up(engine: Engine, scope: Tenant) -> None:
    assert set(count_orphans(engine.database, scope._tenant).values()) == {0}
