"""Workers for tests: supervisors in processes of their own, over the test's database."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.database import Database
from kosmos_rag.storage.queue.queue import Queue
from kosmos_rag.storage.queue.writing import JobWriter
from kosmos_rag.storage.tenants import tenant

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

_PROGRAM = """
import importlib, json, sys
from kosmos_rag.core.config import Settings
from kosmos_rag.worker.supervisor import Supervisor, stop_on_signals

if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    supervisor = Supervisor(
        Settings.load(overrides=arguments["settings"]),
        kinds=arguments["kinds"],
        create_runner=importlib.import_module(arguments["work"]).create_runner,
        until_idle=arguments["until_idle"],
    )
    with stop_on_signals(supervisor):
        supervisor.run()
"""

_STATES = "SELECT kind, state, count(*) FROM kosmos.jobs GROUP BY kind, state ORDER BY kind, state"
_TRIAL_TABLES = """
CREATE TABLE public.begun (key text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE public.finished (key text, at timestamptz DEFAULT clock_timestamp());
GRANT SELECT, INSERT ON public.begun, public.finished TO kosmos_worker
"""


class Trial:
    """A database with its queue, and workers over it."""

    def __init__(self, database: DatabaseSettings, folder: Path) -> None:
        self.database = database
        self._folder = folder
        self._program = folder / "trial_program.py"
        self._program.write_text(_PROGRAM)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.opened = Database(database)
        self.queue = Queue(self.opened.worker, lease_s=60, max_attempts=3, max_lost=3)
        self.sql(_TRIAL_TABLES)

    def sql(self, text: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database.admin_url or "", autocommit=True) as connection:
            cursor = connection.execute(text, values or None)
            return cursor.fetchall() if cursor.description else []

    def put(self, jobs: Mapping[str, Mapping[str, Any]], owner: str = "acme", **options: Any) -> None:
        with self.opened.worker.untenanted() as connection:
            JobWriter(connection, tenant(owner)).enqueue("default", "trial", jobs, **options)

    def start(
        self, *, work: str = "trial_work", kinds: Sequence[str] = ("trial",), until_idle: bool = False, **settings: Any
    ) -> subprocess.Popen[bytes]:
        urls = {"url": self.database.url, "worker_url": self.database.worker_url, "admin_url": self.database.admin_url}
        arguments = {
            "settings": {f"database.{key}": value for key, value in urls.items()}
            | {"observability.log_level": "INFO", "rag.reranking.enabled": False}
            | {"database.idle_transaction_timeout_ms": 1000}
            | {f"worker.{key}": value for key, value in ({"lease_s": 2.0, "poll_s": 0.2} | settings).items()},
            "kinds": list(kinds),
            "work": work,
            "until_idle": until_idle,
        }
        with (self._folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            worker = subprocess.Popen(
                [sys.executable, str(self._program), json.dumps(arguments)],
                env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(ROOT)])},
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def log(self, number: int = 0) -> str:
        return (self._folder / f"worker-{number}.log").read_text()

    def counts(self, table: str) -> dict[str, int]:
        return dict(self.sql(f"SELECT key, count(*) FROM public.{table} GROUP BY key"))

    def states(self, kind: str = "trial") -> dict[str, int]:
        return dict(self.sql("SELECT state, count(*) FROM kosmos.jobs WHERE kind = %s GROUP BY state", [kind]))

    def until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds} s; jobs: {self.sql(_STATES)}"
            time.sleep(0.05)

    def close(self) -> None:
        for worker in self.workers:
            for number in (signal.SIGCONT, signal.SIGKILL):
                with suppress(ProcessLookupError):
                    os.killpg(worker.pid, number)
            worker.wait()
        self.opened.close()


@pytest.fixture
def trial(database: DatabaseSettings, tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(database, tmp_path)
    yield trial
    trial.close()
    for number in range(len(trial.workers)):
        print(f"--- worker {number}\n{trial.log(number)}")


@pytest.fixture
def children() -> Callable[[int], list[int]]:
    """Return what lists the processes below one."""

    def listed(pid: int) -> list[int]:
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(pid).children(recursive=True)]
        return []

    return listed
