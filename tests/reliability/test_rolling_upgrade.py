"""Two versions of the service and of the worker run at once, while the database is migrated and after it.

The earlier version is the code of an earlier revision that can serve from the newest one, out of the history.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from kosmos_rag.core.config import DatabaseSettings
from kosmos_rag.storage.migrate import REVISION
from tests.commands import database_variables
from tests.ports import find_free_port
from tests.releases.code import ROOT, export_code, list_compatible
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(1200)]

KEYS = {"writer": (["ingest", "read"], ["board"]), "staff": (["read"], []), "board": (["read"], ["board"])}
"""Scopes and principals of the callers."""
_LIBRARY = """
import json, sys
from kosmos_rag import Engine, Settings
from kosmos_rag.models.testing.hashing import HashingEmbedder

with Engine(Settings.load(), embedder=HashingEmbedder(dimensions=384)) as engine:
    tenant = engine.tenant("default")
    calls = {
        "key": lambda name, scopes, principals: tenant.api_keys.create(name, scopes=scopes, principals=principals),
        "feed": lambda path: tenant.sync_permissions({"name": "readers", "kind": "json_lines", "path": path}).changed,
        "erase": lambda source: tenant.erase(source=source).erased["documents"],
    }
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(calls[name](*arguments)), flush=True)
"""

COMMAND = ("-c", "from kosmos_rag.apps.cli import main; main()")
"""The command line, of releases without `python -m kosmos_rag` too."""


class Version:
    """The processes of one version of the code, over one database."""

    def __init__(self, name: str, code: Path, database: DatabaseSettings, folder: Path) -> None:
        self.name = name
        self._folder = folder / name
        self._folder.mkdir()
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._environment = os.environ | {
            "PYTHONPATH": str(code),
            "KOSMOS_CONFIG": str(code / "examples" / "minilm.yaml"),
            **database_variables(database),
            "KOSMOS_SERVICE__RATES__TENANT_PER_MINUTE": "0",
            "KOSMOS_SERVICE__RATES__SUBJECT_PER_MINUTE": "0",
        }
        self._port = 0

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE if name == "library" else None
        with (self._folder / f"{name}.log").open("a") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, *arguments], stdin=pipe, stdout=pipe or log, stderr=log, env=self._environment,
                text=True, cwd=self._folder, start_new_session=True,
            )  # fmt: skip
        return self._running[name]

    def migrate(self) -> None:
        """Migrate the database to the newest revision of this version."""
        command = [sys.executable, *COMMAND, "migrate"]
        subprocess.run(command, env=self._environment, cwd=self._folder, check=True)

    def start(self) -> None:
        """Start service and worker, and wait until the service answers."""
        self._port = find_free_port()
        self._start("serve", *COMMAND, "serve", "--port", str(self._port))
        self._start("worker", *COMMAND, "worker")
        eventually(self._is_ready, within_s=180)

    def _is_ready(self) -> bool:
        assert self._running["serve"].poll() is None, (self._folder / "serve.log").read_text()
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz", trust_env=False).is_success
        return False

    def stop(self) -> None:
        """End all processes as a deployment does."""
        while self._running:
            name, process = self._running.popitem()
            with process:
                process.terminate()
                assert process.wait(90) in {0, -signal.SIGTERM}, (self._folder / f"{name}.log").read_text()

    def kill(self) -> None:
        """Kill what runs."""
        for process in self._running.values():
            with process, suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def call(self, *arguments: Any) -> Any:
        """Call the library of this version."""
        process = self._running.get("library") or self._start("library", "-c", _LIBRARY)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(arguments)}\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, (self._folder / "library.log").read_text()
        return json.loads(answer)

    def client(self, key: str) -> httpx.Client:
        """Return a client of the service."""
        headers = {"authorization": f"Bearer {key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self._port}", headers=headers, timeout=60, trust_env=False)


class Upgrade:
    """Callers of both versions, and what they have stored."""

    def __init__(self, folder: Path) -> None:
        self._feed = folder / "readers.jsonl"
        self._readers: dict[str, list[str]] = {}
        self.keys: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        """Of the documents that are kept, by source."""
        self._number = 0

    def search(self, version: Version, name: str) -> dict[str, str]:
        """Return what a caller finds with one question: texts by source."""
        with version.client(self.keys[name]) as client:
            response = client.post("/v1/search", json={"question": "What does the page say of travel?", "k": 100})
        assert response.status_code == 200, response.text
        return {hit["source"]: hit["text"] for hit in response.json()["hits"]}

    def publish(self, version: Version, source: str, text: str, *readers: str) -> None:
        """Upload a document, and wait for a worker of any version."""
        with version.client(self.keys["writer"]) as client:
            params = {"source": source, "reader": list(readers)}
            response = client.post("/v1/documents", params=params, content=text.encode())
            assert response.status_code == 202, response.text
            url = response.headers["location"]
            eventually(lambda: client.get(url).json()["state"] not in {"queued", "running"}, within_s=120)
            job = client.get(url).json()
            assert job["state"] == "done", job

    def change_readers(self, version: Version, source: str, *readers: str) -> None:
        """Run a pass of the permission feed."""
        self._readers[source] = list(readers)
        lines = [json.dumps({"document": name, "principals": who}) for name, who in self._readers.items()]
        self._feed.write_text("\n".join(lines))
        version.call("feed", str(self._feed))

    def check(self, writer: Version, reader: Version) -> None:
        """One version writes, the other one answers: publication, permissions, erasure."""
        self._number += 1
        name = f"{self._number}-{writer.name}-{reader.name}"
        board, shared, erased = (f"{kind}-{name}.md" for kind in ("board", "shared", "erased"))
        self.texts |= {board: f"Page {name} of the board says much of travel.", shared: f"Page {name} on travel."}
        self.publish(writer, board, self.texts[board], "board")
        self.publish(writer, shared, "Page before its change, on travel.", "everyone")
        self.publish(writer, erased, "Page that will be erased, on travel.", "everyone")
        staff = self.search(reader, "staff")
        assert board not in staff
        assert {shared, erased} <= staff.keys()
        assert self.texts[board] in self.search(reader, "board")[board]
        self.publish(writer, shared, self.texts[shared], "everyone")
        assert self.texts[shared] in self.search(reader, "staff")[shared]
        self.change_readers(writer, shared, "board")
        assert shared not in self.search(reader, "staff")
        assert shared in self.search(reader, "board")
        self.change_readers(writer, shared, "everyone")
        assert shared in self.search(reader, "staff")
        assert writer.call("erase", erased) == 1
        assert erased not in self.search(reader, "board")

    def check_kept(self, version: Version) -> None:
        """Nothing is lost, and the board's documents are its own."""
        texts = self.search(version, "board")
        assert {source: self.texts[source] in text for source, text in texts.items()} == dict.fromkeys(self.texts, True)
        staff = {source for source in self.texts if source.startswith("shared")}
        assert self.search(version, "staff").keys() == staff

    @contextmanager
    def asked_meanwhile(self, *versions: Version) -> Iterator[Counter[int]]:
        """Ask the versions without a pause while the block runs; gives the statuses of their answers."""
        over, statuses, sources = threading.Event(), Counter[int](), set[str]()

        def ask(version: Version) -> None:
            with version.client(self.keys["staff"]) as client:
                while not over.is_set():
                    response = client.post("/v1/search", json={"question": "The board on travel", "k": 100})
                    statuses[response.status_code] += 1
                    sources.update(hit["source"] for hit in response.json().get("hits", ()))

        threads = [threading.Thread(target=ask, args=(version,)) for version in versions]
        for thread in threads:
            thread.start()
        try:
            yield statuses
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert statuses.keys() == {200}, statuses
        assert not {source for source in sources if source.startswith("board")}


@pytest.fixture(params=list_compatible())
def earlier(request: pytest.FixtureRequest, empty_database: DatabaseSettings, tmp_path: Path) -> Iterator[Version]:
    """A version of an earlier revision."""
    code = export_code(request.param, tmp_path / "code")
    version = Version("earlier", code, empty_database, tmp_path)
    yield version
    version.kill()


@pytest.fixture
def later(empty_database: DatabaseSettings, tmp_path: Path) -> Iterator[Version]:
    """The present version."""
    version = Version("later", ROOT, empty_database, tmp_path)
    yield version
    version.kill()


def test_rolling_upgrade__serves_with_both_versions(
    earlier: Version, later: Version, empty_database: DatabaseSettings, tmp_path: Path
) -> None:
    """As Helm does it: migrate, start the new processes beside the old ones, then end the old ones."""
    upgrade = Upgrade(tmp_path)
    earlier.migrate()
    upgrade.keys = {name: earlier.call("key", name, *rights) for name, rights in KEYS.items()}
    earlier.start()
    upgrade.check(earlier, earlier)
    with upgrade.asked_meanwhile(earlier) as statuses:
        later.migrate()
    print(f"questions while the database was migrated: {dict(statuses)}")
    with psycopg.connect(empty_database.admin_url or "") as connection:
        assert connection.execute("SELECT version_num FROM kosmos.alembic_version").fetchone() == (REVISION,)
    upgrade.check(earlier, earlier)
    earlier.stop()  # a node may end while the new processes start, and its pods of the old version start elsewhere
    earlier.start()
    later.start()
    with upgrade.asked_meanwhile(earlier, later):
        for writer, reader in ((earlier, later), (later, earlier), (later, later), (earlier, earlier)):
            upgrade.check(writer, reader)
        upgrade.check_kept(earlier)
    earlier.stop()
    upgrade.check(later, later)
    upgrade.check_kept(later)
