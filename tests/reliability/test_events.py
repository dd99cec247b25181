"""Events of a worker that is killed: none is lost, none is there twice, and the order is that of commits."""

import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kosmos_rag import Engine, Settings
from kosmos_rag.core.types import Event
from kosmos_rag.models.testing.hashing import HashingEmbedder

if TYPE_CHECKING:
    from tests.reliability.conftest import Trial

KILLS = 20
DOCUMENTS = 40


def _change(folder: Path, number: int) -> None:
    """Write, change and remove files, so that each pass has something of each kind to do."""
    for index in range(DOCUMENTS):
        file = folder / f"{index}.md"
        if (index + number) % 7 == 0:
            file.unlink(missing_ok=True)
        elif not file.exists() or index % 3 == 0:
            file.write_text(f"# {index}\n\nWords of change {number}.\n")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_events__of_a_worker_that_is_killed_tell_the_stored_documents(
    trial: "Trial", settings: Settings, tmp_path: Path
) -> None:
    seed = random.Random(7)
    folder = tmp_path / "kb"
    folder.mkdir()
    collected: list[Event] = []
    position: int | None = None
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant("acme")
        scope.events.start()

        def read() -> int:
            nonlocal position
            events, position = scope.events.read(position, limit=1000)
            collected.extend(events)
            return len(events)

        for number in range(KILLS):
            _change(folder, number)
            scope.jobs.enqueue(folder)
            count = seed.randrange(1, 20)
            before = len(collected)
            worker = trial.start(work="engine_work", kinds=["sync", "document"], batch=4, lease_s=1.0)
            trial.until(lambda: read() >= 0 and len(collected) - before >= count, 120)  # noqa: B023 — called at once
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        _change(folder, KILLS)
        scope.jobs.enqueue(folder)
        assert trial.start(work="engine_work", kinds=["sync", "document"], until_idle=True).wait(300) == 0, trial.log()
        while read():
            pass
        stored = {str(document.id): document.version for document in scope.documents(limit=1000)}
    assert [event.sequence for event in collected] == list(range(1, len(collected) + 1))
    versions: dict[str, int] = {}
    for event in collected:
        document = event.data["document_id"]
        if event.type == "document.published":
            assert event.data["version"] == versions.get(document, 0) + 1
            versions[document] = event.data["version"]
        elif event.type == "document.removed":
            del versions[document]
    assert versions == stored
