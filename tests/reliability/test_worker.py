"""The worker as a process: it drains, outlives its database, its processes and a held interpreter, and is fair."""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from kosmos_rag import Engine, Settings, SourceDocument
from kosmos_rag.models.testing.hashing import HashingEmbedder
from kosmos_rag.storage.tenants import TenantRef, tenant
from tests.unit.parsing.sandbox.files import wide_workbook

if TYPE_CHECKING:
    from tests.reliability.conftest import Trial

Children = Callable[[int], list[int]]


def test_until_idle__does_all_once_and_exits(trial: "Trial") -> None:
    trial.put({str(number): {} for number in range(100)})
    worker = trial.start(until_idle=True, processes=2, batch=8)
    assert worker.wait(30) == 0, trial.log()
    assert trial.counts("finished") == {str(number): 1 for number in range(100)}
    assert trial.states() == {"done": 100}


def test_sigterm__ends_what_runs_and_begins_nothing_new(trial: "Trial") -> None:
    trial.put({str(number): {"sleep": 4} for number in range(15)})
    worker = trial.start(processes=2, batch=8)
    trial.until(lambda: len(trial.counts("begun")) == 2, 60)
    started_at = time.monotonic()
    worker.terminate()
    assert worker.wait(10) == 0, trial.log()
    assert time.monotonic() - started_at < 10
    assert len(trial.counts("begun")) == len(trial.counts("finished")) == 2
    assert trial.states() == {"done": 2, "queued": 13}
    assert {info.attempt for info in trial.queue.jobs(_owner()) if info.state == "queued"} == {0}


def test_sigterm__does_not_wait_for_a_process_that_still_loads_its_model(trial: "Trial", children: Children) -> None:
    trial.put({"waits": {}})
    worker = trial.start(work="endless_opening", drain_s=3600.0)
    trial.until(lambda: bool(children(worker.pid)), 20)
    worker.terminate()
    assert worker.wait(60) == 0, trial.log()
    assert "ended by itself" not in trial.log()
    assert trial.states() == {"queued": 1}


@pytest.mark.slow
def test_a_held_interpreter__keeps_its_lease(trial: "Trial") -> None:
    trial.put({"long": {"hold": 60}})
    first, second = trial.start(lease_s=5.0), trial.start(lease_s=5.0)
    trial.until(lambda: trial.states() == {"done": 1}, 90)
    assert trial.counts("begun") == trial.counts("finished") == {"long": 1}
    assert first.poll() is second.poll() is None


@pytest.mark.slow
def test_a_process_that_dies__is_replaced_and_only_its_poison_is_dead(trial: "Trial") -> None:
    trial.put({"poison": {"die": True}} | {str(number): {} for number in range(30)})
    worker = trial.start(until_idle=True, batch=8)
    assert worker.wait(60) == 0, trial.log()
    assert trial.states() == {"dead": 1, "done": 30}
    assert trial.counts("begun")["poison"] == 3
    assert trial.counts("finished") == {str(number): 1 for number in range(30)}


@pytest.mark.slow
def test_a_process_that_dies_over_a_slow_document__gives_it_back(
    trial: "Trial", settings: Settings, children: Children
) -> None:
    with Engine(settings, embedder=HashingEmbedder()) as engine:
        scope = engine.tenant("acme")
        scope.jobs.enqueue(SourceDocument(source="wide.xlsx", data=wide_workbook(800)))
        for number in range(20):
            scope.jobs.enqueue(SourceDocument(source=str(number), data=b"A few words."))
        worker = trial.start(work="engine_work", kinds=["document"], until_idle=True)
        trial.until(lambda: trial.states("document") == {"done": 20, "running": 1}, 60)
        for pid in children(worker.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert worker.wait(60) == 0, trial.log()
        assert trial.states("document") == {"done": 21}
        assert {document.version for document in scope.documents(limit=50)} == {1}


@pytest.mark.slow
def test_a_stuck_process__is_ended(trial: "Trial") -> None:
    trial.put({"stuck": {"sleep": 60}})
    worker = trial.start(until_idle=True, stuck_s=1.0)
    assert worker.wait(60) == 0, trial.log()
    assert trial.states() == {"dead": 1}
    assert "made no progress" in trial.log()


@pytest.mark.slow
def test_a_zombie__commits_nothing(trial: "Trial", children: Children) -> None:
    trial.put({"a": {"sleep": 1.5}})
    zombie = trial.start(lease_s=1.0)
    trial.until(lambda: trial.counts("begun") == {"a": 1}, 20)
    stopped = [zombie.pid, *children(zombie.pid)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    trial.start(lease_s=1.0)
    trial.until(lambda: trial.states() == {"done": 1}, 20)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    time.sleep(2.5)
    assert trial.counts("begun") == {"a": 2}
    assert trial.counts("finished") == {"a": 1}
    assert zombie.poll() is None


@pytest.mark.slow
def test_all_connections_cut__workers_come_back_and_no_job_is_lost(trial: "Trial") -> None:
    trial.put({str(number): {"sleep": 0.05} for number in range(60)})
    trial.start(processes=2, batch=4)
    for finished in (5, 20, 40):
        trial.until(lambda many=finished: len(trial.counts("finished")) >= many, 30)
        trial.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND usename = 'kosmos_worker'"
        )
    trial.until(lambda: trial.states() == {"done": 60}, 40)
    assert trial.counts("finished") == {str(number): 1 for number in range(60)}


@pytest.mark.slow
def test_a_supervisor_killed__takes_its_processes_with_it(trial: "Trial", children: Children) -> None:
    trial.put({"a": {"sleep": 3}})
    worker = trial.start()
    trial.until(lambda: trial.counts("begun") == {"a": 1}, 20)
    (child, *_) = children(worker.pid)
    worker.kill()
    worker.wait()
    trial.until(lambda: not _runs(child), 10)


@pytest.mark.slow
def test_news__reaches_a_waiting_worker_at_once(trial: "Trial") -> None:
    trial.put({"first": {}})
    trial.start(poll_s=60.0)
    trial.until(lambda: "first" in trial.counts("finished"), 20)
    time.sleep(0.5)
    started_at = time.monotonic()
    trial.put({"second": {}})
    trial.until(lambda: "second" in trial.counts("finished"), 20)
    assert time.monotonic() - started_at < 3


@pytest.mark.slow
def test_cancel__of_running_work_leaves_nothing(trial: "Trial") -> None:
    trial.put({"a": {"sleep": 2}})
    trial.start()
    trial.until(lambda: trial.counts("begun") == {"a": 1}, 20)
    (info,) = trial.queue.jobs(_owner())
    trial.queue.cancel(_owner(), [info.id])
    time.sleep(3)
    assert trial.counts("finished") == {}
    assert trial.states() == {"cancelled": 1}


def test_health__tells_alive_ready_and_metrics(trial: "Trial") -> None:
    trial.put({"a": {}, "b": {"fail": "no good"}})
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    trial.start(health_port=port)
    trial.until(lambda: trial.states() == {"dead": 1, "done": 1}, 30)
    base = f"http://127.0.0.1:{port}"
    assert httpx.get(f"{base}/livez").status_code == httpx.get(f"{base}/readyz").status_code == 200
    metrics = httpx.get(f"{base}/metrics").text
    assert 'kosmos_jobs{kind="trial",state="dead"} 1.0' in metrics
    assert "kosmos_worker_job_wait_seconds_count 2.0" in metrics
    assert httpx.get(f"{base}/nothing").status_code == 404


def _owner() -> TenantRef:
    return tenant("acme")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
