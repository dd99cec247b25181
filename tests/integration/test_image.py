"""The image: its commands with the packages of the extra `image` alone, as the wheel installs them."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from kosmos_rag.core.config import DatabaseSettings
from tests.distributions import ROOT, list_distributions, map_modules
from tests.unit.test_documented_commands import PAGES, list_commands

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_COMMAND = [sys.executable, "-c", "from kosmos_rag.apps.cli import main; main()"]
_BLOCKER = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""
_HELP = """
import json, sys
from typer.main import get_command
from kosmos_rag.apps.cli.app import app

command = get_command(app)
for words in json.load(sys.stdin):
    try:
        command.main([*words, "--help"], prog_name="kosmos-rag", standalone_mode=False)
    except Exception as error:
        print("FAILED", words, repr(error))
"""


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process with the wheel, which can import the packages of the image alone."""
    folder = tmp_path_factory.mktemp("image")
    run = [sys.executable, "-m"]
    subprocess.run(
        [*run, "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT], check=True, capture_output=True
    )
    (wheel,) = folder.glob("*.whl")
    site = folder / "site"
    subprocess.run(
        [*run, "pip", "install", "--quiet", "--no-deps", "--target", site, wheel], check=True, capture_output=True
    )
    image = list_distributions("image")
    blocked = {module for module, names in map_modules().items() if not names & image} - {"kosmos_rag"}
    assert {"pytest", "ray", "haystack", "llama_index", "pyarrow"} & set(map_modules()) <= blocked
    (folder / "sitecustomize.py").write_text(_BLOCKER.format(blocked=blocked))
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join([str(folder), str(site)]),
        "KOSMOS_CONFIG": str(ROOT / "rag-config.yaml"),
        "KOSMOS_MODELS__CACHE_DIR": str(folder / "models"),
        "KOSMOS_RAG__EMBEDDING__MODEL": "packaged:all-MiniLM-L6-v2-int8",
        "KOSMOS_RAG__EMBEDDING__DIMENSIONS": "384",
        "KOSMOS_RAG__RERANKING__ENABLED": "false",
    }


def _named_commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that compose, chart and pages name, up to its arguments."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for service in services.values():
        if service.get("command", [""])[0] == "kosmos-rag":
            yield tuple(service["command"][1:2])
    for template in (ROOT / "deploy" / "helm" / "kosmos-rag" / "templates").glob("*.yaml"):
        for line in template.read_text().splitlines():
            if 'command: ["kosmos-rag"' in line:
                yield tuple(json.loads(line.partition("command:")[2])[1:2])
    for page in PAGES:
        for words in list_commands(page):
            yield tuple(word for word in words[:2] if word.replace("-", "").isalpha() and not word.startswith("-"))


def test_named_commands__have_help(variables: dict[str, str], tmp_path: Path) -> None:
    from typer.main import get_command

    from kosmos_rag.apps.cli.app import app

    root = get_command(app)
    paths = set()
    for words in _named_commands():
        member = getattr(root, "commands", {}).get(words[0]) if words else None
        if member is not None:
            paths.add(words[:2] if words[1:] and words[1] in getattr(member, "commands", {}) else words[:1])
    assert {("serve",), ("worker",), ("migrate",), ("monitor", "run"), ("backup",), ("restore",)} <= paths
    done = subprocess.run(
        [sys.executable, "-c", _HELP],
        input=json.dumps(sorted(paths)),
        env=variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stdout
    assert done.stdout.count("Usage: kosmos-rag") == len(paths)


def _run(*words: str, variables: Mapping[str, str], folder: Path) -> str:
    done = subprocess.run([*_COMMAND, *words], env=variables, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def test_commands__run_and_the_monitor_measures_quality(
    variables: dict[str, str], empty_database: DatabaseSettings, knowledge_base: Path, tmp_path: Path
) -> None:
    """The alerts on recall and rank read a run of the monitor with a question file that is not `unknown`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **variables,
        "KOSMOS_DATABASE__URL": empty_database.url,
        "KOSMOS_DATABASE__WORKER_URL": empty_database.worker_url or "",
        "KOSMOS_DATABASE__ADMIN_URL": empty_database.admin_url or "",
        "KOSMOS_WORKER__PROCESSES": "1",
        "KOSMOS_MONITOR__QUESTIONS": json.dumps({"default": str(ROOT / "examples" / "questions.yaml")}),
    }

    def run(*words: str) -> str:
        return _run(*words, variables=environment, folder=tmp_path)

    assert "migrated" in run("migrate")
    run("enqueue", str(knowledge_base))
    assert "6 new" in run("worker", "--until-idle", "--kinds", "ingestion")
    run("worker", "--until-idle", "--kinds", "maintenance")
    assert "[1]" in run("ask", "How is churn calculated?")
    assert run("api-key", "create", "laptop", "--scope", "read").startswith("kosmos.default.")
    run("index", "status")
    run("doctor")
    canary = {item["kind"]: item for item in json.loads(run("monitor", "run", "--json"))["runs"]}["canary"]
    assert canary["state"] in {"ok", "alarm"}, canary
    environment |= {"KOSMOS_SERVICE__PORT": str(port), "KOSMOS_SERVICE__HEALTH_PORT": "0"}
    _check_serves(environment, tmp_path, port)


def _check_serves(environment: Mapping[str, str], folder: Path, port: int) -> None:
    with subprocess.Popen(
        [*_COMMAND, "serve"], env=environment, cwd=folder, stderr=subprocess.PIPE, text=True
    ) as serve:
        try:
            until = time.monotonic() + 300
            while time.monotonic() < until and serve.poll() is None:
                try:
                    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
                        assert response.status == 200
                        break
                except OSError:
                    time.sleep(0.5)
            assert serve.poll() is None, serve.stderr and serve.stderr.read()
        finally:
            serve.send_signal(signal.SIGTERM)
        assert serve.wait(60) == 0
