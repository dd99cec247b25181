"""A service and a worker that run for long: their memory, descriptors and connections stay as they are.

    KOSMOS_TEST_SOAK_S=3600 python -m pytest -s tests/reliability/test_soak.py

Without the variable it is two minutes: a leak for each request shows, a slow one may not.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from kosmos_rag import Engine
from kosmos_rag.core.config import DatabaseSettings, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.commands import MINILM, database_variables
from tests.ports import find_free_port
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
SOAK_S = float(os.environ.get("KOSMOS_TEST_SOAK_S", "120"))
SOURCES = 60
QUESTIONS = tuple(f"What does page {number} say of leave and travel?" for number in range(40))
READERS = (["everyone"], ["board"], ["everyone", "board"])
RESTARTS = 6
"""Restarts of the worker, and cuts of all connections of the service."""
MEMORY_SHARE, MEMORY_MB = 1.03, 6.0
"""How much more memory than in its second third the last third of a run may have."""
SPARE = 4
"""How many more descriptors, threads or connections."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SOAK_S + 600)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """What a process has at one moment."""

    memory_mb: float
    descriptors: int
    threads: int
    connections: int


@dataclass(kw_only=True)
class Processes:
    """A service and a worker of the command line, over one database."""

    database: DatabaseSettings
    folder: Path
    environment: dict[str, str]
    url: str = ""
    running: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str, *arguments: str) -> None:
        """Start a command."""
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "kosmos_rag", *arguments]
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, cwd=self.folder, start_new_session=True
            )

    def serve(self) -> None:
        """Start the service, and wait until it answers."""
        port = find_free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.start("serve", "serve", "--port", str(port))
        eventually(self._is_ready, within_s=120)

    def _is_ready(self) -> bool:
        assert self.running["serve"].poll() is None, (self.folder / "serve.log").read_text()
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        return False

    def restart_worker(self) -> None:
        """End the worker, as a deployment does, and start the next one."""
        if worker := self.running.pop("worker", None):
            worker.terminate()
            # One that has just started has no handler of signals yet.
            assert worker.wait(60) in {0, -signal.SIGTERM}
        self.start("worker", "worker")

    def cut_connections(self) -> None:
        """Terminate the connections of the service and the worker."""
        self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'kosmos_%%'")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Execute a statement as the administrator."""
        with psycopg.connect(self.database.admin_url or "", autocommit=True) as connection:
            return connection.execute(text).fetchall()

    def sample(self) -> Sample:
        """Return what the service has now."""
        process = psutil.Process(self.running["serve"].pid)
        with process.oneshot():
            memory_mb, descriptors, threads = (
                process.memory_info().rss / 2**20,
                process.num_fds(),
                process.num_threads(),
            )
        ((connections,),) = self.sql("SELECT count(*) FROM pg_stat_activity WHERE usename LIKE 'kosmos_%%'")
        return Sample(memory_mb=memory_mb, descriptors=descriptors, threads=threads, connections=connections)

    def close(self) -> None:
        """Kill what runs."""
        for process in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def processes(database: DatabaseSettings, tmp_path: Path) -> Iterator[Processes]:
    """The service runs."""
    environment = os.environ | database_variables(database) | {"PYTHONPATH": str(ROOT), "KOSMOS_CONFIG": MINILM}
    # Nobody is refused, so that each refusal counts.
    environment |= {"KOSMOS_SERVICE__RATES__TENANT_PER_MINUTE": "0", "KOSMOS_SERVICE__RATES__SUBJECT_PER_MINUTE": "0"}
    processes = Processes(database=database, folder=tmp_path, environment=environment, running={})
    try:
        processes.serve()
        yield processes
    finally:
        processes.close()


@contextmanager
def _changed_meanwhile(processes: Processes, engine: Engine, key: str, statuses: Counter[str]) -> Iterator[None]:
    """Ask, publish and change readers in threads until the block ends."""
    over = threading.Event()
    headers = {"authorization": f"Bearer {key}"}
    permissions = processes.folder / "permissions.jsonl"

    def ask(seed: int) -> None:
        dice = random.Random(seed)
        with httpx.Client(base_url=processes.url, headers=headers, timeout=30, trust_env=False) as client:
            while not over.is_set():
                path = dice.choice(("/v1/search", "/v1/search", "/v1/context", "/v1/answer"))
                statuses[f"{path} {client.post(path, json={'question': dice.choice(QUESTIONS)}).status_code}"] += 1

    def publish() -> None:
        dice = random.Random(1)
        with httpx.Client(base_url=processes.url, headers=headers, timeout=30, trust_env=False) as client:
            while not over.wait(0.3):
                number = dice.randrange(SOURCES)
                text = f"# Page {number}\n\nPage {number} says {dice.random()} of leave and of travel.\n"
                response = client.post("/v1/documents", params={"source": f"{number}.md"}, content=text.encode())
                statuses[f"documents {response.status_code}"] += 1

    def change_readers() -> None:
        dice = random.Random(2)
        while not over.wait(1.0):
            lines = [
                json.dumps({"document": f"{n}.md", "principals": dice.choice(READERS)}) for n in range(0, SOURCES, 3)
            ]
            permissions.write_text("\n".join(lines))
            feed = {"name": "soak", "kind": "json_lines", "path": str(permissions)}
            engine.tenant("default").sync_permissions(feed)
            statuses["feeds"] += 1

    with ThreadPoolExecutor(5) as threads:
        calls = [
            threads.submit(ask, 3),
            threads.submit(ask, 4),
            threads.submit(publish),
            threads.submit(change_readers),
        ]
        try:
            yield
        finally:
            over.set()
        for call in calls:
            call.result()


def test_soak__leaves_memory_descriptors_and_connections_as_they_are(processes: Processes) -> None:
    settings = Settings.load(processes.environment["KOSMOS_CONFIG"]).model_copy(update={"database": processes.database})
    statuses: Counter[str] = Counter()
    samples: list[Sample] = []
    created = subprocess.run(
        [sys.executable, "-m", "kosmos_rag", "api-key", "create", "soak", "--scope", "admin"],
        env=processes.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    processes.restart_worker()
    with (
        Engine(settings, embedder=HashingEmbedder(dimensions=384)) as engine,
        _changed_meanwhile(processes, engine, created.stdout.strip(), statuses),
    ):
        began, restarts = time.monotonic(), 1
        while (elapsed := time.monotonic() - began) < SOAK_S:
            if elapsed > restarts * SOAK_S / RESTARTS:
                processes.restart_worker()
                processes.cut_connections()
                restarts += 1
            time.sleep(SOAK_S / 240)
            samples.append(processes.sample())
    third = len(samples) // 3
    middle, last = _highest(samples[third : 2 * third]), _highest(samples[2 * third :])
    print(f"{SOAK_S:.0f} s: {dict(sorted(statuses.items()))}\nfirst {samples[0]}\nsecond third {middle}\nlast {last}")
    failed = {name: count for name, count in statuses.items() if name[-3:] >= "400" and name != "feeds"}
    assert sum(failed.values()) <= 4 * RESTARTS, f"more than the calls of a cut connection: {failed}"
    assert last.memory_mb <= middle.memory_mb * MEMORY_SHARE + MEMORY_MB
    for name in ("descriptors", "threads", "connections"):
        assert getattr(last, name) <= getattr(middle, name) + SPARE, name
    assert processes.sql("SELECT count(*) FROM kosmos.jobs WHERE state = 'dead'") == [(0,)]


def _highest(samples: Sequence[Sample]) -> Sample:
    return Sample(**{name: max(getattr(sample, name) for sample in samples) for name in Sample.__slots__})
