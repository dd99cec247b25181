"""Storms: workers killed at random, databases restarted, zombies by the hundred. Nothing lost, nothing twice."""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.core.errors import DatabaseError
from kosmos_rag.core.types import JobState
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.queue import kinds
from kosmos_rag.worker.handlers.maintenance import count_orphans
from tests.reliability.hostile_pdf import PDFS

if TYPE_CHECKING:
    from tests.reliability.conftest import Trial

Children = Callable[[int], list[int]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DOCUMENTS = (kinds.DOCUMENT, kinds.SYNC)


def _write(folder: Path, count: int) -> None:
    folder.mkdir()
    for number in range(count):
        words = " ".join(f"word{random.Random(number).randrange(500)}" for _ in range(40))
        (folder / f"{number}.md").write_text(f"# Document {number}\n\n{words}\n\n## More\n\nchurn{number} {words}\n")


def _versions(trial: "Trial") -> tuple[int, int, int]:
    """Documents, live versions, chunks."""
    ((documents,),) = trial.sql("SELECT count(*) FROM kosmos.documents")
    ((versions,),) = trial.sql("SELECT count(*) FROM kosmos.document_versions")
    ((chunks,),) = trial.sql("SELECT count(*) FROM kosmos.chunks")
    return documents, versions, chunks


def _unfinished(trial: "Trial") -> int:
    return trial.queue.count_unfinished(DOCUMENTS)


def _scope(engine: Engine) -> Tenant:
    return engine.tenant("acme")


def test_crash_storm__loses_no_document(trial: "Trial", settings: Settings, tmp_path: Path, children: Children) -> None:
    _write(tmp_path / "documents", 2000)
    options: dict[str, Any] = {"work": "engine_work", "kinds": DOCUMENTS, "processes": 2, "batch": 8, "lease_s": 4.0}
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        _scope(engine).jobs.enqueue(tmp_path / "documents")
        for _ in range(3):
            trial.start(**options)
        draw = random.Random(1)
        kills = 0
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(2)
            alive = [worker for worker in trial.workers if worker.poll() is None]
            victims = [pid for worker in alive for pid in [worker.pid, *children(worker.pid)]]
            os.kill(draw.choice(victims), signal.SIGKILL)
            kills += 1
            time.sleep(0.1)
            for _ in range(3 - sum(worker.poll() is None for worker in trial.workers)):
                trial.start(**options)
        last_kill = time.monotonic()
        trial.until(lambda: _unfinished(trial) == 0, 60)
        print(f"{kills} kills; done {time.monotonic() - last_kill:.1f} s after the last")
        ((most,),) = trial.sql("SELECT max(attempt) FROM kosmos.jobs")
        print(f"most attempts of a job: {most}; states: {trial.states(kinds.DOCUMENT)}")
        assert trial.sql("SELECT count(*) FROM kosmos.jobs WHERE state = 'running' AND lease_until < now()") == [(0,)]
        documents, versions, chunks = _versions(trial)
        assert (documents, versions) == (2000, 2000)
        assert set(count_orphans(engine.database, _scope(engine)._tenant).values()) == {0}
        serial = engine.tenant("serial").ingest(tmp_path / "documents")
        assert chunks == serial.chunks
        (run, *_) = _scope(engine).jobs.runs()
        assert (run.state, run.seen, run.failed) == ("finished", 2000, 0)


def test_zombies__publish_nothing(trial: "Trial", children: Children) -> None:
    """A hundred times: stopped past the lease, another finishes the work, woken up again."""
    trial.start(lease_s=0.6, processes=2, batch=1)
    trial.start(lease_s=0.6, processes=2, batch=1)
    doubled = 0
    for number in range(100):
        key = str(number)
        trial.put({key: {"sleep": 0.3}})
        trial.until(lambda key=key: key in trial.counts("begun"), 20)
        holder = trial.sql("SELECT worker FROM kosmos.jobs WHERE key = %s", [key])[0][0]
        zombie = next(worker for worker in trial.workers if f":{worker.pid}/" in holder)
        stopped = [zombie.pid, *children(zombie.pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        trial.until(lambda key=key: key in trial.counts("finished"), 20)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        doubled += trial.counts("begun")[key] - 1
    time.sleep(2)
    assert trial.counts("finished") == {str(number): 1 for number in range(100)}
    print(f"100 zombies, {doubled} jobs begun twice, none finished twice")
    assert doubled >= 90


def test_killed_database__loses_no_document(trial: "Trial", settings: Settings, tmp_path: Path) -> None:
    if trial.sql("SHOW data_directory") is None:
        pytest.skip("the server's folder is not known")
    trial.put({str(number): {"sleep": 0.02} for number in range(500)})
    trial.start(processes=2, batch=16)
    for finished in (20, 100, 200, 300, 400):
        _patiently(trial, lambda many=finished: len(trial.counts("finished")) >= many)
        # A backend that dies as on a crash: the server ends all others and recovers.
        ((victim,),) = trial.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = 'kosmos_worker' LIMIT 1"
        )
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.5)
    _patiently(trial, lambda: trial.states() == {"done": 500})
    assert trial.counts("finished") == {str(number): 1 for number in range(500)}


def _patiently(trial: "Trial", condition: Callable[[], bool]) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            if condition():
                return
        except (DatabaseError, psycopg.OperationalError):
            pass
        assert time.monotonic() < deadline, trial.log()
        time.sleep(0.1)


def test_fairness__serves_small_tenants_beside_a_large_one(trial: "Trial") -> None:
    for start in range(0, 10_000, 1000):
        trial.put({f"a{number}": {"sleep": 0.01} for number in range(start, start + 1000)}, owner="a")
    trial.start(processes=2, batch=16)
    trial.until(lambda: len(trial.counts("finished")) > 100, 30)
    trial.put({f"b{number}": {"sleep": 0.01} for number in range(10)}, owner="b")
    trial.until(lambda: sum(key.startswith("b") for key in trial.counts("finished")) == 10, 30)
    waits = [
        float(wait)
        for (wait,) in trial.sql(
            "SELECT extract(epoch FROM started_at - created_at) FROM kosmos.jobs WHERE tenant = 'b'"
        )
    ]
    p95 = statistics.quantiles(waits, n=20)[-1]
    print(f"behind 10,000 jobs of another tenant: median {statistics.median(waits):.2f} s, p95 {p95:.2f} s")
    assert p95 < 5


def test_poison_file__ends_no_other_document(trial: "Trial", settings: Settings, tmp_path: Path) -> None:
    """A file that kills whatever parses it: dead after three tries, with its reason, and the others hardly notice."""

    def seconds(name: str, *, poison: bool) -> float:
        _write(tmp_path / name, 600)
        if poison:
            (tmp_path / name / "poison.pdf").write_bytes(PDFS["form that draws itself"]())
        scope = engine.tenant(name)
        scope.jobs.enqueue(tmp_path / name)
        trial.until(lambda: scope.jobs.runs() != [] and scope.jobs.runs()[0].state == "finished", 120)
        ((elapsed_s,),) = trial.sql(
            "SELECT extract(epoch FROM max(finished_at) - min(started_at)) FROM kosmos.jobs "
            "WHERE tenant = %s AND kind = 'document' AND state = 'done'",
            [name],
        )
        return float(elapsed_s)

    trial.start(work="engine_work", kinds=DOCUMENTS, processes=2, batch=16)
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        seconds("warm", poison=False)
        clean = min(seconds("clean", poison=False), seconds("clean-again", poison=False))
        poisoned = seconds("poisoned", poison=True)
        print(f"600 documents: {clean:.1f} s, with a poison among them {poisoned:.1f} s")
        (dead,) = engine.tenant("poisoned").jobs.find(states=[JobState.DEAD])
        assert (dead.code, dead.attempt) == ("crashed", 3)
        (run, *_) = engine.tenant("poisoned").jobs.runs()
        assert (run.new, run.failed) == (600, 1)
