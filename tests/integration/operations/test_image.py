"""The packages of the image are enough for each command that compose file, chart, rules and pages of operation name."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
import typer

from kosmos_rag.apps.cli.app import app
from tests.distributions import ROOT, Environment
from tests.ports import find_free_port

PAGES = (
    *("deploy", "restore", "upgrade", "managed-postgresql", "own-postgresql", "rotate-keys"),
    *("scale-out", "citus", "citus-nodes"),
)
FILES = [
    *(ROOT / name for name in ("Dockerfile", "docker-compose.yml", "docs/indexes.md", "docs/workers.md")),
    *(ROOT / "docs" / "how-to" / f"{page}.md" for page in PAGES),
    *sorted((ROOT / "deploy").rglob("*.y*ml")),
    *sorted((ROOT / "deploy").rglob("*.json")),
]
TOPICS = ("leave", "notice", "travel", "salary", "parking", "canteen", "training", "laptops", "visitors", "printing")
QUESTION = "How many days is the notice of leave?"
SERVERS = {"serve": ["--port"], "mcp": ["--http", "--port"]}
"""Commands that run until a signal, with the options before the port."""
ONLY_ON_CITUS = {
    "cluster status": [],
    "cluster move": ["--to", "1", "--tenant", "default"],
    "cluster isolate": ["--tenant", "default"],
}
"""Commands that a database without Citus refuses."""
OF_SUBSCRIBERS = {"webhooks dead-letters": ["cache"], "webhooks redeliver": ["cache"]}
"""Commands about a subscriber that the tenant does not have."""
COMMANDS: dict[str, list[str]] = {
    "init": ["rag-config.yaml", "--set", "database.data_dir=postgres", "--set", "service.development.tenant=null"],
    "migrate": [],
    "ingest": ["documents"],
    "enqueue": ["documents", "--every", "3600"],
    "worker": ["--until-idle"],
    "doctor": [],
    "search": [QUESTION],
    "jobs list": ["--state", "dead"],
    "jobs retry": ["--all"],
    "jobs show": ["JOB"],
    "index build": [],
    "index status": [],
    "index tune": [],
    "index warm": [],
    "index log": [],
    "api-key create": ["laptop", "--scope", "read", "--scope", "ingest"],
    "api-key list": [],
    "api-key rotate": ["KEY", "--overlap", "3600"],
    "api-key revoke": ["KEY"],
    "audit seal": [],
    "audit verify": [],
    "audit failed": [],
    "eval run": ["questions.yaml"],
    "monitor run": [],
    "monitor status": [],
    "gaps list": [],
    "gaps answers": [],
    "webhooks list": [],
    "backup": ["backup.dump"],
    "restore": ["backup.dump", "--set", "database.data_dir=restored"],
}
"""The other commands with arguments, in the order in which they run: each finds what those before it left."""
MEASURES = {"monitor run"}
"""Named by no page: `monitor status` and the alerts show what it measures."""


def _commands(command: typer.core.TyperGroup | typer.core.TyperCommand, *names: str) -> Iterator[str]:
    context = typer.Context(command)
    if not isinstance(command, typer.core.TyperGroup):
        yield " ".join(names)
        return
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        assert isinstance(child, typer.core.TyperGroup | typer.core.TyperCommand)
        yield from _commands(child, *names, name)


def _find_commands(text: str, commands: Collection[str]) -> set[str]:
    """Return the commands that a file names, in a list of words or as a line."""
    lines = re.sub(r'"kosmos-rag", "([a-z-]+)"(?:, "([a-z-]+)")?', r"kosmos-rag \1 \2", text)
    words = [match[1].split() for match in re.finditer(r"kosmos-rag ([a-z][a-z -]*[a-z])", lines)]
    return {" ".join(line[:length]) for line in words for length in (1, 2)} & set(commands)


def test_files_of_deployment__name_the_commands_of_this_test() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, typer.core.TyperGroup)
    commands = set(_commands(root))
    names = set().union(*(_find_commands(path.read_text(), commands) for path in FILES))
    expected = {*COMMANDS, *SERVERS, *ONLY_ON_CITUS, *OF_SUBSCRIBERS}
    assert names | MEASURES & commands == expected & commands, "those of a wing are there with the wing alone"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment as the Dockerfile makes it: the locked packages with their hashes, and the wheel.

    PyTorch, which it installs before them, is left out: the model of this test runs on ONNX Runtime.
    """
    folder = tmp_path_factory.mktemp("image")
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    install = [sys.executable, "-m", "pip", "--python", str(environment), "install", "--quiet", "--no-deps"]
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    lock = str(ROOT / "requirements" / "image.txt")
    subprocess.run([*install, "--require-hashes", "-r", lock], check=True, capture_output=True)
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return Environment(folder=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with ten documents, and a question with its answer for each."""
    (tmp_path / "documents").mkdir()
    questions = []
    for number, topic in enumerate(TOPICS, start=10):
        text = f"# Rules of {topic}\n\nThe notice of {topic} is {number} days.\n"
        (tmp_path / "documents" / f"{topic}.md").write_text(text)
        questions.append({"question": f"How many days is the notice of {topic}?", "source": f"documents/{topic}.md"})
    (tmp_path / "questions.yaml").write_text(json.dumps(questions))
    return tmp_path


@pytest.fixture
def variables(folder: Path) -> dict[str, str]:
    """What a container would set."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "KOSMOS_CONFIG": str(folder / "rag-config.yaml"),
        "KOSMOS_MODELS__CACHE_DIR": str(folder / "models"),
        "KOSMOS_MONITOR__QUESTIONS": json.dumps({"default": str(folder / "questions.yaml")}),
        "KOSMOS_RAG__AUDIT__ENABLED": "true",
    }


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


class Container:
    """Runs commands of the image one after the other, as a container would."""

    def __init__(self, image: Environment, folder: Path, variables: Mapping[str, str]) -> None:
        self._image = image
        self._folder = folder
        self._variables = variables
        self.outputs: dict[str, str] = {}
        self.failures: dict[str, str] = {}

    def run(self, name: str, arguments: Sequence[str], *, refusal: str | None = None) -> None:
        """Run a command; it fails by its exit code, unless its output has the words of an expected refusal."""
        result = subprocess.run(
            [str(self._image.command), *name.split(), *arguments],
            env=dict(self._variables),
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )
        output = self.outputs[name] = result.stdout + result.stderr
        expected = result.returncode == 0 if refusal is None else result.returncode == 1 and refusal in output
        if not expected or "Traceback" in output:
            self.failures[name] = output

    def serve(self, name: str, arguments: Sequence[str]) -> None:
        """Start a server, wait until it is ready, and stop it."""
        port, health_port = find_free_port(), find_free_port()
        setting = f"service.health_port={health_port}"
        command = [str(self._image.command), name, *arguments, str(port), "--set", setting]
        log = self._folder / f"{name}.log"
        with (
            log.open("w") as file,
            subprocess.Popen(command, env=dict(self._variables), cwd=self._folder, stderr=file, text=True) as process,
        ):
            deadline = time.monotonic() + 120
            while not _is_ready(f"http://127.0.0.1:{health_port}/readyz"):
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    break
                time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
        if process.returncode:
            self.failures[name] = log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_image__runs_every_command_of_deployment(image: Environment, folder: Path, variables: dict[str, str]) -> None:
    container = Container(image, folder, variables)
    ids: dict[str, str] = {}
    for name, arguments in COMMANDS.items():
        container.run(name, [ids.get(argument, argument) for argument in arguments])
        if name == "jobs list":
            container.run("jobs list", ["--json"])
            ids["JOB"] = json.loads(container.outputs["jobs list"])["jobs"][0]["id"]
        elif name == "api-key list":
            ids["KEY"] = container.outputs["api-key list"].split()[0]
    for name, arguments in ONLY_ON_CITUS.items():
        container.run(name, arguments, refusal="the extension `citus` is missing")
    for name, arguments in OF_SUBSCRIBERS.items():
        container.run(name, arguments, refusal="there is no such subscriber")
    for name, arguments in SERVERS.items():
        container.serve(name, arguments)
    assert container.failures == {}
    assert "documents/leave.md" in container.outputs["search"]
    states = re.findall(r"^[\d-]+ \S+ +(questions|isolation) +(\w+) ", container.outputs["monitor run"], re.MULTILINE)
    assert states == [("questions", "ok"), ("isolation", "ok")], container.outputs["monitor run"]
