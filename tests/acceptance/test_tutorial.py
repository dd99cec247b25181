"""docs/tutorial.md from its first to its last command, in this process, with the real model.

A block of text below commands shows lines of their output.
"""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from kosmos_rag import AsyncEngine, Engine
from kosmos_rag.apps.http.app import create_app
from kosmos_rag.apps.http.toolkit.service import create_service
from kosmos_rag.core.config import DatabaseSettings
from tests.commands import run_command, set_variables

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^cat > .*?^END$|^(?:[^\n]*\\\n)*[^\n]+$", re.MULTILINE | re.DOTALL)
OF_THE_INSTALLATION = ("python3.11 -m venv", ". .venv", "pip install")

pytestmark = [pytest.mark.model, pytest.mark.slow]


@pytest.fixture
def services(
    tmp_path: Path,
    database: DatabaseSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[ExitStack]:
    """An empty folder, a database; and what `serve` starts, until the end."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, database, WORKER__PROCESSES="1")
    monkeypatch.setenv("COLUMNS", "200")
    with ExitStack() as stack:
        yield stack


class Shell:
    """Runs the commands of the page."""

    def __init__(self, services: ExitStack) -> None:
        self._services = services
        self.client: TestClient | None = None

    def run(self, command: str) -> str:
        """Run a command, and return what it prints."""
        words = shlex.split(command, comments=True)
        if command.startswith(OF_THE_INSTALLATION):
            return ""
        if words[:2] == ["kosmos-rag", "serve"]:
            return self._serve()
        if words[0] == "curl":
            assert self.client is not None
            return self.client.post(words[2], json=json.loads(words[words.index("-d") + 1])).text
        if words[0] != "kosmos-rag":
            return subprocess.run(["bash", "-ec", command], check=True, capture_output=True, text=True).stdout
        result = run_command(*words[1:])
        assert result.exit_code == 0, f"{command}: {result.output}"
        return result.output

    def _serve(self) -> str:
        engine = self._services.enter_context(Engine.open())
        application = create_app(create_service(AsyncEngine(engine)))
        client = TestClient(application, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50000))
        self.client = self._services.enter_context(client)
        return ""


def test_tutorial__does_what_it_says(services: ExitStack) -> None:
    shell = Shell(services)
    printed = ""
    for language, block in BLOCK.findall(PAGE):
        if language == "sh":
            printed = "".join(shell.run(command) for command in COMMAND.findall(block))
        else:
            for line in block.splitlines():
                pattern = ".*".join(re.escape(part.strip()) for part in line.split("…"))
                assert re.search(pattern, printed), f"{line!r} is not in {printed!r}"
    assert shell.client is not None
    for page in re.findall(r"`http://127\.0\.0\.1:8000(/\w*)`", PAGE):
        assert shell.client.get(page).status_code == 200, page
